"""The timed loops: what one operation of each workload is, call by call, and when the clock is read.

Everything is prepared before: offsets, blocks, descriptors. Between a write and its sync there is one reading
of the clock, and what a call returned is looked at after the last reading. A loop goes through the places
that it is given and ends early once an operation has ended at or after `until_ns`; each returns the index
where the next row of clock readings belongs (see `clock_readings`). Nothing is retried: the first error, a
short read or write included, leaves the loop as OSError.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

# A block and where it goes; no block: a read. Of `create`, the number of the file.
Place: TypeAlias = "tuple[memoryview, int]"
MixedPlace: TypeAlias = "tuple[memoryview | None, int]"
Write: TypeAlias = Callable[[int, memoryview, int], int]
Sync: TypeAlias = Callable[[int], None]
Step: TypeAlias = "Callable[[Handles, Sequence[Any], memoryview, int, int], int]"

_SPIN_NS = 60_000  # a sleeper is woken some tens of microseconds late; the rest of the pause is spun away
_NAP_NS_MAX = 100_000_000
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(slots=True, kw_only=True)
class Handles:
    """What the loops call. `fd`: the file, or for `create` its directory; `sync` None: nothing is synced
    apart from the write. `buffer`: where reads go. `spun_ns`: time that was spent on waiting with open eyes.
    """

    fd: int
    write: Write
    sync: Sync | None
    block_bytes: int
    buffer: memoryview
    flags: int = 0
    spun_ns: int = 0


def commit(io: Handles, places: Sequence[Place], words: memoryview, at: int, until_ns: int) -> int:
    """Write, sync; one operation to a place."""
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
    """Write; nothing is synced, or the write syncs itself."""
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
    """The writes of a group, which are timed together by `group`."""
    fd, write, size = io.fd, io.write, io.block_bytes
    for block, offset in places:
        written = write(fd, block, offset)
        if written != size:
            raise short("write", written, size, offset)


def group(
    io: Handles, writes: int, batches: Callable[[int], Sequence[Place]], words: memoryview, at: int
) -> int:
    """One operation: `writes` writes, then a sync. `batches(n)` gives the next places, at most n."""
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
    """Read where a place has no block; else write, and sync if anything is synced."""
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
    """Make a new file, write it, sync it, close it, sync its directory."""
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
    """Sync a file in which nothing was written."""
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
    """The open loop: an operation is due every `pace_ns` from `start_ns` on, whether the last one has ended
    or not, and its latency counts from then. `step` is the loop that it is made of, used for one place.

    Every operation that is due before `until_ns` is done, also late: a stall must not hide those behind it.
    A target that cannot keep up at all is given the same time again, and no more.
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
        """Do one operation at each of `places` when it is due; latencies go into `words` from `at` on.

        Returns the index behind the last; ends early, with `done` set, once no operation is due any more.
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
    """A call that did less than it was asked to: a write, because there is no more room (no signal can cut it
    short, see `job_processes`); a read, because there is no more to read."""
    return OSError(
        errno.ENOSPC if what == "write" else errno.EIO,
        f"short {what} at offset {offset}: {done} of {size} bytes",
    )
