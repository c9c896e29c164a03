"""The sentences in which `serve` tells what happens to a run."""

from __future__ import annotations

import shlex

from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability.units import counted
from durability_server import clock
from durability_server.runs.run import Run

_GIB = 1 << 30


def armed(run: Run) -> str:
    """The run may write now: where, on what, how much."""
    assert run.armed is not None
    return f"armed: {run.armed.path} on {_drives(run.armed)}, {_size(run.plan)}, {_writers(run.plan)}"


def lost(run: Run, *, campaign: str) -> str:
    """Nothing comes any more, as after a cut: what to do next. A `campaign` does that by itself, "" for
    none."""
    what = f"lost at {clock.local_time(run.last_receipt_ns)} after {_acked(run)}"
    if campaign:
        return f"{what}: campaign {campaign} verifies it"
    path = shlex.quote(run.armed.named or run.armed.path) if run.armed is not None else "TARGET"
    return f"{what}: boot it and type `durability verify {path}`"


def back(run: Run) -> str:
    """The client is heard again, on the same connection or on a new one."""
    return f"back, after {_acked(run)}"


def closed(run: Run, why: str) -> str:
    """The connection ended without a word of the client."""
    return f"connection closed after {_acked(run)}: {why}"


def stopped(run: Run) -> str:
    """The client ended the run cleanly."""
    return f"stopped cleanly after {_acked(run)}: this run cannot become durable"


def failed(run: Run, why: str) -> str:
    """The target, or the client, failed."""
    return f"failed after {_acked(run)}: {why}"


def _acked(run: Run) -> str:
    return counted(sum(run.frontiers.acked), "acknowledgement")


def _drives(facts: Facts) -> str:
    return ", ".join(drive.model or drive.name for drive in facts.drives) or "an unknown drive"


def _size(plan: Plan) -> str:
    size_bytes = plan.writers * plan.slots * plan.record_bytes
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= _GIB else f"{size_bytes >> 20} MiB"


def _writers(plan: Plan) -> str:
    return counted(plan.writers, "writer")
