"""What one writer had done when the power went: any history that the rules of issuing allow."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from durability.formats.plan import Plan
from tests.core.evidence.memory_target import ENDLESS, SECTOR, MakePlan, small


@dataclasses.dataclass(frozen=True)
class History:
    """Of the operations up to `issued`, the drive acknowledged `done` and the server knows of `acked`."""

    plan: Plan
    done: int
    acked: int
    issued: int


@st.composite
def histories(draw: st.DrawFn, make_plan: MakePlan, workload: str, *, operations: int) -> History:
    """Of up to so many `operations` that were acknowledged."""
    group = draw(st.sampled_from([1, 2, 4]))
    sectors = draw(st.sampled_from([1, 2, 8]))
    endless = workload in ENDLESS
    plan = small(
        make_plan,
        workload=workload,
        pattern="sequential" if endless else draw(st.sampled_from(["random", "sequential"])),
        group=group,
        credit=8,
        slots=draw(st.sampled_from([32, 40])),
        record_bytes=sectors * SECTOR,
        block_bytes=sectors * SECTOR,
    )
    done = draw(st.integers(0, operations // group)) * group
    acked = max(0, done - draw(st.integers(0, plan.credit // group)) * group)
    issued = min(done + draw(st.integers(0, group)), acked + plan.credit)
    return History(plan=plan, done=done, acked=acked, issued=issued)
