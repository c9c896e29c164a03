"""Names of an earlier run that are back beside a target, where the run makes no name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import cast

import pytest

from durability.evidence.judgement import Judgement
from durability.evidence.scan_report import ScanReport
from durability.formats.plan import Plan
from durability.formats.record import superblock
from durability_client.target.storage import Storage
from durability_client.verify.scan.scan_base import ScanJob, ScanListener, ScanProgress
from durability_client.verify.scan.scan_child import scan_here
from durability_client.verify.scan.scan_process import OnProgress
from tests.core.evidence.memory_target import ENDLESS, SECTOR, Disk, small
from tests.lab.truth.disk_storage import DiskStorage

MakePlan = Callable[..., Plan]
WORKLOADS = ("overwrite", "append", "create", "rename", "unlink")
EARLIER = 99  # the run before
ACKED = 100


class UnlistableStorage(DiskStorage):
    """A directory that gives an error while it is listed."""

    def suffixes(self) -> tuple[str, ...]:
        raise OSError(5, "the directory cannot be read")


def intact(make_plan: MakePlan, workload: str) -> Disk:
    """A target on which nothing is wrong."""
    pattern = "sequential" if workload in ENDLESS else "random"
    disk = Disk(small(make_plan, workload=workload, pattern=pattern))
    disk.write_to(0, ACKED)
    return disk


def earlier_record(make_plan: MakePlan, workload: str = "rename") -> bytearray:
    """A record of the run before, which carried another tag; of `rename` it is a file's first."""
    return bytearray(Disk(small(make_plan, workload=workload, run=EARLIER, target=5)).record(0, 3, 0))


def scanned(
    storage: DiskStorage,
    plan: Plan,
    earlier: Collection[int] = (EARLIER,),
    on_progress: OnProgress = lambda _: None,
) -> tuple[list[Judgement], ScanReport]:
    """What the scan finds, which must end."""
    findings: list[Judgement] = []
    job = ScanJob(plan=plan, acked=(ACKED,), control_completed=0, block_bytes=SECTOR, earlier=earlier)
    listener = ScanListener(
        tick=lambda: None, progress=on_progress, example=lambda _: None, finding=findings.append
    )
    report = scan_here(cast(Storage, storage), job, listener)
    assert report.finished, report.failure
    return findings, report


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("suffix", [".0.900", ".1.3", ".0.900.tmp", ".control"])
def test_name_of_an_earlier_run_is_resurrected(make_plan: MakePlan, workload: str, suffix: str) -> None:
    """A name of an earlier run, which arming removed, is resurrected with any workload and tag. No operation
    of this run counts as lost with it."""
    disk = intact(make_plan, workload)
    disk.files[suffix] = earlier_record(make_plan)

    (found,), report = scanned(DiskStorage(disk), disk.plan)

    assert (found.finding, found.suffix) == ("resurrected", suffix)
    assert found.text == (
        f"name {suffix}: resurrected, expected no such name, found data of run {EARLIER:016x}"
    )
    assert (report.operations_lost, report.earlier_names_back, report.above_ceiling) == (0, 1, 0)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_name_of_another_run_than_the_earlier_ones_is_left_alone(make_plan: MakePlan, workload: str) -> None:
    """A later run may have made it, or one that the server does not know."""
    disk = intact(make_plan, workload)
    disk.files[".1.3"] = earlier_record(make_plan)

    assert scanned(DiskStorage(disk), disk.plan, earlier=(EARLIER + 1,))[0] == []
    assert scanned(DiskStorage(disk), disk.plan, earlier=())[0] == []


@pytest.mark.parametrize("content", [b"", b"\xa5" * SECTOR, b"short", bytes(4 * SECTOR)])
def test_name_without_a_record_is_somebody_elses(make_plan: MakePlan, content: bytes) -> None:
    """Nothing shows that a run made it."""
    disk = intact(make_plan, "overwrite")
    disk.files[".0.3"] = bytearray(content)

    assert scanned(DiskStorage(disk), disk.plan)[0] == []


def test_record_of_an_earlier_run_in_another_place_is_no_name_of_it(make_plan: MakePlan) -> None:
    """A file whose record of an earlier run is not where that run wrote it is not a name of that run. It may
    contain old blocks."""
    disk = intact(make_plan, "overwrite")
    disk.files[".0.3"] = earlier_record(make_plan, "overwrite")

    assert scanned(DiskStorage(disk), disk.plan)[0] == []


def test_copy_of_an_earlier_superblock_is_no_name_of_a_run(make_plan: MakePlan) -> None:
    """A copy of an earlier run's target beside the target gives no finding, because no run makes a name that
    starts with a superblock."""
    disk = intact(make_plan, "overwrite")
    earlier = small(make_plan, workload="overwrite", run=EARLIER)
    disk.files[".0.900"] = bytearray(superblock(earlier, 0))

    assert scanned(DiskStorage(disk), disk.plan)[0] == []


def test_progress_is_told_for_each_earlier_name(make_plan: MakePlan) -> None:
    """Many of them take long, and the phase before has ended."""
    disk = intact(make_plan, "overwrite")
    for number in range(20):
        disk.files[f".0.{number}"] = earlier_record(make_plan)
    told: list[ScanProgress] = []

    findings, _ = scanned(DiskStorage(disk), disk.plan, on_progress=told.append)

    shares = [one.done / one.total for one in told if one.phase == "earlier names"]
    assert (len(findings), len(shares), shares[-1]) == (20, 20, 1)
    assert shares == sorted(set(shares))


def test_name_of_an_earlier_run_that_cannot_be_read_is_no_finding(make_plan: MakePlan) -> None:
    """Nothing is promised of it, and an I/O error shows no run."""
    disk = intact(make_plan, "overwrite")
    disk.files[".0.3"] = earlier_record(make_plan)
    bad = {(".0.3", 0)}

    findings, report = scanned(DiskStorage(disk, bad), disk.plan)

    assert (findings, report.unstable) == ([], 0)


def test_directory_that_cannot_be_listed_shows_no_earlier_name(make_plan: MakePlan) -> None:
    """A region needs no directory to be judged."""
    disk = intact(make_plan, "overwrite")
    disk.files[".0.3"] = earlier_record(make_plan)

    assert scanned(UnlistableStorage(disk), disk.plan)[0] == []


@pytest.mark.parametrize(
    ("workload", "suffix"),
    [("append", ".0.2"), ("create", ".0.108"), ("rename", ".0.3.tmp"), ("unlink", ".0.3")],
)
def test_names_that_the_run_may_make_are_not_taken_for_earlier_ones(
    make_plan: MakePlan, workload: str, suffix: str
) -> None:
    """A file in the making may show the blocks of a file that was removed."""
    disk = intact(make_plan, workload)
    disk.files[suffix] = earlier_record(make_plan)

    assert {finding.finding for finding in scanned(DiskStorage(disk), disk.plan)[0]} <= {"foreign"}
