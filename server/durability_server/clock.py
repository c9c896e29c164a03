"""The server's clock, the only module that reads time for evidence.

Times are nanoseconds of CLOCK_BOOTTIME, which never steps and goes on while the machine sleeps. They can be
compared only within one boot, so each time is stored with the boot's id. Wall time is only for people.
"""

from __future__ import annotations

import socket
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

_MACHINE_ID_FILE = Path("/etc/machine-id")
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS and the BSDs have no CLOCK_BOOTTIME


def now_ns() -> int:
    """Nanoseconds since this machine started."""
    return time.clock_gettime_ns(_CLOCK)


def wall(at_ns: int | None = None) -> str:
    """UTC date and time of now, or of `at_ns` of this boot, to the millisecond, as ISO 8601."""
    ago = timedelta(microseconds=0 if at_ns is None else (now_ns() - at_ns) // 1000)
    return (datetime.now(UTC) - ago).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local_time(at_ns: int | None = None) -> str:
    """Local time of day of now, or of `at_ns` of this boot, for people."""
    ago = timedelta(microseconds=0 if at_ns is None else (now_ns() - at_ns) // 1000)
    return (datetime.now(UTC) - ago).astimezone().strftime("%H:%M:%S")


def read_machine_id() -> str:
    """The id of this machine, which does not change with its host name. Its host name if it has no id."""
    with suppress(OSError):
        if name := _MACHINE_ID_FILE.read_text(encoding="ascii", errors="replace").strip():
            return name
    return socket.gethostname()


@cache
def read_boot_id() -> str:
    """The id of this boot of this machine. If the system has none, a random id of this process."""
    try:
        return _BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return str(uuid.uuid4())
