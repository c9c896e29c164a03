"""The server's clock: the one place that reads time for evidence.

Times are nanoseconds of CLOCK_BOOTTIME, which never steps and goes on while the machine sleeps; they compare
only within one boot, so each is kept together with the boot's id. The wall clock is for people only.
"""

from __future__ import annotations

import socket
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

_MACHINE_ID_FILE = Path("/etc/machine-id")
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS and the BSDs have no CLOCK_BOOTTIME


def now_ns() -> int:
    """Nanoseconds since this machine was started."""
    return time.clock_gettime_ns(_CLOCK)


def wall(at_ns: int | None = None) -> str:
    """The date and time in UTC, to the millisecond, as ISO 8601: now, or at `at_ns` of this boot."""
    ago = timedelta(microseconds=0 if at_ns is None else (now_ns() - at_ns) // 1000)
    return (datetime.now(UTC) - ago).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local_time(at_ns: int | None = None) -> str:
    """The time of day here, for people: now, or at `at_ns` of this boot."""
    ago = timedelta(microseconds=0 if at_ns is None else (now_ns() - at_ns) // 1000)
    return (datetime.now(UTC) - ago).astimezone().strftime("%H:%M:%S")


def read_machine_id() -> str:
    """The name of this machine, which no change of its host name changes; its host name where it has none."""
    with suppress(OSError):
        if name := _MACHINE_ID_FILE.read_text(encoding="ascii", errors="replace").strip():
            return name
    return socket.gethostname()


def read_boot_id() -> str:
    """The name of this boot of this machine; where the system has none, one of this process."""
    try:
        return _BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return str(uuid.uuid4())
