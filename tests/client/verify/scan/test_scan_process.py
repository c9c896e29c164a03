"""The reading process: what it says, and what becomes of it when its drive never answers."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from durability.errors import TargetError
from durability.evidence.scan_report import Example, empty_report
from durability.formats.plan import MAIN, Plan
from durability_client.target.kernel_storage import KernelStorage
from durability_client.verify.scan import scan_child
from durability_client.verify.scan.scan_base import ScanProgress
from durability_client.verify.scan.scan_process import ScanProcess, StalledError
from durability_lab.drive.faults import Honest
from durability_lab.simulated_rig.simulated_storage import SimulatedStorage
from tests.client.verify.targets import job_of, lay_down, scanned
from tests.core.evidence.memory_target import Disk, small
from tests.lab.support import processes
from tests.waiting import wait_for

MakePlan = Callable[..., Plan]
STALL_S = 60.0


@pytest.fixture
def written(make_plan: MakePlan) -> Disk:
    disk = Disk(small(make_plan, slots=4096, credit=16))
    disk.write_to(0, 500)
    return disk


_ELDERS: set[processes.Process] = (
    set()
)  # begun by tests before this one: multiprocessing keeps helpers for good


@pytest.fixture(autouse=True)
def elders() -> None:
    """What `children` leaves out in this test."""
    _ELDERS.clear()
    _ELDERS.update(processes.children(os.getpid()))


def children() -> list[int]:
    """The processes that this test has begun, except those that have ended."""
    return [process.pid for process in processes.children(os.getpid()) if process not in _ELDERS]


def wait_for_end() -> None:
    """Return once all that this test has begun have ended, however long a killed process takes to die."""
    wait_for(lambda: not children(), children)


@pytest.mark.slow
async def test_child_scans_as_this_process_does(written: Disk, tmp_path: Path) -> None:
    """Report and examples of the child are those of a scan without one, and the child is gone at the end."""
    written.put(0, 3000, bytes(1024))
    storage = lay_down(written, tmp_path)
    job, examples, told = job_of(written.plan, (500,)), list[Example](), list[ScanProgress]()

    with ScanProcess(storage, stall_s=STALL_S) as scan_process:
        plans = await scan_process.superblocks(None)
        report = await scan_process.scan(job, on_progress=told.append, on_example=examples.append)

    expected, expected_examples, _ = scanned(storage, job)
    assert plans == (written.plan, written.plan)
    assert (report, examples) == (expected, expected_examples)
    assert told
    wait_for_end()


async def test_storage_of_this_process_is_scanned_in_it(make_plan: MakePlan) -> None:
    """A simulated drive, which no other process could read, needs none."""
    storage = SimulatedStorage(Honest(), seed=1, size_bytes=4 << 20)
    plan = make_plan(target_kind="device", writers=1, slots=64, credit=8, control_slots=0)

    with ScanProcess(storage, stall_s=STALL_S) as scan_process:
        assert not children()
        report = await scan_process.scan(
            job_of(plan, (0,)), on_progress=lambda _: None, on_example=lambda _: None
        )

    assert report.finished
    assert report.findings["corrupt"] == 64 - 1 + 2


def stop_children(*_: object) -> None:
    """Make the children as silent as a process that waits for its drive."""
    for child in children():
        os.kill(child, signal.SIGSTOP)


@pytest.mark.slow
async def test_superblocks_that_cannot_be_read_are_abandoned(written: Disk, tmp_path: Path) -> None:
    """A child that says nothing for the deadline is left, before the scan as well."""
    with ScanProcess(lay_down(written, tmp_path), stall_s=1.0) as scan_process:
        stop_children()
        with pytest.raises(StalledError, match="returned nothing for 1 s and were abandoned"):
            await scan_process.superblocks(None)

    wait_for_end()


@pytest.mark.slow
async def test_abandoned_child_is_asked_no_more(written: Disk, tmp_path: Path) -> None:
    """Its late answer was taken for the answer to the next request, and superblocks for the report of a
    scan."""
    with ScanProcess(lay_down(written, tmp_path), stall_s=1.0) as scan_process:
        stop_children()
        with pytest.raises(StalledError):
            await scan_process.superblocks(None)
        for child in children():
            os.kill(child, signal.SIGCONT)
        with pytest.raises(StalledError, match="were abandoned"):
            await scan_process.superblocks(None)
        job = job_of(written.plan, (0,) * written.plan.writers)
        report = await scan_process.scan(job, on_progress=lambda _: None, on_example=lambda _: None)
        assert not report.finished and "were abandoned" in report.failure


@pytest.mark.slow
async def test_scan_that_hangs_is_unfinished(make_plan: MakePlan, tmp_path: Path) -> None:
    """If reads hang, the scan is unfinished: its counts so far are kept, and unread slots do not count as
    lost."""
    plan = make_plan(writers=1, slots=1 << 18, credit=16, control_slots=0)
    storage = KernelStorage(tmp_path / "target")
    storage.path.touch()
    os.truncate(storage.path, plan.main_bytes)  # a gibibyte of findings, which no machine scans in an instant

    began_s = time.monotonic()
    with ScanProcess(storage, stall_s=1.0) as scan_process:
        report = await scan_process.scan(
            job_of(plan, (plan.slots,)), on_progress=stop_children, on_example=lambda _: None
        )

    assert not report.finished
    assert "returned nothing for 1 s and were abandoned" in report.failure
    assert sum(report.findings.values()) <= report.checked + 2 < plan.slots
    assert time.monotonic() - began_s < 30
    wait_for_end()


@pytest.mark.slow
async def test_child_that_dies_has_shown_nothing(written: Disk, tmp_path: Path) -> None:
    """A crashed reader makes the scan unfinished, and says how it ended."""
    with ScanProcess(lay_down(written, tmp_path), stall_s=STALL_S) as scan_process:
        for child in children():
            os.kill(child, signal.SIGKILL)
        wait_for_end()
        report = await scan_process.scan(
            job_of(written.plan, (500,)), on_progress=lambda _: None, on_example=lambda _: None
        )

    assert not report.finished
    assert report.failure == "the process that reads the target ended unexpectedly with status -9"


class Unreadable(KernelStorage):
    """A storage that the child cannot make."""

    def __reduce__(self) -> tuple[Any, ...]:
        return divmod, (1, 0)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs files in memory")
async def test_child_needs_no_directory_of_the_system(
    written: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that takes no file, as one that the cut made read-only, reads its drives nevertheless, and
    tells what the child said at its end."""
    storage = lay_down(written, tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))

    with ScanProcess(storage, stall_s=STALL_S) as scan_process:
        assert await scan_process.superblocks(None) == (written.plan, written.plan)
    said = pytest.raises(TargetError, match="with status 1: ZeroDivisionError")
    with ScanProcess(Unreadable(storage.path), stall_s=STALL_S) as scan_process, said:
        await scan_process.superblocks(None)


@pytest.mark.slow
async def test_error_of_the_drive_is_the_reports_failure(written: Disk, tmp_path: Path) -> None:
    """A file that goes away under the scan ends it with a sentence for people, not with a loss."""
    storage = lay_down(written, tmp_path)
    storage.path.unlink()
    storage.path.mkdir()

    with ScanProcess(storage, stall_s=STALL_S) as scan_process:
        with pytest.raises(TargetError, match="directory"):
            await scan_process.superblocks(None)
        report = await scan_process.scan(
            job_of(written.plan, (500,)), on_progress=lambda _: None, on_example=lambda _: None
        )

    assert not report.finished
    assert "cannot be read" in report.failure


@pytest.mark.slow
async def test_interrupt_does_not_wait_for_the_drive(written: Disk, tmp_path: Path) -> None:
    """Cancelling a scan whose child hangs returns at once, and the child is ended."""
    with ScanProcess(lay_down(written, tmp_path), stall_s=STALL_S) as scan_process:
        for child in children():
            os.kill(child, signal.SIGSTOP)
        task = asyncio.create_task(scan_process.superblocks(None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    wait_for_end()


@pytest.mark.slow
async def test_superblocks_where_there_are_none(written: Disk, tmp_path: Path) -> None:
    """A missing target has no copies; a damaged copy holds no plan; the other one tells both places."""
    written.files[MAIN][: 64 << 10] = bytes(64 << 10)
    storage = lay_down(written, tmp_path)
    gone = KernelStorage(tmp_path / "gone")

    with ScanProcess(storage, stall_s=STALL_S) as scan_process:
        assert await scan_process.superblocks(None) == (None, written.plan)
    with ScanProcess(gone, stall_s=STALL_S) as scan_process:
        assert await scan_process.superblocks(written.plan) == ()


def test_what_was_found_is_known_before_the_drive_hangs(make_plan: MakePlan) -> None:
    """News of progress come now and then, but the first finding of a class comes at once."""
    ours, theirs = Pipe()
    reporter = scan_child._Reporter(theirs)
    nothing = empty_report(make_plan())
    for report in (nothing, nothing, *(replace(nothing, findings={"lost": lost}) for lost in (1, 2))):
        reporter.send(ScanProgress(phase="all slots", done=0, total=0, report=report))
    theirs.close()

    assert [ours.recv().report.findings, ours.recv().report.findings] == [{}, {"lost": 1}]
    with pytest.raises(EOFError):
        ours.recv()
