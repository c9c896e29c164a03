"""Reading a target back: finds each unreadable block, and reads the next chunk meanwhile.

An I/O error of a large read says little, so it is narrowed down to logical blocks. Only errors that mean
"the medium does not give this back" are narrowed; a drive that went away, or a link that timed out, is an
error of the scan, never lost data. Nothing is written, and nothing is asked twice through one descriptor:
who doubts an answer opens another `Reader`.
"""

from __future__ import annotations

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
_ALIGNMENT_BYTES = (
    mmap.PAGESIZE
)  # enough for O_DIRECT on every drive, and what the page cache asks for at least
_SUPERBLOCK_PIECE_BYTES = 4096  # what every drive can be asked for; the rest of a copy holds the plan too

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes `start` to before `end`, counted from the start of what was read."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a read gave: fewer bytes than asked for where the file ends; the `unreadable` spans are zeroed."""

    data: memoryview
    unreadable: tuple[ByteRange, ...]


def aligned_buffer(length: int = CHUNK_BYTES) -> memoryview:
    """Writable bytes at a page boundary, enough for `Reader.read` of `length` bytes at any offset."""
    return memoryview(mmap.mmap(-1, length + 2 * _ALIGNMENT_BYTES))


def block_bytes_of(facts: Facts) -> int:
    """The smallest piece that every drive beneath can be asked for."""
    return max((drive.logical_block_bytes for drive in facts.drives), default=limits.SECTOR_BYTES)


class Reader:
    """One file of the target, open for reading; a context manager.

    `tick` is called, from whichever thread reads, after every read that returned, with data or an error: a
    reader whose ticks stop has stalled.
    """

    def __init__(self, storage: Storage, suffix: str, *, block_bytes: int, tick: Callable[[], None]) -> None:
        self._file = storage.open(suffix)
        # The page cache reads whole pages, so a smaller unreadable piece cannot be found.
        self._block_bytes = block_bytes if self._file.direct else max(block_bytes, _ALIGNMENT_BYTES)
        self._tick = tick

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def read(self, buffer: memoryview, offset: int, length: int) -> Content:
        """`length` bytes from byte `offset`, in `buffer`. Raises OSError for any error that is not the
        medium's.
        """
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
        """Read until `buffer` is full or the file ends: how many bytes are there, and which are
        unreadable.
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
                break  # the end of the file; to ask on would be unaligned
        return present, []

    def _narrow(self, buffer: memoryview, offset: int, start: int) -> tuple[int, list[ByteRange]]:
        """As `_fill` from `start` on, halving what fails until single blocks do."""
        unreadable: list[ByteRange] = []
        present = start
        pending = [ByteRange(start, len(buffer))]
        while pending:
            span = pending.pop()
            blocks = (span.end - span.start) // self._block_bytes
            try:
                got = self._file.pread_into(buffer[span.start : span.end], offset + span.start)
                self._tick()
            except OSError as error:
                if error.errno not in MEDIUM_ERRORS:
                    raise
                self._tick()
                if blocks > 1:
                    middle = span.start + blocks // 2 * self._block_bytes
                    pending += [ByteRange(middle, span.end), ByteRange(span.start, middle)]
                    continue
                buffer[span.start : span.end] = bytes(span.end - span.start)
                unreadable.append(span)
                got = span.end - span.start
            if got and got % limits.SECTOR_BYTES == 0 and span.start + got < span.end:
                pending.append(
                    ByteRange(span.start + got, span.end)
                )  # a read may end early where the next one fails
            if got:  # beyond the end of the file nothing is present, not even what came before in the buffer
                present = max(present, span.start + got)
        return present, unreadable


class ClosedReader:
    """Stands for the `Reader` of a file that an I/O error keeps from being opened: nothing of it is read."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick

    def __enter__(self) -> ClosedReader:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def read(self, buffer: memoryview, offset: int, length: int) -> Content:
        """As `Reader.read`, all of it unreadable."""
        self._tick()
        buffer[:length] = bytes(length)
        return Content(data=buffer[:length], unreadable=(ByteRange(0, length),))


def opened(
    storage: Storage, suffix: str, *, block_bytes: int, tick: Callable[[], None]
) -> Reader | ClosedReader:
    """A reader of one file of the target. Raises OSError for any error that is not the medium's."""
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

    Four reads at a time keep a drive busy between one and the next. Each result may use its buffer until the
    next result is asked for.
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
    """What the copies hold, None for one that holds no plan; no copies where the target is gone. One
    None stands for a target that an I/O error of the medium keeps from being opened.

    The second copy ends a file; on a device its place is known only from the plan, `known` or in the first
    copy. Raises FormatError for a plan of another release, OSError where the target cannot be opened.
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
