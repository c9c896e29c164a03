"""The files of a plan on a storage: superblocks, prefill and names, made durable before a run is armed.

Syncing thousands of files one after the other takes minutes. So several threads sync names, and all files of
a batch are written before the first is synced: file systems then commit many files at once. This module does
not decide what may be overwritten; `safety_checks` does.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

import numpy as np

from durability import limits
from durability.formats.mixing import U64
from durability.formats.plan import MAIN, Extent, Plan
from durability.formats.record import SECTOR_WORDS, Stamper, superblock
from durability_client.target.storage import Storage, TargetFile

PREFILL_CHUNK_BYTES = 8 << 20
PrefillProgress: TypeAlias = Callable[[int, int], None]  # bytes done, bytes in all

_THREADS = 8
_FILES = 256  # files open at once: enough for every thread, and below the limit of any system
_BATCH_BYTES = 8 << 20


def prefill_names(storage: Storage, plan: Plan, done: Callable[[int], None]) -> None:
    """Make and sync the prefilled names of all writers. `done` gets the bytes of each synced file.

    Raises OSError, FileExistsError for an existing name, and any exception of `done`.
    """
    count = max(1, min(_FILES, _BATCH_BYTES // plan.record_bytes))
    whole = memoryview(mmap.mmap(-1, count * plan.record_bytes))
    records = np.frombuffer(whole, dtype=U64).reshape(count, -1, SECTOR_WORDS)
    views = [whole[at : at + plan.record_bytes] for at in range(0, len(whole), plan.record_bytes)]
    direct = plan.record_bytes % mmap.PAGESIZE == 0

    def write(suffix: str, record: memoryview) -> TargetFile:
        file = storage.open_bulk(suffix, create=True, direct=direct)
        file.pwrite(record, 0)
        return file

    stamper = Stamper(plan)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="prefill") as pool:
        for writer in range(plan.writers):
            for first in range(0, plan.prefilled_names, count):
                slots = np.arange(first, min(first + count, plan.prefilled_names), dtype=U64)
                nothing = np.zeros_like(slots)
                stamper.stamp(
                    records[: len(slots)], writer=writer, slots=slots, seqs=nothing, offsets=nothing
                )
                suffixes = [plan.extent(writer, slot).suffix for slot in slots.tolist()]
                for _ in pool.map(_sync, list(pool.map(write, suffixes, views))):
                    done(plan.record_bytes)


def _sync(file: TargetFile) -> None:
    try:
        file.sync()
    finally:
        file.close()


class TargetFiles:
    """Makes the files of a plan on a storage, and opens them for the writers."""

    def __init__(self, storage: Storage, plan: Plan) -> None:
        self.storage = storage
        self.plan = plan
        # On some drives, records that are not multiples of a page cannot be prefilled with O_DIRECT.
        self._direct = plan.record_bytes % mmap.PAGESIZE == 0

    def create(self, progress: PrefillProgress | None = None) -> None:
        """Make superblocks, prefill, names and empty append files durable, with their directory and its
        ancestors.

        The storage must be locked and its contents checked (`safety_checks.check_contents`). The main file of
        an earlier run is overwritten in place, and its other files are removed. The superblocks are written
        first, so that an incomplete target never looks like the earlier run with lost data. `progress` gets
        bytes done and bytes in all. Raises OSError.
        """
        total = 2 * limits.SUPERBLOCK_BYTES
        total += sum(extent.slots * extent.record_bytes for extent in self.plan.extents())
        total += self.plan.writers * self.plan.prefilled_names * self.plan.record_bytes
        report = _Counter(total, progress)
        main = self.storage.open_bulk(MAIN, create=self.storage.kind == "file", direct=self._direct)
        try:
            self._write_superblocks(main, report)
            for suffix in self.storage.suffixes():
                self.storage.unlink(suffix)
                report.add(0)  # lets the callback end the prefill, because there may be very many files
            for extent in self.plan.extents():
                if extent.suffix == MAIN:
                    self._prefill(main, extent, report)
            main.sync()
        finally:
            main.close()
        self._create_siblings(report)
        prefill_names(self.storage, self.plan, report.add)
        self.storage.sync_directory(ancestors=True)

    def open_writer(self, writer: int, generation: int = 0, *, create: bool = False) -> TargetFile:
        """Open the file of `writer` with a new descriptor. The control arm's file is never synced.

        `create` makes the file of an append writer's next generation. The caller must sync file and
        directory.
        """
        suffix = self.plan.extent(writer, generation).suffix
        if writer == self.plan.control_writer:
            return self.storage.open_bulk(suffix)
        return self.storage.open(suffix, plan=self.plan, create=create)

    def try_writer(self) -> None:
        """Open and close a file as writers do. Raises UsageError if this system lacks the sync method or
        O_DIRECT, before a writer fails because of that."""
        by_name = self.plan.contract.by_name  # then the file of a name may not exist: use the main file
        suffix = MAIN if by_name else self.plan.extent(0).suffix
        self.storage.open(suffix, plan=self.plan).close()

    def _write_superblocks(self, main: TargetFile, report: _Counter) -> None:
        with mmap.mmap(-1, limits.SUPERBLOCK_BYTES) as buffer:
            for offset in self.plan.superblock_offsets:
                buffer[:] = superblock(self.plan, offset)
                main.pwrite(buffer, offset)
                report.add(len(buffer))
        main.sync()
        if self.storage.kind == "file" and main.size() > self.plan.main_bytes:
            main.truncate(self.plan.main_bytes)

    def _create_siblings(self, report: _Counter) -> None:
        for extent in self.plan.extents():
            if extent.suffix != MAIN:
                control = self.storage.open_bulk(extent.suffix, create=True)
                try:
                    self._prefill(control, extent, report)
                    control.sync()
                finally:
                    control.close()
        if self.plan.contract.layout == "log":
            for writer in range(self.plan.writers):
                empty = self.storage.open_bulk(self.plan.extent(writer).suffix, create=True)
                try:
                    empty.sync()
                finally:
                    empty.close()

    def _prefill(self, file: TargetFile, extent: Extent, report: _Counter) -> None:
        """Write seq 0 to every slot. One thread writes a chunk while the next chunk is stamped."""
        stamper = Stamper(self.plan)
        per_chunk = max(1, PREFILL_CHUNK_BYTES // extent.record_bytes)
        buffers = [mmap.mmap(-1, per_chunk * extent.record_bytes) for _ in range(2)]
        written: Future[None] | None = None
        with ThreadPoolExecutor(max_workers=1) as pool:
            for number, first in enumerate(range(0, extent.slots, per_chunk)):
                slots = np.arange(first, min(first + per_chunk, extent.slots), dtype=U64) + U64(
                    extent.first_slot
                )
                view = memoryview(buffers[number % 2])[: len(slots) * extent.record_bytes]
                out = np.frombuffer(view, dtype=U64).reshape(len(slots), -1, SECTOR_WORDS)
                stamper.stamp_extent(out, extent, slots=slots, seqs=np.zeros_like(slots))
                if written is not None:
                    written.result()
                written = pool.submit(self._write_chunk, file, view, extent.offset_of(int(slots[0])), report)
            if written is not None:
                written.result()

    @staticmethod
    def _write_chunk(file: TargetFile, view: memoryview, offset: int, report: _Counter) -> None:
        file.pwrite(view, offset)
        report.add(len(view))


class _Counter:
    """Reports the bytes done so far, if a callback was given."""

    def __init__(self, total: int, progress: PrefillProgress | None) -> None:
        self._total = total
        self._done = 0
        self._progress = progress

    def add(self, size_bytes: int) -> None:
        self._done += size_bytes
        if self._progress is not None:
            self._progress(self._done, self._total)
