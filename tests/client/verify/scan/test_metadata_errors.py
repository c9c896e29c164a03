"""I/O errors that hide a file as a whole, its length, or its directory. By rule 8 they count as bad sectors
do, as long as something else can be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from durability.errors import UnreadableTargetError
from durability.evidence.scan_report import ScanReport
from durability.formats.plan import MAIN, Plan
from durability_client.target.kernel_storage import KernelFile, KernelStorage
from durability_client.verify.scan.scan_base import ScanListener
from durability_client.verify.scan.scan_child import scan_here
from durability_client.verify.scan.target_reader import read_superblocks
from tests.client.verify.targets import FailingFile, job_of, lay_down, unreadable
from tests.core.evidence.memory_target import Disk, small

MakePlan = Callable[..., Plan]
ACKED = 100


class HidingStorage(KernelStorage):
    """Real files of which the kernel says EIO for some, whatever is asked; `listed`: whether it says what the
    directory holds; `times`: how often each file is hidden."""

    def __init__(
        self, path: Path, hidden: Iterable[str], *, listed: bool = True, times: int = 1 << 30
    ) -> None:
        super().__init__(path)
        self._left = dict.fromkeys(hidden, times)
        self._listed = listed

    def _look(self, suffix: str) -> None:
        if self._left.get(suffix, 0):
            self._left[suffix] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> KernelFile:
        self._look(suffix)
        return super().open(suffix, plan=plan, create=create)

    def exists(self, suffix: str) -> bool:
        self._look(suffix)
        return super().exists(suffix)

    def size(self, suffix: str) -> int:
        self._look(suffix)
        return super().size(suffix)

    def suffixes(self) -> tuple[str, ...]:
        if not self._listed:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().suffixes()


def report_of(
    disk: Disk, directory: Path, hidden: Iterable[str] = (), *, acked: int = ACKED, **how: bool
) -> ScanReport:
    """What a scan of the disk finds, with these files hidden."""
    storage = HidingStorage(lay_down(disk, directory).path, hidden, **how)
    return _scan(storage, disk, acked)


def _scan(storage: KernelStorage, disk: Disk, acked: int = ACKED) -> ScanReport:
    listener = ScanListener(tick=lambda: None, progress=lambda _: None, example=lambda _: None)
    return scan_here(storage, job_of(disk.plan, (acked,)), listener)


@pytest.fixture
def log(make_plan: MakePlan) -> Disk:
    """A log of 100 records: 64 in its first file, 36 in its second."""
    disk = Disk(small(make_plan, workload="append"))
    disk.write_to(0, ACKED)
    return disk


@pytest.mark.parametrize(("suffix", "lost"), [(".0.0", 64), (".0.1", 36), (MAIN, 0)])
def test_what_must_be_in_a_hidden_file_is_unreadable(
    log: Disk, tmp_path: Path, suffix: str, lost: int
) -> None:
    """Its acknowledged records, or both superblocks; a loss that a pass which reads it may withdraw."""
    report = report_of(log, tmp_path, [suffix])

    assert report.finished, report.failure
    assert report.convicting == {"unreadable": lost or 2}
    assert (report.operations_lost, report.superblocks_lost) == (lost, 0 if lost else 2)


def test_what_may_be_in_a_hidden_file_is_no_loss(log: Disk, tmp_path: Path) -> None:
    """Nothing that was acknowledged is in the file that was just begun."""
    log.write_to(0, 132)

    report = report_of(log, tmp_path, [".0.2"], acked=128)

    assert (report.finished, report.findings, report.above_ceiling) == (True, {}, 0)


@pytest.mark.parametrize("control", [0, 16])
def test_a_hidden_region_is_lost_if_another_file_can_be_read(
    make_plan: MakePlan, tmp_path: Path, control: int
) -> None:
    """A file that the drive cannot show is lost if the control arm's file can be read, which proves that the
    drive is there. Without that file, the scan is unfinished."""
    disk = Disk(small(make_plan, control_slots=control))
    disk.write_to(0, ACKED)

    report = report_of(disk, tmp_path, [MAIN])

    assert report.finished is bool(control)
    assert report.convicting == ({"unreadable": 64 - report.in_flight_damaged + 2} if control else {})


@pytest.mark.parametrize("workload", ["append", "overwrite", "create"])
def test_a_drive_that_is_gone_altogether_has_lost_nothing(
    make_plan: MakePlan, tmp_path: Path, workload: str
) -> None:
    """Every file is hidden, with or without its directory: that is no finding."""
    disk = Disk(small(make_plan, workload=workload, control_slots=16))
    disk.write_to(0, ACKED)

    for listed in (True, False):
        report = report_of(disk, tmp_path, disk.files, listed=listed)
        assert (report.finished, report.convicting) == (False, {})


@pytest.mark.parametrize("suffix", [MAIN, ".0.1"])
def test_an_error_that_passes_is_no_loss(log: Disk, tmp_path: Path, suffix: str) -> None:
    """However many of the scan's questions it answers: what is read in the end is right."""
    target = lay_down(log, tmp_path).path
    for times in range(1, 8):
        report = _scan(HidingStorage(target, [suffix], times=times), log)
        assert report.findings.keys() <= {"unreadable"}, times
        assert report.finished


def test_lost_records_are_found_without_a_list_of_the_files(log: Disk, tmp_path: Path) -> None:
    """A directory that cannot be listed hides neither zeros nor the end of a file. The scan is unfinished."""
    log.put(0, 10, bytes(log.plan.record_bytes))
    del log.files[".0.1"][-log.plan.record_bytes :]

    report = report_of(log, tmp_path, listed=False)

    assert (report.finished, report.convicting) == (False, {"lost": 1, "truncated": 1})
    assert "Input/output error" in report.failure


def test_a_removed_file_of_an_old_log_is_no_loss_without_a_list(log: Disk, tmp_path: Path) -> None:
    """The log is behind by two files, which the writer replaced; only the list names the newer ones."""
    log.write_to(0, 300)

    report = report_of(log, tmp_path, listed=False)

    assert (report.finished, report.convicting) == (False, {})
    assert report_of(log, tmp_path).above_ceiling > 0


@pytest.mark.parametrize("how", ["hidden", "bad sector"])
def test_a_file_beyond_the_ceiling_that_cannot_be_read_may_hide_a_newer_record(
    log: Disk, tmp_path: Path, how: str
) -> None:
    """The log is behind, and of the files that show it, only the first records cannot be read."""
    log.write_to(0, 300)
    beyond = [suffix for suffix in log.files if suffix.startswith(".0.") and int(suffix[3:]) > 1]
    storage = lay_down(log, tmp_path)
    hiding = HidingStorage(storage.path, beyond) if how == "hidden" else BadFirstSectors(storage.path, beyond)

    report = _scan(hiding, log)

    assert report.finished, report.failure
    assert report.findings
    assert report.above_ceiling == len(beyond)


class BadFirstSectors(KernelStorage):
    """Real files of which some have a first sector that cannot be read."""

    def __init__(self, path: Path, bad: Iterable[str]) -> None:
        super().__init__(path)
        self._bad = frozenset(bad)

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> KernelFile:
        file = super().open(suffix, plan=plan, create=create)
        return FailingFile(file, unreadable(0), {}) if suffix in self._bad else file


def test_superblocks_of_a_hidden_target_are_unknown(log: Disk, tmp_path: Path) -> None:
    """It is there, so it is not empty as one that a system removed."""
    target = lay_down(log, tmp_path).path
    assert read_superblocks(HidingStorage(target, [MAIN]), None) == (None,)
    assert read_superblocks(HidingStorage(target, [], listed=False), None) == (log.plan, log.plan)


def test_a_target_that_the_medium_hides_cannot_be_locked(
    log: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the medium fails while the target is opened, locking raises UnreadableTargetError, with which
    `verify` can go on."""
    target, open_here = lay_down(log, tmp_path).path, os.open

    def of_kernel(path: str | Path, *rest: int, **named: int) -> int:
        if Path(path).name == target.name:  # in its open directory
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return open_here(path, *rest, **named)

    monkeypatch.setattr(os, "open", of_kernel)
    with pytest.raises(UnreadableTargetError, match="Input/output error"):
        KernelStorage(target).lock()
