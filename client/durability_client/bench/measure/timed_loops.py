"""The timed loops: the system calls of one operation of each workload, and the clock readings.

Offsets, blocks and descriptors are prepared before. Between a write and its sync there is one clock reading.
Results of the calls are checked after the last reading. A loop goes through the given places, and ends early
after an operation that ended at or after `until_ns`. Each loop returns the index of the next row of clock
readings (see `clock_readings`). No call is retried: the first error, including a short read or write, is
raised as OSError.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

# A block and its offset, or for `create` its file number. Without a block, the operation is a read.
Place: TypeAlias = "tuple[memoryview, int]"
MixedPlace: TypeAlias = "tuple[memoryview | None, int]"
Write: TypeAlias = Callable[[int, memoryview, int], int]
Sync: TypeAlias = Callable[[int], None]
Step: TypeAlias = "Callable[[Handles, Sequence[Any], memoryview, int, int], int]"

_SPIN_NS = 60_000  # sleeps end some tens of microseconds late, so the end of a pause is busy waiting
_NAP_NS_MAX = 100_000_000
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(slots=True, kw_only=True)
class Handles:
    """Descriptors, functions and buffers for the loops."""

    fd: int  # the file, or for `create` its directory
    write: Write
    sync: Sync | None  # None: no sync call after a write
    block_bytes: int
    buffer: memoryview  # for reads
    flags: int = 0
    spun_ns: int = 0  # time spent on busy waiting


def commit(io: Handles, places: Sequence[Place], words: memoryview, at: int, until_ns: int) -> int:
    """Write and sync; one operation per place."""
    fd, write, sync, size, clock = io.fd, io.write, io.sync, io.block_bytes, time.monotonic_ns
    assert sync is not None
    for block, offset in places:
        began = clock()
        written = write(fd, block, offset)
        wrote = clock()
        sync(fd)
        ended = clock()
        if written != size:
            raise short("write", written, size, offset)
        words[at] = began
        words[at + 1] = wrote
        words[at + 2] = ended
        at += 3
        if ended >= until_ns:
            break
    return at


def write_only(io: Handles, places: Sequence[Place], words: memoryview, at: int, until_ns: int) -> int:
    """Write without a sync call; the write may sync itself."""
    fd, write, size, clock = io.fd, io.write, io.block_bytes, time.monotonic_ns
    for block, offset in places:
        began = clock()
        written = write(fd, block, offset)
        ended = clock()
        if written != size:
            raise short("write", written, size, offset)
        words[at] = began
        words[at + 1] = words[at + 2] = ended
        at += 3
        if ended >= until_ns:
            break
    return at


def write_all(io: Handles, places: Sequence[Place]) -> None:
    """Do the writes of a group, which `group` times together."""
    fd, write, size = io.fd, io.write, io.block_bytes
    for block, offset in places:
        written = write(fd, block, offset)
        if written != size:
            raise short("write", written, size, offset)


def group(
    io: Handles, writes: int, batches: Callable[[int], Sequence[Place]], words: memoryview, at: int
) -> int:
    """One operation: `writes` writes, then a sync. `batches(n)` returns the next places, at most n."""
    clock = time.monotonic_ns
    assert io.sync is not None
    places = batches(writes)
    began = clock()
    write_all(io, places)
    left = writes - len(places)
    while left:
        places = batches(left)
        write_all(io, places)
        left -= len(places)
    wrote = clock()
    io.sync(io.fd)
    ended = clock()
    words[at] = began
    words[at + 1] = wrote
    words[at + 2] = ended
    return at + 3


def read_or_commit(
    io: Handles, places: Sequence[MixedPlace], words: memoryview, at: int, until_ns: int
) -> int:
    """Read if the place has no block; otherwise write, and sync if there is a sync call."""
    fd, write, sync, size, clock = io.fd, io.write, io.sync, io.block_bytes, time.monotonic_ns
    buffers = [io.buffer]
    for block, offset in places:
        if block is None:
            wrote = 0
            began = clock()
            done = os.preadv(fd, buffers, offset)
            ended = clock()
        else:
            began = clock()
            done = write(fd, block, offset)
            ended = wrote = clock()
            if sync is not None:
                sync(fd)
                ended = clock()
        if done != size:
            raise short("read" if block is None else "write", done, size, offset)
        words[at] = began
        words[at + 1] = wrote
        words[at + 2] = ended
        at += 3
        if ended >= until_ns:
            break
    return at


def create(io: Handles, places: Sequence[Place], words: memoryview, at: int, until_ns: int) -> int:
    """Make a new file, write, sync and close it, and sync its directory."""
    directory, write, sync, size, clock = io.fd, io.write, io.sync, io.block_bytes, time.monotonic_ns
    flags = _CREATE | io.flags
    for block, number in places:
        name = f"{number:08d}"
        began = clock()
        fd = os.open(name, flags, 0o600, dir_fd=directory)
        written = write(fd, block, 0)
        wrote = clock()
        if sync is not None:
            sync(fd)
        os.close(fd)
        if sync is not None:
            os.fsync(directory)
        ended = clock()
        if written != size:
            raise short("write", written, size, 0)
        words[at] = began
        words[at + 1] = wrote
        words[at + 2] = ended
        at += 3
        if ended >= until_ns:
            break
    return at


def sync_only(io: Handles, places: Sequence[Place], words: memoryview, at: int, until_ns: int) -> int:
    """Sync a file to which nothing was written."""
    fd, sync, clock = io.fd, io.sync, time.monotonic_ns
    assert sync is not None
    for _ in places:
        began = clock()
        sync(fd)
        ended = clock()
        words[at] = words[at + 1] = began
        words[at + 2] = ended
        at += 3
        if ended >= until_ns:
            break
    return at


class Paced:
    """The open loop: an operation is due every `pace_ns` from `start_ns` on, even if the last one has not
    ended. Its latency counts from its due time. `step`: the loop that does a single operation.

    All operations that are due before `until_ns` are done, even if late, so that a stall does not hide the
    delay of later ones. If the target cannot keep up, the loop ends after twice the planned time.
    """

    def __init__(self, step: Step, *, start_ns: int, until_ns: int, pace_ns: int) -> None:
        self._step = step
        self._due_ns = start_ns
        self._until_ns = until_ns
        self._give_up_ns = 2 * until_ns - start_ns
        self._pace_ns = pace_ns
        self.done = False

    def __call__(
        self, io: Handles, places: Sequence[Place], words: memoryview, at: int, until_ns: int
    ) -> int:
        """Do one operation at each of `places` when it is due. Clock readings go into `words` from `at` on.

        Returns the index after the last row. Ends early, with `done` set, when no operation is due any more.
        """
        for place in places:
            self._wait(io)
            at = self._step(io, (place,), words, at, until_ns)
            words[at - 3] = self._due_ns
            self._due_ns += self._pace_ns
            if self._due_ns >= self._until_ns or words[at - 1] >= self._give_up_ns:
                self.done = True
                break
        return at

    def _wait(self, io: Handles) -> None:
        clock = time.monotonic_ns
        while (left_ns := self._due_ns - clock()) > _SPIN_NS:
            time.sleep(min(left_ns - _SPIN_NS, _NAP_NS_MAX) / 1e9)
        began = now = clock()
        while now < self._due_ns:
            now = clock()
        io.spun_ns += now - began


def short(what: str, done: int, size: int, offset: int) -> OSError:
    """The error for a short call. A short write means a full target, since no signal can interrupt it (see
    `job_processes`). A short read means the end of the file."""
    return OSError(
        errno.ENOSPC if what == "write" else errno.EIO,
        f"short {what} at offset {offset}: {done} of {size} bytes",
    )
