"""A kernel that answers for self-encrypting drives (TCG Opal), which no test machine has."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

SUPPORTED, LOCKING_SUPPORTED, LOCKING_ENABLED, LOCKED, MBR_ENABLED, MBR_DONE = 1, 2, 4, 8, 16, 32
# _IOR('p', 236, struct opal_status) of linux/sed-opal.h
_GET_STATUS = 2 << 30 | struct.calcsize("=II") << 16 | ord("p") << 8 | 236


@contextmanager
def opal_says(flags: int) -> Iterator[None]:
    """Every block device has this status. Other questions go to the kernel."""
    real = fcntl.ioctl

    def ioctl(fd: int, request: int, *arguments: Any) -> Any:
        if request != _GET_STATUS:
            return real(fd, request, *arguments)
        (answer,) = arguments
        assert stat.S_ISBLK(os.fstat(fd).st_mode)
        answer[:] = struct.pack("=II", flags, 0)
        return 0

    with patch.object(fcntl, "ioctl", ioctl):
        yield
