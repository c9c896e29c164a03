"""A drive that can lose power: media, a volatile write cache over it, and how the two work together.

The same model runs inside the test process (`simulated`) and as a real block device (`nbdkit_plugin`, which
embeds the system's Python 3.11): so this module imports the standard library only, and no other module of
this project.

    write --> volatile cache --(flush, FUA, or early by chance, or for want of room)--> media
    read  <-- volatile cache over media
    cut       the cache is gone; every later request raises EIO until `power_on`

What becomes of an unflushed write at a cut is drawn when the write arrives: it is kept (the drive happened to
write it back at once), torn (it wrote some of its sectors back) or lost (all of it waits in the cache). What
a drive does early it may do late, so nothing has to be decided at the cut itself, and killing the process
that holds a drive is as good a power cut as `cut`. The same seed and the same requests give the same damage.

Refuses requests that are not whole sectors or lie outside the drive; it never extends one. Sizes and offsets
in bytes.

To add a fault model: give `Behaviour` the field that turns it on, and let `Drive` ask for it where the fault
belongs, which is `_settle` (what a flush does), `_write_back` (how a sector reaches the media) or `power_on`.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

_CHUNK_BYTES = 64 << 10


class Media(Protocol):
    """What keeps its bytes without power."""

    @property
    def size_bytes(self) -> int:
        """How much it holds."""

    def read(self, offset: int, length: int) -> bytes:
        """The bytes there; zeros where nothing was written."""

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Put `data` there."""


class SparseMedia:
    """Media in memory, which costs only what was written."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._chunks: dict[int, bytearray] = {}

    def read(self, offset: int, length: int) -> bytes:
        """The bytes there; zeros where nothing was written."""
        out = bytearray(length)
        done = 0
        while done < length:
            number, start = divmod(offset + done, _CHUNK_BYTES)
            step = min(_CHUNK_BYTES - start, length - done)
            chunk = self._chunks.get(number)
            if chunk is not None:
                out[done : done + step] = memoryview(chunk)[start : start + step]
            done += step
        return bytes(out)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Put `data` there."""
        view = memoryview(data)
        done = 0
        while done < len(view):
            number, start = divmod(offset + done, _CHUNK_BYTES)
            step = min(_CHUNK_BYTES - start, len(view) - done)
            chunk = self._chunks.get(number)
            if chunk is None:
                chunk = self._chunks[number] = bytearray(_CHUNK_BYTES)
            chunk[start : start + step] = view[done : done + step]
            done += step


class FileMedia:
    """Media in a file, which outlives the process; the file's length is the size of the drive."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        """The bytes there; zeros where nothing was written."""
        return os.pread(self._descriptor, length, offset)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Put `data` there. Raises OSError where the file system under the media is full."""
        written = os.pwrite(self._descriptor, data, offset)
        if written != len(data):
            raise OSError(errno.EIO, f"media: {written} of {len(data)} bytes at {offset} were written")


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What a drive does with its cache.

    `volatile`: there is a cache that a cut empties; without one each write is on media before it is
    acknowledged. `honours_flush`: a flush (or FUA) returns only after the data is on media; a liar returns at
    once. `cache_bytes`: what the cache holds at most; beyond it the sectors that wait longest are written
    back. `kept` and `torn`: the chance that a write is written back at once, wholly or some of its sectors.
    """

    name: str
    volatile: bool
    honours_flush: bool
    cache_bytes: int
    kept: float
    torn: float


WRITE_THROUGH = Behaviour(
    name="write-through", volatile=False, honours_flush=True, cache_bytes=0, kept=1.0, torn=0.0
)
HONEST = Behaviour(name="honest", volatile=True, honours_flush=True, cache_bytes=32 << 20, kept=0.3, torn=0.1)
LIAR = Behaviour(name="liar", volatile=True, honours_flush=False, cache_bytes=1 << 20, kept=0.2, torn=0.05)

BEHAVIOURS = {behaviour.name: behaviour for behaviour in (WRITE_THROUGH, HONEST, LIAR)}


class Drive:
    """One drive; safe for several threads at once.

    `generation` counts how often it was powered on, as the kernel's `diskseq` does; `flushes` the flush
    requests since it was made. A sector is the unit that is never torn.
    """

    def __init__(self, media: Media, behaviour: Behaviour, *, seed: int, sector_bytes: int = 512) -> None:
        if media.size_bytes <= 0 or media.size_bytes % sector_bytes:
            raise ValueError(f"a drive of {media.size_bytes} bytes is not whole sectors of {sector_bytes}")
        self.behaviour = behaviour
        self.sector_bytes = sector_bytes
        self.generation = 1
        self.flushes = 0
        self._media = media
        self._cache: OrderedDict[int, bytes] = OrderedDict()  # by sector; the longest waiting first
        self._cache_sectors_max = behaviour.cache_bytes // sector_bytes
        # Of `random` only random() is used: its sequence from an integer seed is documented as stable.
        self._chance = random.Random(seed).random
        self._powered = True
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """How much the drive holds."""
        return self._media.size_bytes

    @property
    def dirty_bytes(self) -> int:
        """How much a cut at this moment would take from the cache."""
        return len(self._cache) * self.sector_bytes

    def read(self, offset: int, length: int) -> bytes:
        """The newest bytes there, whether cached or on media. Need not be whole sectors. Raises OSError."""
        with self._lock:
            self._check(offset, length)
            data = self._media.read(offset, length)
            if not self._cache:
                return data
            size = self.sector_bytes
            out = bytearray(data)
            for sector in range(offset // size, -(-(offset + length) // size)):
                cached = self._cache.get(sector)
                if cached is not None:
                    start = sector * size - offset
                    skip = max(0, -start)
                    end = min(start + size, length)
                    out[start + skip : end] = cached[skip : end - start]
            return bytes(out)

    def write(self, offset: int, data: bytes | bytearray | memoryview, *, fua: bool = False) -> None:
        """Accept a write; with `fua` (force unit access) as though flushed alone. Raises OSError."""
        with self._lock:
            self._check(offset, len(data))
            if offset % self.sector_bytes or len(data) % self.sector_bytes:
                raise OSError(
                    errno.EINVAL,
                    f"{len(data)} bytes at {offset} are not whole sectors of {self.sector_bytes}",
                )
            whole = bytes(data)
            behaviour = self.behaviour
            if not behaviour.volatile or (fua and behaviour.honours_flush):
                self._write_through(offset, whole)
                return
            fate = self._chance()
            if fate < behaviour.kept:
                self._write_through(offset, whole)
            else:
                self._write_back_later(offset, whole, torn=fate < behaviour.kept + behaviour.torn)

    def flush(self) -> None:
        """Make everything acknowledged durable, if the drive is honest. Raises OSError."""
        with self._lock:
            self._check(0, 0)
            self.flushes += 1
            if self.behaviour.honours_flush:
                self._settle(0)

    def cut(self) -> None:
        """Take the power away: the cache is gone, and every request fails until `power_on`."""
        with self._lock:
            self._powered = False
            self._cache.clear()

    def power_on(self) -> None:
        """Give the power back; the drive is enumerated anew."""
        with self._lock:
            self._powered = True
            self.generation += 1

    def _check(self, offset: int, length: int) -> None:
        if not self._powered:
            raise OSError(errno.EIO, "the drive has no power")
        if offset < 0 or length < 0 or offset + length > self.size_bytes:
            raise OSError(
                errno.EINVAL, f"{length} bytes at {offset} lie outside a drive of {self.size_bytes}"
            )

    def _write_through(self, offset: int, data: bytes) -> None:
        self._media.write(offset, data)
        if self._cache:
            first = offset // self.sector_bytes
            for sector in range(first, first + len(data) // self.sector_bytes):
                self._cache.pop(sector, None)

    def _write_back_later(self, offset: int, data: bytes, *, torn: bool) -> None:
        size = self.sector_bytes
        first = offset // size
        for number in range(len(data) // size):
            sector = data[number * size : (number + 1) * size]
            if torn and self._chance() < 0.5:
                self._cache.pop(first + number, None)
                self._write_back(first + number, sector)
            else:
                self._cache[first + number] = sector
        self._settle(self._cache_sectors_max)

    def _settle(self, sectors_left: int) -> None:
        """Write back what waits longest until no more than `sectors_left` are cached."""
        while len(self._cache) > sectors_left:
            self._write_back(*self._cache.popitem(last=False))

    def _write_back(self, sector: int, data: bytes) -> None:
        self._media.write(sector * self.sector_bytes, data)
