"""The files of a `Disk` as a target that the real scan and the reference judge read, without a kernel."""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import cast

from durability.evidence.judgement import Judgement
from durability.evidence.scan_report import ScanReport
from durability.formats.plan import MAIN
from durability_client.target.storage import PresentDrive, Storage, WritableBuffer
from durability_client.verify.scan_base import ScanJob, ScanListener
from durability_client.verify.scan_child import scan_here
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


def scanned(
    disk: Disk, acked: Sequence[int], bad: Collection[tuple[str, int]] = ()
) -> tuple[list[Judgement], ScanReport]:
    """What the real scan finds, and its report."""
    findings: list[Judgement] = []
    job = ScanJob(plan=disk.plan, acked=tuple(acked), control_completed=0, block_bytes=SECTOR)
    listener = ScanListener(
        tick=lambda: None, progress=lambda _: None, example=lambda _: None, finding=findings.append
    )
    report = scan_here(cast(Storage, DiskStorage(disk, bad)), job, listener)
    assert report.finished, report.failure
    return findings, report


def claims_on(disk: Disk, acked: Sequence[int], bad: Collection[tuple[str, int]] = ()) -> Claims:
    """What the tester says of a disk."""
    return Claims.of_scan(*scanned(disk, acked, bad))


def reference_on(disk: Disk, acked: Sequence[int], bad: Collection[tuple[str, int]] = ()) -> ReferenceJudge:
    """The reference judge on it."""
    return ReferenceJudge(disk.plan, acked, cast(Storage, DiskStorage(disk, bad)), block_bytes=SECTOR)
