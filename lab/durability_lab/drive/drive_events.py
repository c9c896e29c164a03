"""What happens to a drive behind nbdkit, and when it last promised something: a small file that nbdkit's
process and the lab's have both mapped, so that neither waits for the other and a SIGKILL loses nothing.

    failing 8 | reads 8 | flushed 8 | then, PLACES times: run 8, writer 8, promised 8

`failing`: 0, 1 (the next request gets EIO) or 2 (every one does). `reads`: how many reads from now the drive
loses its power, with 1 at the next one; 0: at none. `flushed`: when a flush last returned that covered any
write. `promised`: when the drive last promised an operation of this writer of this run, by its flush or,
without a volatile cache, its write. Times are of CLOCK_MONOTONIC, in ns. Numbers are little-endian.

Refuses to know more of a record than where its header has kind, run, writer and seq.
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
    """The file at `path`, which is made where there is none. Raises OSError."""

    def __init__(self, path: str) -> None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, _BYTES)  # a page without room behind it would be a SIGBUS
            self._map = mmap.mmap(file, _BYTES)
        finally:
            os.close(file)

    def close(self) -> None:
        """Let go of the file; of no use from then on."""
        self._map.close()

    def happen(self, *, failing: Failing | None = None, reads: int | None = None) -> None:
        """Have something happen from now on; what is None stays."""
        if failing is not None:
            _NUMBER.pack_into(self._map, _FAILING, failing)
        if reads is not None:
            _NUMBER.pack_into(self._map, _READS, reads)

    def request(self, *, read: bool) -> None:
        """Called by the drive at each request. Raises OSError or ends the process where that happens now."""
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
        """Note that the drive makes a promise now to these writers of these runs."""
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
        """See the module; 0: never."""
        return int(_NUMBER.unpack_from(self._map, _FLUSHED)[0])

    def promised_ns(self) -> dict[tuple[int, int], int]:
        """By run and writer; see the module."""
        places = (_PLACE.unpack_from(self._map, at) for at in range(_PLACES_AT, _BYTES, _PLACE.size))
        return {(run, writer): at_ns for run, writer, at_ns in places if run}


class TimedDriveLog(DriveLog):
    """A `DriveLog` that also notes in `events` when promises are made. `volatile`: they are made by flushes,
    and not by each write."""

    def __init__(self, path: str, events: DriveEvents, *, volatile: bool) -> None:
        super().__init__(path)
        self._events = events
        self._volatile = volatile
        self._unpromised: set[tuple[int, int]] = set()
        self._dirty = False

    def wrote(self, offset: int, data: bytes) -> None:
        """As of `DriveLog`."""
        super().wrote(offset, data)
        self._dirty = True
        if _MAGIC in data:
            self._unpromised.update(_operations(data))
        if not self._volatile:
            self._promise()

    def flushed(self) -> None:
        """As of `DriveLog`."""
        super().flushed()
        if self._dirty:
            self._promise()

    def _promise(self) -> None:
        self._events.promise(self._unpromised)
        self._unpromised.clear()
        self._dirty = False


def _operations(data: bytes) -> set[tuple[int, int]]:
    """The runs and writers whose operations these sectors are; the prefill is none."""
    found = set()
    for start in range(0, len(data), SECTOR_BYTES):
        magic, _, kind, _, run, _, writer, _, seq = _HEADER.unpack_from(data, start)
        if magic == _MAGIC and kind == _KIND_RECORD and seq:
            found.add((run, writer))
    return found
