"""A log of a drive's writes and promises, kept beside the drive: the truth to compare a tester with.

A log has one entry for each write, each flush and each FUA write that returned success, and each cut. The log
is kept in memory, or appended to a file, which survives the SIGKILL that serves as power cut. It knows only
one fact of the record format: 512 bytes that start with `DURB` have a record's header in their first 56
bytes. The log keeps these as the sector's label, so that a broken promise can be named.

    kind 1 | sector 8 | count 4 | then, for a write, per sector: digest 4, and if labelled label 56

    w  a write           f  a flush returned success: everything written before is promised
    W  a labelled write  p  a FUA write returned success: these sectors are promised
    c  a cut

Numbers are little-endian. A sector is 512 bytes here, whatever the drive's own sector size: records are
judged in units of 512 bytes. A digest is a CRC-32. Contents that differ in a few bits never have the same
digest; other contents have the same digest once in 2**32. A write is logged before the drive has it, and a
promise before the host learns of it. An incomplete entry was interrupted by the kill and does not count.

The log does not judge a drive; it finds the promised versions that are missing. The legal contents of a
sector are

    the newest version that was promised, and every version that was written after it

since a drive may write back unflushed data early. After a cut these versions stay legal, but a later flush
promises no writes from before the cut. A sector that was never promised may hold anything, whether or not it
was written. That includes the content that the media held before.
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
    """A sector that the drive had promised and that now has illegal content."""

    offset: int  # in bytes
    # `older`: a version that was written there before the promised one. `blank`: zeros that were never
    # written there. `elsewhere`: content written to another sector. `garbage`: content that was never
    # written. `unreadable`. `gone`: the sector lies beyond the end of the drive.
    kind: Kind
    promised: bytes  # label of the promised version, b"" without one
    found: bytes  # label of the content found, b"" without one
    overwritten: bool = False  # the host sent another write there after the promise, which a cut may tear


class DriveLog:
    """The log of one drive. With `path`, the log is in that file, which is created if missing."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._file = -1
        self._entries = bytearray()
        self._newest = Promises(self._entries)

    def wrote(self, offset: int, data: bytes) -> None:
        """Log that the host sends a write of whole sectors."""
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
        """Log that a FUA write of this range returns success."""
        self._append(b"p", offset, length)

    def flushed(self) -> None:
        """Log that a flush returns success."""
        self._append(b"f", 0, 0)

    def cut(self) -> None:
        """Log that the drive has lost its power."""
        self._append(b"c", 0, 0)

    def promises(self) -> Promises:
        """The promises that the drive has made so far. Raises OSError if the file does not exist."""
        if self._path is None:
            return Promises(bytes(self._entries))
        with open(self._path, "rb") as file:  # noqa: PTH123 - nothing here needs a Path
            empty = os.fstat(file.fileno()).st_size == 0
            return Promises(memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)))

    def broken(self, read: Read, size_bytes: int) -> list[Broken]:
        """The broken promises of a drive of `size_bytes`, in order of sectors; `read` reads the drive."""
        if self._path is not None:
            return self.promises().broken(read, size_bytes)
        self._newest.read_on()  # a history asks often, and its log is long
        return self._newest.broken(read, size_bytes)

    def close(self) -> None:
        """Close the file."""
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
        """Open the file for appending, and remove the entry that a kill interrupted."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        os.ftruncate(self._file, self.promises().end)


class Promises:
    """Summary of a log. `writes` and `flushes`: their number. `end`: offset of the end of the log's last
    complete entry, in bytes. A version of a sector is named by the offset of its digest in the log."""

    def __init__(self, log: bytes | bytearray | memoryview) -> None:
        self.writes = self.flushes = 0
        self._log = log
        self._promised: dict[int, int] = {}  # by sector: the newest promised version
        self._since: dict[int, list[int]] = {}  # by sector: the versions after that
        self._unflushed: dict[int, int] = {}  # by sector: the version that a flush promises
        self.end = 0
        self.read_on()

    def read_on(self) -> None:
        """Read the entries of the log beyond `end`."""
        for kind, first, count, payload, end in self._walk(self.end):
            self._take(kind, first, count, payload)
            self.end = end

    @property
    def sectors(self) -> int:
        """How many sectors have a promise."""
        return len(self._promised)

    def broken(self, read: Read, size_bytes: int) -> list[Broken]:
        """As `DriveLog.broken`, by the log as last read."""
        found: list[tuple[int, bytes | None]] = []  # broken sectors: number, content
        for first, count in _runs(sorted(self._promised)):
            inside = min(count, max(0, size_bytes // SECTOR_BYTES - first))
            for start, data in _read(read, first, inside):
                found += [(start, None)] if data is None else self._illegal(start, data)
            found += [(sector, b"") for sector in range(first + inside, first + count)]
        written = self._written({_digest(data): sector for sector, data in found if data})
        return [self._broken(sector, data, written) for sector, data in found]

    def _walk(self, at: int = 0) -> Iterator[tuple[bytes, int, int, int, int]]:
        """Each complete entry from `at` on: kind, first sector, number of sectors, payload start and end."""
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
        """The sectors with illegal content in `data`, which starts at sector `first`: number and content."""
        for sector, start in enumerate(range(0, len(data), SECTOR_BYTES), first):
            held = data[start : start + SECTOR_BYTES]
            digest = _digest(held)
            # Nearly every sector holds its newest promised version, so that version is compared first.
            if not self._is(self._promised[sector], digest) and not any(
                self._is(version, digest) for version in self._since.get(sector, ())
            ):
                yield sector, held

    def _is(self, version: int, digest: bytes) -> bool:
        return self._log[version : version + _DIGEST_BYTES] == digest

    def _written(self, wanted: Container[bytes]) -> dict[bytes, set[int]]:
        """For each wanted digest, the sectors to which its content was ever written."""
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
    """Ascending numbers as runs of consecutive numbers: first number and length of each."""
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
    """Read the sectors, in order and in the largest readable pieces: first sector and bytes of each piece.
    The bytes are None for a sector that cannot be read."""
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
