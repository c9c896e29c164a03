"""The media of a drive: in memory, or in a file that survives the process. Standard library only.

Media know nothing about caches and faults. They keep every written byte. `write_as_one` keeps all of its
parts or none, even if the process is killed meanwhile: a drive changes its mapping table like this.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

Part: TypeAlias = tuple[int, bytes]  # an offset in bytes, and the data that belong there

_CHUNK_BYTES = 64 << 10
_HEADER_BYTES = 12  # header of a part in a log: offset (8 bytes) and length (4 bytes)


class Media(Protocol):
    """Storage that keeps its bytes without power. Offsets and sizes in bytes."""

    @property
    def size_bytes(self) -> int:
        """Capacity in bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Read `length` bytes; bytes never written are zeros."""

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write `data` at `offset`."""

    def write_as_one(self, parts: Sequence[Part]) -> None:
        """Write all parts, or none if the process is killed meanwhile."""

    def clear(self) -> None:
        """Set every byte to zero."""


class SparseMedia:
    """Media in memory that use memory only for written chunks."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._chunks: dict[int, bytearray] = {}

    def read(self, offset: int, length: int) -> bytes:
        """Read `length` bytes; bytes never written are zeros."""
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
        """Write `data` at `offset`."""
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

    def write_as_one(self, parts: Sequence[Part]) -> None:
        """Write all parts. If the process is killed, the whole media are gone anyway."""
        for offset, data in parts:
            self.write(offset, data)

    def clear(self) -> None:
        """Set every byte to zero."""
        self._chunks.clear()


class FileMedia:
    """Media in a file that survives the process; the file's length is the size of the drive.

    `write_as_one` first writes the parts to PATH.log.new and renames it to PATH.log, from which time they
    count as written. If PATH.log exists when the media are opened, its writes are carried out.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self._descriptor).st_size
        self._log = path + ".log"
        with suppress(FileNotFoundError):
            self._carry_out()

    def read(self, offset: int, length: int) -> bytes:
        """Read `length` bytes; bytes never written are zeros."""
        return os.pread(self._descriptor, length, offset)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write `data` at `offset`. Raises OSError if the file system under the media is full."""
        written = os.pwrite(self._descriptor, data, offset)
        if written != len(data):
            raise OSError(errno.EIO, f"media: {written} of {len(data)} bytes at {offset} were written")

    def write_as_one(self, parts: Sequence[Part]) -> None:
        """Write all parts, or none if the process is killed meanwhile. Raises OSError."""
        unfinished = self._log + ".new"
        with open(unfinished, "wb") as log:  # noqa: PTH123 - nothing here needs a Path
            for offset, data in parts:
                log.write(offset.to_bytes(8, "big") + len(data).to_bytes(4, "big") + data)
        os.rename(unfinished, self._log)  # noqa: PTH104 - see above
        self._carry_out()

    def clear(self) -> None:
        """Set every byte to zero."""
        os.ftruncate(self._descriptor, 0)
        os.ftruncate(self._descriptor, self.size_bytes)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _carry_out(self) -> None:
        """Carry out the writes in the log and remove it; doing this twice does no harm."""
        with open(self._log, "rb") as log:  # noqa: PTH123 - see above
            while header := log.read(_HEADER_BYTES):
                length = int.from_bytes(header[8:], "big")
                self.write(int.from_bytes(header[:8], "big"), log.read(length))
        os.unlink(self._log)  # noqa: PTH108 - see above
