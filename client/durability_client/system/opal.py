"""Detects whether a self-encrypting drive (TCG Opal) is locked.

A drive may lock itself when it loses power. Then its reads fail, or return a boot program (the shadow MBR)
instead of its first data. Neither is a loss, so callers check this before missing data count. Linux answers
since 6.1, only to root, and only if it is built with Opal and may send such commands to the drive.
"""

from __future__ import annotations

import fcntl
import os
import struct

from durability_client.system import block_devices

# linux/sed-opal.h
_IOC_OPAL_GET_STATUS = 0x800870EC  # _IOR('p', 236, struct opal_status)
_STATUS = struct.Struct("=II")  # flags, reserved
_LOCKED, _MBR_ENABLED, _MBR_DONE = 0x08, 0x10, 0x20


def is_locked(name: str) -> bool:
    """Whether the drive `name` reports that one of its ranges is locked, or that it shows its shadow MBR.
    False if the status cannot be read."""
    answer = bytearray(_STATUS.size)
    try:
        fd = os.open(block_devices.node_of(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            fcntl.ioctl(fd, _IOC_OPAL_GET_STATUS, answer)
        finally:
            os.close(fd)
    except OSError:
        return False
    flags: int = _STATUS.unpack(answer)[0]
    shows_shadow = flags & (_MBR_ENABLED | _MBR_DONE) == _MBR_ENABLED
    return bool(flags & _LOCKED) or shows_shadow
