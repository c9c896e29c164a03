"""Reads a target back: finds each unreadable block, and reads ahead while the caller judges.

An I/O error of a large read says little, so the reader narrows it down to logical blocks. It does so only for
medium errors. A drive that went away, or a link that timed out, is an error of the scan, never lost data.
This module writes nothing. To read a place again, open another `Reader`, which has a new descriptor.
"""

from __future__ import annotations

import errno
import mmap
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from types import TracebackType
from typing import TypeVar

from durability import limits
from durability.formats.facts import Facts
from durability.formats.plan import MAIN, Plan
from durability.formats.record import read_superblock
from durability_client.target.storage import MEDIUM_ERRORS, Storage

CHUNK_BYTES = 2 << 20
# Alignment that O_DIRECT accepts on every drive. It is also the smallest read of the page cache.
_ALIGNMENT_BYTES = mmap.PAGESIZE
_SUPERBLOCK_PIECE_BYTES = 4096  # every drive accepts such reads; other parts of a copy hold the plan, too

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes from `start` to before `end`, counted from the start of a read."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Result of a read. `data` is shorter at the end of the file. The `unreadable` spans are zeroed."""

    data: memoryview
    unreadable: tuple[ByteRange, ...]


def aligned_buffer(length: int = CHUNK_BYTES) -> memoryview:
    """Writable bytes at a page boundary, enough for `Reader.read` of `length` bytes at any offset."""
    return memoryview(mmap.mmap(-1, length + 2 * _ALIGNMENT_BYTES))


def block_bytes_of(facts: Facts) -> int:
    """The smallest read that all drives below the target accept."""
    return max((drive.logical_block_bytes for drive in facts.drives), default=limits.SECTOR_BYTES)


class Reader:
    """One file of the target, open for reading; a context manager.

    `tick` is called, from whichever thread reads, after every read that returned, with data or an error: a
    reader whose ticks stop has stalled.
    """

    def __init__(self, storage: Storage, suffix: str, *, block_bytes: int, tick: Callable[[], None]) -> None:
        self._file = storage.open(suffix)
        # The page cache reads whole pages, so smaller unreadable spans cannot be found.
        self._block_bytes = block_bytes if self._file.direct else max(block_bytes, _ALIGNMENT_BYTES)
        self._tick = tick

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def read(self, buffer: memoryview, offset: int, length: int) -> Content:
        """Read `length` bytes from byte `offset` into `buffer`. Raises OSError for all but medium errors."""
        lead = offset % _ALIGNMENT_BYTES
        window = -(-(lead + length) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        present, unreadable = self._fill(buffer[:window], offset - lead)
        end = min(present, lead + length)
        spans = (ByteRange(max(span.start, lead) - lead, min(span.end, end) - lead) for span in unreadable)
        return Content(
            data=buffer[lead : max(lead, end)],
            unreadable=tuple(span for span in spans if span.start < span.end),
        )

    def _fill(self, buffer: memoryview, offset: int) -> tuple[int, list[ByteRange]]:
        """Read until `buffer` is full or the file ends. Returns the number of bytes present and the
        unreadable spans.
        """
        present = 0
        while present < len(buffer):
            try:
                got = self._file.pread_into(buffer[present:], offset + present)
            except OSError as error:
                if error.errno not in MEDIUM_ERRORS:
                    raise
                return self._narrow(buffer, offset, present)
            self._tick()
            present += got
            if got == 0 or got % limits.SECTOR_BYTES:
                break  # the end of the file; the next read would be unaligned
        return present, []

    def _narrow(self, buffer: memoryview, offset: int, start: int) -> tuple[int, list[ByteRange]]:
        """Like `_fill`, from `start` on. Halves each span that fails, until single blocks remain."""
        unreadable: list[ByteRange] = []
        block_bytes = self._block_bytes  # another thread may raise it meanwhile
        present = start
        pending = [ByteRange(start, len(buffer))]
        while pending:
            span = pending.pop()
            blocks = (span.end - span.start) // block_bytes
            try:
                got = self._file.pread_into(buffer[span.start : span.end], offset + span.start)
                self._tick()
            except OSError as error:
                if error.errno == errno.EINVAL and block_bytes < _ALIGNMENT_BYTES:
                    # A layer above the drives, such as LUKS2 or dm-integrity, has larger blocks.
                    self._block_bytes = max(self._block_bytes, 2 * block_bytes)
                    return self._narrow(buffer, offset, start)
                if error.errno not in MEDIUM_ERRORS:
                    raise
                self._tick()
                if blocks > 1:
                    middle = span.start + blocks // 2 * block_bytes
                    pending += [ByteRange(middle, span.end), ByteRange(span.start, middle)]
                    continue
                buffer[span.start : span.end] = bytes(span.end - span.start)
                unreadable.append(span)
                got = span.end - span.start
            if got and got % limits.SECTOR_BYTES == 0 and span.start + got < span.end:
                # A read may end early in front of an unreadable block.
                pending.append(ByteRange(span.start + got, span.end))
            if got:  # beyond the end of the file, the buffer holds only old data
                present = max(present, span.start + got)
        return present, unreadable


class ClosedReader:
    """Replaces the `Reader` of a file that cannot be opened because of an I/O error."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick

    def __enter__(self) -> ClosedReader:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing, because nothing is open."""

    def read(self, buffer: memoryview, offset: int, length: int) -> Content:
        """Like `Reader.read`, but all bytes are unreadable."""
        self._tick()
        buffer[:length] = bytes(length)
        return Content(data=buffer[:length], unreadable=(ByteRange(0, length),))


def opened(
    storage: Storage, suffix: str, *, block_bytes: int, tick: Callable[[], None]
) -> Reader | ClosedReader:
    """A reader of one file of the target. Raises OSError for all but medium errors."""
    try:
        return Reader(storage, suffix, block_bytes=block_bytes, tick=tick)
    except OSError as error:
        if error.errno not in MEDIUM_ERRORS:
            raise
        return ClosedReader(tick)


def read_ahead(
    jobs: Iterable[Job], read: Callable[[Job, memoryview], Result], buffers: Sequence[memoryview]
) -> Iterator[Result]:
    """The results of `read(job, buffer)` in the order of `jobs`, read by threads while the caller judges.

    Four concurrent reads keep the drive busy. Each result may use its buffer until the caller requests the
    next result.
    """
    free = cycle(buffers)
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(max_workers=4, thread_name_prefix="read-ahead") as pool:
        for job in jobs:
            pending.append(pool.submit(read, job, next(free)))
            if len(pending) == len(buffers):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def read_superblocks(storage: Storage, known: Plan | None) -> tuple[Plan | None, ...]:
    """The plans in both copies of the superblock, None for a copy without a plan.

    Empty if the target is gone. A single None if a medium error prevents the reads. The second copy is at the
    end of a file. On a device its place is known only from a plan: `known`, or that of the first copy. Raises
    FormatError for a plan of another release, and OSError if the target cannot be opened.
    """
    try:
        return _superblocks(storage, known) if storage.exists(MAIN) else ()
    except OSError as error:
        if error.errno not in MEDIUM_ERRORS:
            raise
        return (None,)


def _superblocks(storage: Storage, known: Plan | None) -> tuple[Plan | None, ...]:
    size = storage.size(MAIN)
    buffer = aligned_buffer(limits.SUPERBLOCK_BYTES)
    plans: list[Plan | None] = []
    with Reader(storage, MAIN, block_bytes=_SUPERBLOCK_PIECE_BYTES, tick=lambda: None) as reader:
        plans.append(read_superblock(reader.read(buffer, 0, limits.SUPERBLOCK_BYTES).data))
        for offset in _second_offsets(storage, size, known or plans[0]):
            plans.append(read_superblock(reader.read(buffer, offset, limits.SUPERBLOCK_BYTES).data))
    return tuple(plans)


def _second_offsets(storage: Storage, size: int, plan: Plan | None) -> Iterator[int]:
    if plan is not None:
        yield plan.superblock_offsets[1]
    elif storage.kind == "file" and size >= 2 * limits.SUPERBLOCK_BYTES:
        yield size - limits.SUPERBLOCK_BYTES
