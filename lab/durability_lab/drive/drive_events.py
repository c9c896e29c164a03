"""A small shared file with events for a drive behind nbdkit and the times of the drive's promises.

nbdkit's process and the lab's process both map the file. Neither waits for the other, and a SIGKILL loses
nothing.

    failing 8 | reads 8 | flushed 8 | then, PLACES times: run 8, writer 8, promised 8

    failing   0, 1 (the next request gets EIO) or 2 (every request gets EIO)
    reads     after how many reads the drive loses its power: 1 at the next read, 0 never
    flushed   when the drive last promised any writes; 0 never
    promised  when the drive last promised an operation of this writer of this run

A flush promises the writes before it; without a volatile cache, each write is promised at once. With a
volatile cache, a FUA write is noted only at the next flush. Times are those of CLOCK_MONOTONIC, in ns.
Numbers are little-endian.

This module knows only where a record's header has magic, kind, run, writer and seq.
"""

from __future__ import annotations

import errno
import mmap
import os
import signal
import struct
import time
from typing import Final, Literal, TypeAlias

from durability_lab.drive.drive_log import SECTOR_BYTES, DriveLog

Failing: TypeAlias = Literal[0, 1, 2]
NOT: Final = 0
ONCE: Final = 1
LASTING: Final = 2
PLACES: Final = 1024

_NUMBER = struct.Struct("<Q")
_PLACE = struct.Struct("<QQQ")
_FAILING, _READS, _FLUSHED, _PLACES_AT = 0, 8, 16, 24
_BYTES = _PLACES_AT + PLACES * _PLACE.size
_HEADER = struct.Struct("<4sBBHQIIQQ")  # magic, version, kind, sector, run, target, writer, slot, seq
_MAGIC = b"DURB"
_KIND_RECORD = 1


class DriveEvents:
    """The file at `path`, which is created if missing. Raises OSError."""

    def __init__(self, path: str) -> None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, _BYTES)  # a mapped page without allocated space would give SIGBUS
            self._map = mmap.mmap(file, _BYTES)
        finally:
            os.close(file)

    def close(self) -> None:
        """Close the file; the object cannot be used after that."""
        self._map.close()

    def happen(self, *, failing: Failing | None = None, reads: int | None = None) -> None:
        """Set `failing` and `reads` from now on; a value that is None stays unchanged."""
        if failing is not None:
            _NUMBER.pack_into(self._map, _FAILING, failing)
        if reads is not None:
            _NUMBER.pack_into(self._map, _READS, reads)

    def request(self, *, read: bool) -> None:
        """Called by the drive at each request. Raises OSError or kills the process if that event is due."""
        (failing,) = _NUMBER.unpack_from(self._map, _FAILING)
        if failing:
            if failing == ONCE:
                self.happen(failing=NOT)
            raise OSError(errno.EIO, "the drive failed this request")
        if read and (left := _NUMBER.unpack_from(self._map, _READS)[0]):
            self.happen(reads=left - 1)
            if left == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    def promise(self, made: set[tuple[int, int]]) -> None:
        """Note the present time as that of a promise to these writers of these runs, each (run, writer)."""
        now_ns = time.monotonic_ns()
        _NUMBER.pack_into(self._map, _FLUSHED, now_ns)
        for run, writer in made:
            for at in range(_PLACES_AT, _BYTES, _PLACE.size):
                place = _PLACE.unpack_from(self._map, at)
                if not place[0] or place[:2] == (run, writer):
                    _PLACE.pack_into(self._map, at, run, writer, now_ns)
                    break

    @property
    def flushed_ns(self) -> int:
        """When the drive last promised any write, in ns of CLOCK_MONOTONIC; 0 if never."""
        return int(_NUMBER.unpack_from(self._map, _FLUSHED)[0])

    def promised_ns(self) -> dict[tuple[int, int], int]:
        """When the drive last promised an operation, in ns of CLOCK_MONOTONIC, by run and writer."""
        places = (_PLACE.unpack_from(self._map, at) for at in range(_PLACES_AT, _BYTES, _PLACE.size))
        return {(run, writer): at_ns for run, writer, at_ns in places if run}


class TimedDriveLog(DriveLog):
    """A `DriveLog` that also notes in `events` when promises are made. `volatile`: promises are made by
    flushes, not by each write."""

    def __init__(self, path: str, events: DriveEvents, *, volatile: bool) -> None:
        super().__init__(path)
        self._events = events
        self._volatile = volatile
        self._unpromised: set[tuple[int, int]] = set()
        self._dirty = False

    def wrote(self, offset: int, data: bytes) -> None:
        """As in `DriveLog`."""
        super().wrote(offset, data)
        self._dirty = True
        if _MAGIC in data:
            self._unpromised.update(_operations(data))
        if not self._volatile:
            self._promise()

    def flushed(self) -> None:
        """As in `DriveLog`."""
        super().flushed()
        if self._dirty:
            self._promise()

    def _promise(self) -> None:
        self._events.promise(self._unpromised)
        self._unpromised.clear()
        self._dirty = False


def _operations(data: bytes) -> set[tuple[int, int]]:
    """Run and writer of each operation in these sectors; the prefill (seq 0) is not an operation."""
    found = set()
    for start in range(0, len(data), SECTOR_BYTES):
        magic, _, kind, _, run, _, writer, _, seq = _HEADER.unpack_from(data, start)
        if magic == _MAGIC and kind == _KIND_RECORD and seq:
            found.add((run, writer))
    return found
