"""Facts of the measured machine: its processor, its load, and how full the file system is.

On a busy machine, or if the host steals processor time, a benchmark measures that, too. With these figures
the reader can notice it. Unknown values are None or "".
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from durability.formats.facts import Machine, MachineLoad

_USER, _NICE, _SYSTEM, _IDLE, _IOWAIT, _IRQ, _SOFTIRQ, _STEAL = range(8)  # fields of /proc/stat, see proc(5)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Processor time of all processors since boot, in ticks: total, busy and stolen time."""

    total: int
    busy: int
    stolen: int


def machine() -> Machine:
    """Facts that do not change during a measurement."""
    found = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    governors = {
        _text(str(path)).strip()
        for path in Path("/sys/devices/system/cpu").glob("cpu*/cpufreq/scaling_governor")
    }
    return Machine(
        cpu_model=found[1].strip() if found else platform.processor() or platform.machine(),
        cpus=os.cpu_count() or 1,
        governor=", ".join(sorted(governors - {""})),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def ticks() -> Ticks | None:
    """Current processor time; None if unknown."""
    fields = _text("/proc/stat").partition("\n")[0].split()[1:]
    if len(fields) <= _STEAL:
        return None
    counts = [int(field) for field in fields[: _STEAL + 1]]
    busy = counts[_USER] + counts[_NICE] + counts[_SYSTEM] + counts[_IRQ] + counts[_SOFTIRQ]
    return Ticks(total=sum(counts), busy=busy, stolen=counts[_STEAL])


def machine_load(place: Path | None, *, since: Ticks | None) -> MachineLoad:
    """Current load of the machine, processor use since `since`, and use of the file system of `place`."""
    now = ticks()
    busy_percent = steal_percent = None
    if since is not None and now is not None and now.total > since.total:
        total = now.total - since.total
        busy_percent = max(0, now.busy - since.busy) / total * 100
        steal_percent = max(0, now.stolen - since.stolen) / total * 100
    used_bytes = size_bytes = reserved_bytes = None
    if place is not None:
        file_system = os.statvfs(place)
        size_bytes = file_system.f_blocks * file_system.f_frsize
        used_bytes = size_bytes - file_system.f_bfree * file_system.f_frsize
        reserved_bytes = max(0, file_system.f_bfree - file_system.f_bavail) * file_system.f_frsize
    return MachineLoad(
        load=_load(),
        busy_percent=busy_percent,
        steal_percent=steal_percent,
        used_bytes=used_bytes,
        size_bytes=size_bytes,
        reserved_bytes=reserved_bytes,
    )


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
