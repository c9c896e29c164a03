"""The sentences in which `serve` reports what happens to a run."""

from __future__ import annotations

import shlex

from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability.units import counted
from durability_server import clock
from durability_server.runs.run import Run

_GIB = 1 << 30


def connected(run: Run, facts: Facts, *, name: str) -> str:
    """The client `name` has a new run and prefills its target: path, drives, size and writers."""
    return f"connected as {name}, prefills {_what(run, facts)}"


def armed(run: Run) -> str:
    """The run may write now: the same details."""
    assert run.armed is not None
    return f"armed: {_what(run, run.armed)}"


def lost(run: Run, *, campaign: str) -> str:
    """No frame arrives any more, as after a cut, and what to do next. `campaign` is the campaign that
    verifies the run by itself, "" for none."""
    what = f"lost at {clock.local_time(run.last_receipt_ns)} {_how_far(run)}"
    if campaign:
        return f"{what}: campaign {campaign} verifies it"
    if run.armed is None:
        return f"{what}: nothing was acknowledged"
    return f"{what}: boot it and type `durability verify {shlex.quote(run.armed.named or run.armed.path)}`"


def back(run: Run) -> str:
    """The client is connected again or heard again, on the same connection or a new one."""
    return f"back, {_how_far(run)}"


def closed(run: Run, why: str) -> str:
    """The connection ended before the client reported an end of the run."""
    return f"connection closed {_how_far(run)}: {why}"


def stopped(run: Run) -> str:
    """The client ended the run cleanly."""
    return f"stopped cleanly {_how_far(run)}: this run cannot become durable"


def failed(run: Run, why: str) -> str:
    """The target or the client failed."""
    return f"failed {_how_far(run)}: {why}"


def _how_far(run: Run) -> str:
    if run.armed is None:
        return "in its prefill"
    return f"after {counted(sum(run.frontiers.acked), 'acknowledgement')}"


def _what(run: Run, facts: Facts) -> str:
    return f"{facts.path} on {_drives(facts)}, {_size(run.plan)}, {_writers(run.plan)}"


def _drives(facts: Facts) -> str:
    return ", ".join(drive.model or drive.name for drive in facts.drives) or "an unknown drive"


def _size(plan: Plan) -> str:
    size_bytes = plan.writers * plan.slots * plan.record_bytes
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= _GIB else f"{size_bytes >> 20} MiB"


def _writers(plan: Plan) -> str:
    return counted(plan.writers, "writer")
