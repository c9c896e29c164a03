"""One job of a cell: its file, its blocks, the order of its places, and the loop for the cell's workload.

Resources are opened before the job's first round and closed after its last. Between two operations the job
only takes the next places from lists. Errors are passed on, for example if the system lacks a call or the
target is full.
"""

from __future__ import annotations

import mmap
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from durability.bench.cells import Cell
from durability.formats.mixing import U64, combine, stream
from durability.formats.plan import WRITE_THROUGH_METHODS
from durability.formats.schedule import Schedule
from durability_client.bench.measure import timed_loops
from durability_client.bench.measure.clock_readings import Recorded, Recorder
from durability_client.bench.measure.payload import Payload
from durability_client.bench.measure.timed_loops import Handles, Paced, Step, Sync
from durability_client.target.kernel_storage import sync_call

_PLACES = 4096  # places computed at a time
_BIN_NS, _BIN_LONG_NS = 100_000_000, 1_000_000_000
_LONG_S = 60.0  # rounds of at least this duration have bins of one second


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask:
    """The task of one job of `cell`: it uses the `span_bytes` from `offset_bytes` of the file or device
    `path`, or for `create` the directory `path`. `seed` determines order and data."""

    cell: Cell
    path: str
    offset_bytes: int
    span_bytes: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The work of one job in a round. Processor times are in microseconds, without busy waiting."""

    recorded: Recorded
    user_us: float
    system_us: float


def bin_ns_of(cell: Cell) -> int:
    """Length of the bins in which the operations of a round are counted, in ns."""
    return _BIN_NS if cell.seconds < _LONG_S else _BIN_LONG_NS


class Job:
    """One job; the caller must `close` it. `look` is called every few hundred operations. Raises OSError."""

    def __init__(self, task: JobTask, look: Callable[[], None]) -> None:
        cell = self._cell = task.cell
        self._look = look
        self._pool = Payload(cell.data, block_bytes=cell.block_bytes, seed=combine(task.seed, 1))
        self._order = _Order(task)
        self._read_words = stream(combine(task.seed, 2), _PLACES) % U64(100) < U64(cell.read_percent)
        self._used = self._pool.count  # blocks used since the last stamping
        self._io = _open(task)
        self._step = _step_of(cell)

    def close(self) -> None:
        """Close the file without a sync."""
        os.close(self._io.fd)

    def sync(self) -> None:
        """Write back all data of this job, so that none are written during another measurement."""
        os.fsync(self._io.fd)

    def run(self, start_ns: int, until_ns: int) -> Stretch:
        """Do operations from `start_ns` (CLOCK_MONOTONIC) until one ends at or after `until_ns`."""
        cell, io = self._cell, self._io
        recorder = Recorder(start_ns=start_ns, bin_ns=bin_ns_of(cell), syncs=cell.has_sync)
        io.spun_ns = 0
        time.sleep(max(0, start_ns - time.monotonic_ns()) / 1e9)
        before = resource.getrusage(resource.RUSAGE_SELF)
        self._work(recorder, start_ns, until_ns)
        after = resource.getrusage(resource.RUSAGE_SELF)
        return Stretch(
            recorded=recorder.finish(),
            user_us=max(0.0, (after.ru_utime - before.ru_utime) * 1e6 - io.spun_ns / 1000),
            system_us=(after.ru_stime - before.ru_stime) * 1e6,
        )

    def _work(self, recorder: Recorder, start_ns: int, until_ns: int) -> None:
        cell, io, words = self._cell, self._io, recorder.words
        step, paced = self._step, None
        if cell.pace_us:
            step = paced = Paced(step, start_ns=start_ns, until_ns=until_ns, pace_ns=cell.pace_us * 1000)
        while not (paced.done if paced else recorder.at and words[recorder.at - 1] >= until_ns):
            room = recorder.room_for(self._pool.count)
            if cell.writes_per_sync > 1:
                recorder.at = timed_loops.group(io, cell.writes_per_sync, self._places, words, recorder.at)
            else:
                recorder.at = step(io, self._places(room), words, recorder.at, until_ns)
            self._look()

    def _places(self, most: int) -> Sequence[Any]:
        """The next places, at most `most`, each with a block that was not written before, or None to read."""
        if self._used == self._pool.count:
            self._pool.refresh()
            self._used = 0
        places = self._order.take(min(most, self._pool.count - self._used), self._start_over)
        blocks: list[memoryview | None] = list(self._pool.views[self._used : self._used + len(places)])
        self._used += len(places)
        if self._cell.read_percent:
            reads = self._read_words[: len(blocks)]
            self._read_words = np.roll(self._read_words, -len(blocks))
            blocks = [None if read else block for block, read in zip(blocks, reads.tolist(), strict=True)]
        return list(zip(blocks, places, strict=True))

    def _start_over(self) -> None:
        """Truncate a log that has filled its span, so that it starts again as an empty file."""
        if self._cell.workload == "append":
            os.ftruncate(self._io.fd, 0)
            os.fsync(self._io.fd)


class _Order:
    """The places of a job's operations, in order: offsets in bytes, or file numbers for `create`."""

    def __init__(self, task: JobTask) -> None:
        cell = task.cell
        self._create = cell.workload == "create"
        self._slots = max(1, task.span_bytes // cell.block_bytes)
        self._shuffled = cell.pattern == "random"
        self._schedule = Schedule(seed=task.seed, writer=0, slots=self._slots, shuffled=self._shuffled)
        self._offset_bytes = task.offset_bytes
        self._block_bytes = cell.block_bytes
        self._next_seq = 1
        self._laid_out: list[int] = []
        self._taken = 0

    def take(self, most: int, start_over: Callable[[], None]) -> list[int]:
        """The next places, at least one and at most `most`. `start_over` is called before each further
        pass."""
        if self._taken == len(self._laid_out):
            self._lay_out(start_over)
        places = self._laid_out[self._taken : self._taken + most]
        self._taken += len(places)
        return places

    def _lay_out(self, start_over: Callable[[], None]) -> None:
        done = self._next_seq - 1
        left = self._slots - done % self._slots  # places left in this pass
        if done and left == self._slots:
            start_over()
        count = _PLACES if self._create else min(_PLACES, left)
        seqs = np.arange(self._next_seq, self._next_seq + count, dtype=U64)
        self._next_seq += count
        if self._create:
            self._laid_out = seqs.tolist()
        else:
            slots = self._schedule.slot_of(seqs)
            self._laid_out = (slots * U64(self._block_bytes) + U64(self._offset_bytes)).tolist()
        self._taken = 0


def flags_of(cell: Cell) -> int:
    """The flags to open the cell's files, in addition to those for reading and writing."""
    flags = {"dsync": os.O_DSYNC, "osync": os.O_SYNC}.get(cell.sync, 0)
    return flags | (getattr(os, "O_DIRECT", 0) if cell.direct else 0)


def _open(task: JobTask) -> Handles:
    cell, sync = task.cell, _sync_of(task.cell)
    if cell.workload == "create":
        fd = os.open(task.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    else:
        fd = os.open(task.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags_of(cell))
    return Handles(
        fd=fd,
        write=os.pwrite,
        sync=sync,
        block_bytes=cell.block_bytes,
        buffer=memoryview(mmap.mmap(-1, cell.block_bytes)),
        flags=flags_of(cell),
    )


def _sync_of(cell: Cell) -> Sync | None:
    """The sync function that the loops call, or None."""
    return None if cell.sync == "none" else sync_call(cell.sync)


def _step_of(cell: Cell) -> Step:
    if cell.workload == "mix":
        return timed_loops.read_or_commit
    if cell.workload == "create":
        return timed_loops.create
    if cell.workload == "flush":
        return timed_loops.sync_only
    if cell.sync == "none" or cell.sync in WRITE_THROUGH_METHODS:
        return timed_loops.write_only
    return timed_loops.commit
