"""The files of a `Disk` as a target that the real scan and the reference judge read, without a kernel."""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import cast

from durability.evidence.judgement import Judgement
from durability.evidence.scan_report import ScanReport
from durability.formats.plan import MAIN
from durability_client.target.storage import PresentDrive, Storage, WritableBuffer
from durability_client.verify.scan.scan_base import ScanJob, ScanListener
from durability_client.verify.scan.scan_child import scan_here
from durability_client.verify.scan.scan_process import OnProgress
from durability_lab.truth.comparison import Claims
from durability_lab.truth.reference_judge import ReferenceJudge
from tests.core.evidence.memory_target import SECTOR, Disk


class DiskFile:
    """One file, to be read. `bad`: the offsets of sectors that give an I/O error."""

    direct = True

    def __init__(self, data: bytearray, bad: Collection[int]) -> None:
        self._data = data
        self._bad = [offset for offset in bad if offset < len(data)]

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        if any(offset - SECTOR < bad < offset + len(buffer) for bad in self._bad):
            raise OSError(errno.EIO, "the sector cannot be read")
        found = self._data[offset : offset + len(buffer)]
        memoryview(buffer)[: len(found)] = found
        return len(found)

    def close(self) -> None:
        """Nothing is held."""


class DiskStorage:
    """As much of a storage as reading takes. `bad`: suffix and offset of the sectors that cannot be read."""

    def __init__(self, disk: Disk, bad: Collection[tuple[str, int]] = ()) -> None:
        self.path = Path("/disk")
        self._files = disk.files
        self._bad = bad

    def open(self, suffix: str) -> DiskFile:
        if suffix not in self._files:
            raise FileNotFoundError(suffix)
        return DiskFile(self._files[suffix], [offset for name, offset in self._bad if name == suffix])

    def exists(self, suffix: str) -> bool:
        return suffix in self._files

    def suffixes(self) -> tuple[str, ...]:
        return tuple(sorted(suffix for suffix in self._files if suffix != MAIN))

    def size(self, suffix: str) -> int:
        if suffix not in self._files:
            raise FileNotFoundError(suffix)
        return len(self._files[suffix])

    def drives(self) -> tuple[PresentDrive, ...]:
        return ()

    def drop_caches_below(self) -> None:
        """There is nothing below."""


class PassingErrorsFile(DiskFile):
    """One file of a `PassingErrors`."""

    def __init__(self, data: bytearray, errors: dict[int, int], flips: dict[int, int]) -> None:
        super().__init__(data, ())
        self._errors = errors
        self._flips = flips

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        for start, left in self._errors.items():
            if left and start < min(offset + len(buffer), len(self._data)) and offset < start + SECTOR:
                if len(buffer) == SECTOR:
                    self._errors[start] -= 1
                raise OSError(errno.EIO, "the sector cannot be read now")
        got = super().pread_into(buffer, offset)
        for start, left in self._flips.items():
            if left and offset <= start < offset + got:
                buffer[start - offset] ^= 1
                self._flips[start] -= 1
        return got


class PassingErrors(DiskStorage):
    """As `DiskStorage`, of a drive whose errors go away. By suffix and offset of a sector: `errors`, how many
    readings of it fail, whatever the scan asks for until it is down to the sector; `flips`, how many reads of
    it have a wrong bit."""

    def __init__(
        self,
        disk: Disk,
        *,
        errors: Mapping[tuple[str, int], int] | None = None,
        flips: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        super().__init__(disk)
        self._errors = _by_file(errors or {})
        self._flips = _by_file(flips or {})

    def open(self, suffix: str) -> DiskFile:
        if suffix not in self._files:
            raise FileNotFoundError(suffix)
        return PassingErrorsFile(
            self._files[suffix], self._errors.setdefault(suffix, {}), self._flips.setdefault(suffix, {})
        )


def _by_file(counts: Mapping[tuple[str, int], int]) -> dict[str, dict[int, int]]:
    files: dict[str, dict[int, int]] = {}
    for (suffix, offset), count in counts.items():
        files.setdefault(suffix, {})[offset] = count
    return files


def scanned(
    disk: Disk,
    acked: Sequence[int],
    bad: Collection[tuple[str, int]] = (),
    *,
    control: int = 0,
    on_progress: OnProgress = lambda _: None,
) -> tuple[list[Judgement], ScanReport]:
    """What the real scan finds, and its report; `control`: completed writes of the control arm."""
    return scanned_from(DiskStorage(disk, bad), disk, acked, control=control, on_progress=on_progress)


def scanned_from(
    storage: DiskStorage,
    disk: Disk,
    acked: Sequence[int],
    *,
    control: int = 0,
    on_progress: OnProgress = lambda _: None,
) -> tuple[list[Judgement], ScanReport]:
    """As `scanned`, of a disk that is read through `storage`."""
    findings: list[Judgement] = []
    job = ScanJob(plan=disk.plan, acked=tuple(acked), control_completed=control, block_bytes=SECTOR)
    listener = ScanListener(
        tick=lambda: None, progress=on_progress, example=lambda _: None, finding=findings.append
    )
    report = scan_here(cast(Storage, storage), job, listener)
    assert report.finished, report.failure
    return findings, report


def claims_on(disk: Disk, acked: Sequence[int], bad: Collection[tuple[str, int]] = ()) -> Claims:
    """What the tester says of a disk."""
    return Claims.of_scan(*scanned(disk, acked, bad))


def reference_on(disk: Disk, acked: Sequence[int], bad: Collection[tuple[str, int]] = ()) -> ReferenceJudge:
    """The reference judge on it."""
    return ReferenceJudge(disk.plan, acked, cast(Storage, DiskStorage(disk, bad)), block_bytes=SECTOR)
