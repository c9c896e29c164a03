"""When a rig may cut: not before a cut would find records at risk."""

from __future__ import annotations

from durability.formats.plan import Plan
from durability_lab.simulated_rig.virtual_time import stored_run
from durability_lab.support.local_server import anything_new
from durability_server.runs.run import Run
from tests.conftest import PLAN_FIELDS

MS = 1_000_000


def test_what_came_late_is_not_at_risk_until_something_newer_came() -> None:
    """After a pause of 3 s, what comes first may be as old as the pause."""
    run = Run(stored_run(Plan(**PLAN_FIELDS), at_ns=0), boot_id="boot")
    run.attached(0, "client")
    run.heartbeat_answered(100 * MS, sent_ns=50 * MS)
    _receive(run, 100, 5)
    assert anything_new(run)

    _receive(run, 3100, 8)
    assert not anything_new(run)

    run.heard(3170 * MS, ran_ns=3170 * MS)
    run.heartbeat_answered(3170 * MS, sent_ns=3150 * MS)
    _receive(run, 3201, 9)
    _receive(run, 3202, 10)
    assert anything_new(run)


def _receive(run: Run, at_ms: int, done: int) -> None:
    run.heard(at_ms * MS, ran_ns=at_ms * MS)
    run.acknowledge(at_ms * MS, (done, 0), 0)
    run.saved(run.snapshot(timeline=False), at_ms * MS)
