"""Verdicts on targets that the product's own scan has read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from durability.evidence.judge import Attestation, Found, judge
from durability.evidence.outcome import Outcome, Requirements
from durability.evidence.scan_report import ScanReport
from durability.formats.case import Case, PastVerdict
from durability.formats.plan import Plan
from durability.formats.workloads.registry import WORKLOADS
from tests.core.evidence.memory_target import (
    SECTOR,
    Disk,
    after_power_loss,
    make_case,
    small,
    with_case,
)
from tests.lab.mutants import lab_case
from tests.lab.mutants.synced_files import Files
from tests.lab.truth.disk_storage import scanned
from tests.sample_facts import facts, file_system

MakePlan = Callable[..., Plan]


def _judged(case: Case, plan: Plan, report: ScanReport) -> Outcome:
    return judge(
        plan=plan,
        case=case,
        found=Found(facts=after_power_loss(), superblocks=(plan, plan)),
        report=report,
        examples=[],
        attestation=Attestation(text=None),
        requirements=Requirements(),
        duration_s=1,
    )


def _sectors(disk: Disk, seq: int) -> Iterator[tuple[str, int]]:
    suffix, offset, record_bytes = disk.versions.place(0, disk.slot_of(0, seq))
    return ((suffix, offset + begin) for begin in range(0, record_bytes, SECTOR))


def test_unreadable_slots_in_flight_withdraw_no_loss(make_plan: MakePlan) -> None:
    """A drive that loses another sector in each pass takes away what proved the first loss: the second pass
    finds nothing wrong, and has not read everything."""
    plan = small(make_plan)
    disk = Disk(plan)
    disk.write_to(0, 102)
    case = make_case(plan, (100,))
    first = _judged(case, plan, scanned(disk, (100,), [*_sectors(disk, 101)])[1])
    past = PastVerdict(
        run=case.run,
        verdict=first.verdict.word,
        cut_class=first.cut.cut_class,
        at_risk_ms1000=first.at_risk.ms1000,
        wall="",
        reasons=tuple(reason.code for reason in first.verdict.reasons),
    )
    proof = [*_sectors(disk, 102)]

    second = _judged(with_case(case, verdicts=(past,)), plan, scanned(disk, (100,), proof)[1])

    assert not any(second.report.findings.values())
    assert [outcome.verdict.word for outcome in (first, second)] == ["loss", "loss"]
    read = _judged(with_case(case, verdicts=(past,)), plan, scanned(disk, (100,))[1])
    assert read.verdict.word == "durable"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 40, 9))
def test_a_writer_that_waits_before_a_pass_border_is_not_at_risk(make_plan: MakePlan, seed: int) -> None:
    """The last operation that an older credit allows removed a name, which the next pass, within the newest
    credit, would make again. Its absence shows that the writer may have waited there."""
    plan = small(make_plan, workload="unlink", slots=32, credit=8, seed=seed)
    for acked in range(25, 32):
        for limit in range(acked + 1, 33):
            disk = Disk(plan)
            disk.write_to(0, limit)
            case = make_case(plan, (acked,), credits=((limit - plan.credit,), (acked,)))

            outcome = _judged(case, plan, scanned(disk, (acked,))[1])

            assert outcome.at_risk.stalled == (0,), (acked, limit)
            assert "nothing-at-risk" in {reason.code for reason in outcome.verdict.reasons}


@pytest.mark.parametrize("acked", [48, 150])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_target_of_any_workload_may_have_been_removed_at_boot(
    make_plan: MakePlan, workload: str, acked: int
) -> None:
    """If a target in a directory that systems empty at boot is gone, the verdict blames no drive, with any
    workload and any last operation. Absent names that a removal in flight explains do not show an
    operation."""
    plan = small(make_plan, workload=workload)
    place: dict[str, Any] = {"path": "/tmp/target", "file_system": file_system(mount_point="/")}
    now = replace(after_power_loss(), **place)

    said = lab_case.judged(Files(now), make_case(plan, (acked,), armed=facts(**place)))

    assert said.startswith("inconclusive: emptied-at-boot")
