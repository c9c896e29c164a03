"""Targets as they are after a cut, as real files, and drives that fail on reading them."""

from __future__ import annotations

import errno
import mmap
from pathlib import Path
from typing import Any

import numpy as np

from durability.evidence.scan_report import Example, ScanReport
from durability.formats.facts import Facts
from durability.formats.mixing import U64
from durability.formats.plan import Extent, Plan
from durability.formats.record import Stamper
from durability_client.target.kernel_storage import KernelFile, KernelStorage
from durability_client.target.storage import Storage, WritableBuffer
from durability_client.verify.scan.scan_base import ScanJob, ScanListener, ScanProgress
from durability_client.verify.scan.scan_child import SCANS
from durability_client.verify.scan.target_reader import read_superblocks
from tests.core.evidence.memory_target import SECTOR, Disk


def lay_down(disk: Disk, directory: Path) -> KernelStorage:
    """The files of `disk` as real ones; the storage of them."""
    storage = KernelStorage(directory / "target")
    for suffix, data in disk.files.items():
        storage.path_of(suffix).write_bytes(data)
    return storage


def existing_plan(storage: Storage, *, known: Plan | None = None) -> Plan | None:
    """The plan of the first superblock copy that holds one."""
    return next((plan for plan in read_superblocks(storage, known) if plan is not None), None)


class KnownStorage(KernelStorage):
    """Real files whose facts are given, because a test cannot choose the drive that it runs on."""

    def __init__(self, path: Path, facts: Facts) -> None:
        super().__init__(path)
        self._facts = facts

    def facts(self) -> Facts:
        return self._facts


class FailingFile(KernelFile):
    """A file on a drive that fails on reading some bytes, or flips a bit on the first reads of a byte.

    Where good bytes lie before the bad ones, every second read gives those and no error, as the kernel does.
    """

    __slots__ = ("_bad", "_file", "_flips", "_reads")

    def __init__(self, file: KernelFile, bad: dict[int, int], flips: dict[int, int]) -> None:
        self._file = file
        self._bad = bad
        self._flips = flips
        self._reads = 0
        self.direct = file.direct

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        self._reads += 1
        for start, code in sorted(self._bad.items()):
            if start < offset + len(buffer) and offset < start + SECTOR:
                if offset >= start or self._reads % 2:
                    raise OSError(code, "the drive gives an error")
                buffer = memoryview(buffer)[: start - offset]
                break
        got = self._file.pread_into(buffer, offset)
        for position, times in self._flips.items():
            if times and offset <= position < offset + got:
                buffer[position - offset] ^= 1
                self._flips[position] -= 1
        return got

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class FailingStorage(KernelStorage):
    """Real files on such a drive. `bad`: errno by byte offset of a sector; `flips`: how often, by byte
    offset.
    """

    def __init__(
        self, path: Path, *, bad: dict[int, int] | None = None, flips: dict[int, int] | None = None
    ) -> None:
        super().__init__(path)
        self._bad = bad or {}
        self._flips = flips or {}

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> KernelFile:
        return FailingFile(super().open(suffix, plan=plan, create=create), self._bad, self._flips)


def unreadable(*offsets: int) -> dict[int, int]:
    """These sectors with EIO."""
    return dict.fromkeys(offsets, errno.EIO)


def job_of(plan: Plan, acked: tuple[int, ...] | None, *, control: int = 0) -> ScanJob:
    """The job of scanning a target of `plan`."""
    return ScanJob(plan=plan, acked=acked, control_completed=control, block_bytes=SECTOR)


def scanned(storage: KernelStorage, job: ScanJob) -> tuple[ScanReport, list[Example], list[ScanProgress]]:
    """A scan in this process, with what it told."""
    examples: list[Example] = []
    progress: list[ScanProgress] = []
    listener = ScanListener(tick=lambda: None, progress=progress.append, example=examples.append)
    scan = SCANS[job.plan.contract.layout]
    return scan(storage, job, listener).run(), examples, progress


class FlickeringStorage(FailingStorage):
    """Such files with facts that are given."""

    def __init__(self, path: Path, facts: Facts, flips: dict[int, int]) -> None:
        super().__init__(path, flips=flips)
        self._facts = facts

    def __reduce__(self) -> tuple[type[KernelStorage], tuple[Any, ...]]:
        return FlickeringStorage, (self.path, self._facts, self._flips)

    def facts(self) -> Facts:
        return self._facts


class BadStorage(FailingStorage):
    """Files with sectors that cannot be read, and facts that are given."""

    def __init__(self, path: Path, facts: Facts, bad: dict[int, int]) -> None:
        super().__init__(path, bad=bad)
        self._facts = facts

    def __reduce__(self) -> tuple[type[KernelStorage], tuple[Any, ...]]:
        return BadStorage, (self.path, self._facts, self._bad)

    def facts(self) -> Facts:
        return self._facts


def bytes_of(storage: Storage, suffix: str, offset: int, length: int) -> bytes:
    """Bytes of a file as a reader gets them, through an aligned buffer."""
    file = storage.open(suffix)
    try:
        with mmap.mmap(-1, length) as buffer:
            return buffer[: file.pread_into(buffer, offset)]
    finally:
        file.close()


def prefill_of(plan: Plan, extent: Extent) -> bytes:
    """What a whole extent holds before the first operation, stamped in one piece."""
    slots = np.arange(extent.first_slot, extent.first_slot + extent.slots, dtype=U64)
    out = np.empty((extent.slots, extent.record_bytes // 512, 64), dtype=U64)
    Stamper(plan).stamp_extent(out, extent, slots=slots, seqs=np.zeros_like(slots))
    return out.tobytes()


def aligned(data: bytes) -> mmap.mmap:
    """A copy of `data` that O_DIRECT takes."""
    buffer = mmap.mmap(-1, len(data))
    buffer[:] = data
    return buffer
