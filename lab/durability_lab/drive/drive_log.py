"""What a drive was told to do and what it promised, kept beside the drive: the truth to compare a tester
with.

A log has one entry for each write, each flush and each FUA write that returned success, and each cut. It is
kept in memory, or appended to a file, which survives the SIGKILL that is a drive's power cut. It knows no
record format but this much: where 512 bytes start with `DURB`, their first 56 bytes are a record's header and
are kept as its label, so that a broken promise can be named.

    kind 1 | sector 8 | count 4 | then, for a write, per sector: digest 4, and if labelled label 56

    w  a write           f  a flush returned success: everything written before is promised
    W  a labelled write  p  a FUA write returned success: these sectors are promised
    c  a cut

Numbers are little-endian; a sector is 512 bytes here, whatever the drive's own are: that is how finely
records are judged. A digest is a CRC-32: contents that differ in a few bits never have the same one, others
once in 2**32. A write is entered before the drive has it and a promise before the host hears of it; an
entry that is not whole is the one that the kill interrupted, and does not count.

Refuses to judge a drive: it says what was promised and is not there, and the legal contents of a sector are

    the newest version that was promised, and every version that was written after it

since a drive may write back early what was not flushed. A cut leaves those legal, but a later flush
makes no promise for what was written before the cut. Of a sector that was written and never promised, and of
one that was never written, nothing is promised: any content is legal, what the media held before included.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

SECTOR_BYTES: Final = 512
LABEL_BYTES: Final = 56

Kind: TypeAlias = Literal["older", "blank", "elsewhere", "garbage", "unreadable", "gone"]
Read: TypeAlias = Callable[[int, int], bytes]  # offset and length in bytes; raises OSError

_MAGIC = b"DURB"
_ENTRY = struct.Struct("<cQI")
_DIGEST_BYTES = 4
_PAYLOAD_BYTES = {b"w": _DIGEST_BYTES, b"W": _DIGEST_BYTES + LABEL_BYTES}  # per sector; others have none
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A sector that the drive had promised and that now holds what it must not.

    `kind`: `older` a version of before the promised one; `blank` zeros, which were not written there;
    `elsewhere` what was written to another sector; `garbage` what was never written; `unreadable`; `gone`,
    beyond the end of the drive. `promised` and `found`: the labels of what should be and of what is there,
    b"" without one. `overwritten`: the host has sent another write there since, which a cut may tear.
    """

    offset: int
    kind: Kind
    promised: bytes
    found: bytes
    overwritten: bool = False


class DriveLog:
    """The log of one drive. With `path` it is that file's, which is made where there is none."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._file = -1
        self._entries = bytearray()
        self._newest = Promises(self._entries)

    def wrote(self, offset: int, data: bytes) -> None:
        """The host sends a write, of whole sectors."""
        labelled = _MAGIC in data
        view = memoryview(data)
        payload: list[bytes | memoryview] = []
        for start in range(0, len(data), SECTOR_BYTES):
            sector = view[start : start + SECTOR_BYTES]
            payload.append(_digest(sector))
            if labelled:
                payload.append(sector[:LABEL_BYTES])
        self._append(b"W" if labelled else b"w", offset, len(data), b"".join(payload))

    def forced(self, offset: int, length: int) -> None:
        """A FUA write of this range returns success."""
        self._append(b"p", offset, length)

    def flushed(self) -> None:
        """A flush returns success."""
        self._append(b"f", 0, 0)

    def cut(self) -> None:
        """The drive has lost its power."""
        self._append(b"c", 0, 0)

    def promises(self) -> Promises:
        """What the drive has promised up to now. Raises OSError if the file does not exist."""
        if self._path is None:
            return Promises(bytes(self._entries))
        with open(self._path, "rb") as file:  # noqa: PTH123 - nothing here needs a Path
            empty = os.fstat(file.fileno()).st_size == 0
            return Promises(memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)))

    def broken(self, read: Read, size_bytes: int) -> list[Broken]:
        """The promises that what `read` returns now, of a drive of `size_bytes`, does not keep; in order."""
        if self._path is not None:
            return self.promises().broken(read, size_bytes)
        self._newest.read_on()  # a history asks often, and its log is long
        return self._newest.broken(read, size_bytes)

    def close(self) -> None:
        """Give the file back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, kind: bytes, offset: int, length: int, payload: bytes = b"") -> None:
        entry = _ENTRY.pack(kind, offset // SECTOR_BYTES, length // SECTOR_BYTES) + payload
        if self._path is None:
            self._entries += entry
            return
        if self._file < 0:
            self._open(self._path)
        written = os.write(self._file, entry)
        if written != len(entry):
            raise OSError(
                errno.ENOSPC, f"drive log {self._path}: {written} of {len(entry)} bytes were written"
            )

    def _open(self, path: str) -> None:
        """Open the file for more, without the entry that a kill interrupted."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        os.ftruncate(self._file, self.promises().end)


class Promises:
    """Summary of a log. `writes` and `flushes`: how many there were. `end`: where its last whole entry ends,
    in bytes. A version of a sector is named by where its digest lies in the log."""

    def __init__(self, log: bytes | bytearray | memoryview) -> None:
        self.writes = self.flushes = 0
        self._log = log
        self._promised: dict[int, int] = {}  # by sector: the newest promised version
        self._since: dict[int, list[int]] = {}  # by sector: the versions after that
        self._unflushed: dict[int, int] = {}  # by sector: the version that a flush promises
        self.end = 0
        self.read_on()

    def read_on(self) -> None:
        """Take what the log has beyond `end`."""
        for kind, first, count, payload, end in self._walk(self.end):
            self._take(kind, first, count, payload)
            self.end = end

    @property
    def sectors(self) -> int:
        """How many sectors have a promise."""
        return len(self._promised)

    def broken(self, read: Read, size_bytes: int) -> list[Broken]:
        """As `DriveLog.broken`, by the log as it was when it was read."""
        found: list[tuple[int, bytes | None]] = []  # of the broken ones: sector, what is there
        for first, count in _runs(sorted(self._promised)):
            inside = min(count, max(0, size_bytes // SECTOR_BYTES - first))
            for start, data in _read(read, first, inside):
                found += [(start, None)] if data is None else self._illegal(start, data)
            found += [(sector, b"") for sector in range(first + inside, first + count)]
        written = self._written({_digest(data): sector for sector, data in found if data})
        return [self._broken(sector, data, written) for sector, data in found]

    def _walk(self, at: int = 0) -> Iterator[tuple[bytes, int, int, int, int]]:
        """Each whole entry from there on: kind, first sector, sectors, where its payload begins, and ends."""
        while at + _ENTRY.size <= len(self._log):
            kind, first, count = _ENTRY.unpack_from(self._log, at)
            payload = at + _ENTRY.size
            at = payload + count * _PAYLOAD_BYTES.get(kind, 0)
            if at > len(self._log):
                return
            yield kind, first, count, payload, at

    def _take(self, kind: bytes, first: int, count: int, payload: int) -> None:
        sectors = range(first, first + count)
        if stride := _PAYLOAD_BYTES.get(kind):
            self.writes += 1
            versions = range(payload, payload + count * stride, stride)
            self._unflushed.update(zip(sectors, versions, strict=True))
            for sector, version in zip(sectors, versions, strict=True):
                self._since.setdefault(sector, []).append(version)
        elif kind == b"f":
            self.flushes += 1
            self._promise(tuple(self._unflushed))
        elif kind == b"p":
            self._promise(sectors)
        else:
            self._unflushed.clear()

    def _promise(self, sectors: Iterable[int]) -> None:
        for sector in sectors:
            self._promised[sector] = self._unflushed.pop(sector)
            del self._since[sector]

    def _illegal(self, first: int, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Of what the sectors from `first` on hold, each that it must not: sector and data."""
        for sector, start in enumerate(range(0, len(data), SECTOR_BYTES), first):
            held = data[start : start + SECTOR_BYTES]
            digest = _digest(held)
            # Nearly every sector holds what was promised last, so that is looked at first and alone.
            if not self._is(self._promised[sector], digest) and not any(
                self._is(version, digest) for version in self._since.get(sector, ())
            ):
                yield sector, held

    def _is(self, version: int, digest: bytes) -> bool:
        return self._log[version : version + _DIGEST_BYTES] == digest

    def _written(self, wanted: Container[bytes]) -> dict[bytes, set[int]]:
        """The sectors that each of these contents was ever written to."""
        places: dict[bytes, set[int]] = {}
        if not wanted:
            return places
        for kind, first, count, payload, _ in self._walk():
            stride = _PAYLOAD_BYTES.get(kind, 0)
            for number in range(count if stride else 0):
                start = payload + number * stride
                digest = bytes(self._log[start : start + _DIGEST_BYTES])
                if digest in wanted:
                    places.setdefault(digest, set()).add(first + number)
        return places

    def _broken(self, sector: int, data: bytes | None, written: dict[bytes, set[int]]) -> Broken:
        kind: Kind
        if data is None:
            kind = "unreadable"
        elif not data:
            kind = "gone"
        elif sector in (places := written.get(_digest(data), set())):
            kind = "older"
        elif not any(data):
            kind = "blank"
        else:
            kind = "elsewhere" if places else "garbage"
        return Broken(
            offset=sector * SECTOR_BYTES,
            kind=kind,
            promised=self._label(self._promised[sector]),
            found=data[:LABEL_BYTES] if data and data.startswith(_MAGIC) else b"",
            overwritten=bool(self._since.get(sector)),
        )

    def _label(self, version: int) -> bytes:
        # Another version's digest begins like a label once in 2**32.
        label = bytes(self._log[version + _DIGEST_BYTES : version + _DIGEST_BYTES + LABEL_BYTES])
        return label if label.startswith(_MAGIC) else b""


def _digest(data: bytes | memoryview) -> bytes:
    return zlib.crc32(data).to_bytes(_DIGEST_BYTES, "little")


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as runs: the first of each, and how many."""
    first = count = 0
    for number in numbers:
        if count and number == first + count:
            count += 1
        else:
            if count:
                yield first, count
            first, count = number, 1
    if count:
        yield first, count


def _read(read: Read, first: int, count: int) -> Iterator[tuple[int, bytes | None]]:
    """What the sectors hold, in order and in pieces as large as can be read: the first sector of each, and
    its bytes; None for a sector that cannot be read."""
    step = _READ_BYTES // SECTOR_BYTES
    end = first + count
    left = [(start, min(step, end - start)) for start in reversed(range(first, end, step))]
    while left:
        start, sectors = left.pop()
        try:
            data = read(start * SECTOR_BYTES, sectors * SECTOR_BYTES)
        except OSError:
            if sectors == 1:
                yield start, None
            else:
                half = sectors // 2
                left += [(start + half, sectors - half), (start, half)]
        else:
            yield start, data
