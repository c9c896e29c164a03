"""Finds encrypted directories (fscrypt of ext4 and F2FS) and whether they are locked.

While the kernel does not have the key, the directory lists other names, and lookups of the real names fail as
if the files did not exist. So code that finds a file missing checks here first. Kernels before 5.4 do not
report the key's status.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

# linux/fscrypt.h
_FS_IOC_GET_ENCRYPTION_POLICY_EX = 0xC0096616  # _IOWR('f', 22, 9 bytes)
_FS_IOC_GET_ENCRYPTION_KEY_STATUS = 0xC080661A  # _IOWR('f', 26, 128 bytes)
_POLICY = struct.Struct("=Q24s")  # size of the policy, and the policy, of either version
_POLICY_V1 = 0
_BY_DESCRIPTOR, _BY_IDENTIFIER = 1, 2
_STATUS = struct.Struct("=II32s24xI60x")  # kind of the key's name, the name, the key's status
_PRESENT = 2


def locked_above(path: Path) -> Path | None:
    """The nearest existing directory above `path`, if it is locked. None otherwise, or if opening it
    fails."""
    for directory in path.parents:
        try:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return None
        try:
            return directory if _is_locked(fd, path) else None
        finally:
            os.close(fd)
    return None


def is_encrypted(path: Path) -> bool:
    """Whether the directory of `path` is known to be encrypted."""
    try:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return bool(_policy_of(fd))
    finally:
        os.close(fd)


def _policy_of(fd: int) -> bytes:
    """The encryption policy of a directory; b"" if it is not encrypted, or if that is unknown."""
    answer = bytearray(_POLICY.pack(_POLICY.size - 8, b""))
    try:
        fcntl.ioctl(fd, _FS_IOC_GET_ENCRYPTION_POLICY_EX, answer)
    except OSError:
        return b""
    policy: bytes = _POLICY.unpack(answer)[1]
    return policy


def _is_locked(fd: int, path: Path) -> bool:
    """Whether the directory is encrypted and the kernel does not report the key as present.

    A key of the old policy version may be in the session's keyring, which the kernel does not report. If
    `path` is found, the directory is not locked.
    """
    policy = _policy_of(fd)
    if not policy:
        return False
    old = policy[0] == _POLICY_V1
    by, key = (_BY_DESCRIPTOR, policy[4:12]) if old else (_BY_IDENTIFIER, policy[8:24])
    status = bytearray(_STATUS.pack(by, 0, key, 0))
    fcntl.ioctl(fd, _FS_IOC_GET_ENCRYPTION_KEY_STATUS, status)
    return _STATUS.unpack(status)[3] != _PRESENT and not (old and os.path.lexists(path))
