"""Whether a directory is encrypted (fscrypt, of ext4 and F2FS), and whether its names can be looked up: not
where it is locked.

As long as the kernel does not have its key, the directory lists other names, and of each true one the kernel
says that there is no such file. So who misses a file asks here first. Kernels before 5.4 cannot be asked.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

# linux/fscrypt.h
_FS_IOC_GET_ENCRYPTION_POLICY_EX = 0xC0096616  # _IOWR('f', 22, 9 bytes)
_FS_IOC_GET_ENCRYPTION_KEY_STATUS = 0xC080661A  # _IOWR('f', 26, 128 bytes)
_POLICY = struct.Struct("=Q24s")  # the size of what follows, and a policy of either version
_POLICY_V1 = 0
_BY_DESCRIPTOR, _BY_IDENTIFIER = 1, 2
_STATUS = struct.Struct("=II32s24xI60x")  # how a key is named, its name, its status
_PRESENT = 2


def locked_above(path: Path) -> Path | None:
    """The nearest directory above `path` that exists, if it is locked; else None, also where it cannot be
    asked."""
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
    """The encryption policy of a directory; b"" where it is not encrypted, or cannot be asked."""
    answer = bytearray(_POLICY.pack(_POLICY.size - 8, b""))
    try:
        fcntl.ioctl(fd, _FS_IOC_GET_ENCRYPTION_POLICY_EX, answer)
    except OSError:
        return b""
    policy: bytes = _POLICY.unpack(answer)[1]
    return policy


def _is_locked(fd: int, path: Path) -> bool:
    """Whether the directory is encrypted, and the kernel does not say that its file system has the key. A key
    of the old policy may be in the session, of which it says nothing: then `path`, if found, shows it."""
    policy = _policy_of(fd)
    if not policy:
        return False
    old = policy[0] == _POLICY_V1
    by, key = (_BY_DESCRIPTOR, policy[4:12]) if old else (_BY_IDENTIFIER, policy[8:24])
    status = bytearray(_STATUS.pack(by, 0, key, 0))
    fcntl.ioctl(fd, _FS_IOC_GET_ENCRYPTION_KEY_STATUS, status)
    return _STATUS.unpack(status)[3] != _PRESENT and not (old and os.path.lexists(path))
