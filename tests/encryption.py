"""Encrypted directories for tests: real ones, and a kernel that says that a plain directory is one."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

ABSENT, PRESENT, INCOMPLETELY_REMOVED = 1, 2, 3
# linux/fscrypt.h
_SET_POLICY, _GET_POLICY_EX, _ADD_KEY, _REMOVE_KEY, _KEY_STATUS = (
    0x800C6613,
    0xC0096616,
    0xC0506617,
    0xC0406618,
    0xC080661A,
)
_IDENTIFIED = 2
_KEY = bytes(range(64))
_NAME = bytes(range(32, 48))  # of a key, in policies that are made up


@contextmanager
def kernel_says(status: int, *, version: int = 2) -> Iterator[None]:
    """Every directory has a policy of this version, whose key has this status."""
    policy = bytes((version, 1, 4, 3)) + (bytes(4) + _NAME if version == 2 else _NAME[:8])
    key = struct.pack("=II16s", _IDENTIFIED, 0, _NAME) if version == 2 else struct.pack("=II8s", 1, 0, _NAME)

    def ioctl(fd: int, request: int, buffer: bytearray) -> int:
        assert os.path.isdir(f"/proc/self/fd/{fd}")  # noqa: PTH112 - a descriptor
        if request == _GET_POLICY_EX:
            assert len(buffer) == 8 + int.from_bytes(buffer[:8], "little") >= 8 + len(policy)
            buffer[:] = struct.pack("=Q24s", len(policy), policy)
        else:
            assert (request, len(buffer)) == (_KEY_STATUS, 128)
            assert bytes(buffer) == key.ljust(128, b"\0")
            buffer[64:68] = status.to_bytes(4, "little")
        return 0

    with patch.object(fcntl, "ioctl", ioctl):
        yield


class EncryptedDirectory:
    """A new, empty directory, encrypted by the kernel, on a file system that can do so; it is unlocked."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self._identifier = b""
        self._identifier = bytes(self.unlock()[8:24])
        policy = struct.pack("=BBBB4x16s", 2, 1, 4, 3, self._identifier)
        self._ioctl(path, _SET_POLICY, bytearray(policy))

    def unlock(self) -> bytearray:
        """Give the kernel the key."""
        key = struct.pack("=II32sII32x", _IDENTIFIED, 0, self._identifier, len(_KEY), 0) + _KEY
        return self._ioctl(self.path.parent, _ADD_KEY, bytearray(key))

    def lock(self) -> None:
        """Have the kernel forget the key, as after a boot. Nothing in the directory may be open."""
        key = struct.pack("=II32sI20x", _IDENTIFIED, 0, self._identifier, 0)
        answer = self._ioctl(self.path.parent, _REMOVE_KEY, bytearray(key))
        assert not any(answer[40:44])

    @staticmethod
    def _ioctl(directory: Path, request: int, argument: bytearray) -> bytearray:
        fd = os.open(directory, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, request, argument)
        finally:
            os.close(fd)
        return argument
