"""What tests of names share: small plans, and directories in which all was done."""

from __future__ import annotations

from typing import Any

from durability.formats.plan import Plan
from tests.core.evidence.memory_target import Disk, Found, MakePlan, small

WORKLOADS = ("create", "rename", "unlink")


def plan_of(make_plan: MakePlan, workload: str, **changes: Any) -> Plan:
    """Small enough that every name turns over often: 32 names of two sectors, in sequence."""
    return small(make_plan, **{"workload": workload, "slots": 32, "pattern": "sequential", **changes})


def written(plan: Plan, frontier: int) -> Disk:
    """A directory in which every writer's operations up to `frontier` are done."""
    disk = Disk(plan)
    for writer in range(plan.writers):
        disk.write_to(writer, frontier)
    return disk


def only(found: Found) -> tuple[str | None, int]:
    """Class and slot of the one finding."""
    (judgement,) = found.wrong
    return judgement.finding, judgement.slot
