"""What a drive keeps its bytes on: in memory, or in a file that outlives the process. Standard library only.

Media know nothing about caches and faults. They keep every byte that was written, and of the parts that are
to be written as one they keep all or none, also if the process is killed in between: that is how a drive
changes its mapping table.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

Part: TypeAlias = tuple[int, bytes]  # an offset in bytes, and what belongs there

_CHUNK_BYTES = 64 << 10
_HEADER_BYTES = 12  # of a part in a log: 8 of its offset, 4 of its length


class Media(Protocol):
    """What keeps its bytes without power. Offsets and sizes in bytes."""

    @property
    def size_bytes(self) -> int:
        """How much it holds."""

    def read(self, offset: int, length: int) -> bytes:
        """The bytes there; zeros where nothing was written."""

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Put `data` there."""

    def write_as_one(self, parts: Sequence[Part]) -> None:
        """Put all of them where they belong, or, if the process is killed meanwhile, none."""

    def clear(self) -> None:
        """Forget everything: zeros from end to end."""


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

    def write_as_one(self, parts: Sequence[Part]) -> None:
        """Put all of them where they belong; if the process is killed nothing is left anyway."""
        for offset, data in parts:
            self.write(offset, data)

    def clear(self) -> None:
        """Forget everything."""
        self._chunks.clear()


class FileMedia:
    """Media in a file, which outlives the process; the file's length is the size of the drive.

    What is written as one goes first to PATH.log, which takes effect when it gets that name: a log that is
    there when the media are opened is carried out.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self._descriptor).st_size
        self._log = path + ".log"
        with suppress(FileNotFoundError):
            self._carry_out()

    def read(self, offset: int, length: int) -> bytes:
        """The bytes there; zeros where nothing was written."""
        return os.pread(self._descriptor, length, offset)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Put `data` there. Raises OSError where the file system under the media is full."""
        written = os.pwrite(self._descriptor, data, offset)
        if written != len(data):
            raise OSError(errno.EIO, f"media: {written} of {len(data)} bytes at {offset} were written")

    def write_as_one(self, parts: Sequence[Part]) -> None:
        """Put all of them where they belong, or, if the process is killed meanwhile, none. Raises OSError."""
        unfinished = self._log + ".new"
        with open(unfinished, "wb") as log:  # noqa: PTH123 - nothing here needs a Path
            for offset, data in parts:
                log.write(offset.to_bytes(8, "big") + len(data).to_bytes(4, "big") + data)
        os.rename(unfinished, self._log)  # noqa: PTH104 - see above
        self._carry_out()

    def clear(self) -> None:
        """Forget everything."""
        os.ftruncate(self._descriptor, 0)
        os.ftruncate(self._descriptor, self.size_bytes)

    def close(self) -> None:
        """Give the file back."""
        os.close(self._descriptor)

    def _carry_out(self) -> None:
        """Do what the log says and remove it; doing so twice does no harm."""
        with open(self._log, "rb") as log:  # noqa: PTH123 - see above
            while header := log.read(_HEADER_BYTES):
                length = int.from_bytes(header[8:], "big")
                self.write(int.from_bytes(header[:8], "big"), log.read(length))
        os.unlink(self._log)  # noqa: PTH108 - see above
