"""Measures the cost of operations: processor time of the kernel's threads, and work of the leaf drives.

Counters of the kernel are read before and after, never while jobs work. The idle machine is measured once,
and its activity is subtracted. Values that the kernel does not count are None, never guessed. Limits of the
counters:

- A write with FUA counts as a plain write, so a sync that uses FUA shows no flush.
- A flush without data counts as a flush and as a write of 0 bytes.
- If other programs did much of a drive's work while the machine was idle, this tool's share is unknown.
- The time of an interrupt is charged to the interrupted process, or to none if the processor was idle.

The work of stacked devices (md, dm, LVM, loop, partitions) is counted at the drives below them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from durability.bench.measurement import DiskWork, Idle
from durability_client.system import block_devices
from durability_client.system.block_devices import DiskCounters
from durability_client.system.other_programs import KTHREADD, PROC
from durability_client.target.discovery import drives_under_loop

_OTHERS_MAX = 0.1  # if other programs' share of the count is larger, the figure is unknown
_TRIFLE = 0.05  # activity of other programs per operation that is too small to matter


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All counters at one moment."""

    at_ns: int
    threads: Mapping[str, int] | None  # processor time in ns per kernel thread; None if unknown
    disks: Mapping[str, DiskCounters | None]  # None for a drive without counters


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Difference of two readings. `kernel_us`: processor time of the kernel's threads."""

    seconds: float
    kernel_us: float | None
    disks: Mapping[str, DiskCounters | None]


class Meter:
    """Reads the counters of this machine and of `drives`; for loop devices, of the drives below their
    files."""

    def __init__(self, drives: Sequence[str]) -> None:
        self.drives = tuple(dict.fromkeys(leaf for name in drives for leaf in _beneath(name)))

    def read(self) -> Reading:
        """The current counters."""
        disks = {name: block_devices.counters_of(name) for name in self.drives}
        return Reading(at_ns=time.monotonic_ns(), threads=_kernel_threads(), disks=disks)

    def leave_alone(self, seconds: float) -> Spent:
        """Activity of the machine during `seconds` in which this tool does nothing."""
        before = self.read()
        time.sleep(seconds)
        return spent(before, self.read())


def spent(before: Reading, after: Reading) -> Spent:
    """The difference of two readings."""
    kernel_us = None
    if before.threads is not None and after.threads is not None:
        # The last moments of a thread that has ended are lost. All time of a new thread counts.
        kernel_us = sum(now - before.threads.get(name, 0) for name, now in after.threads.items()) / 1000
    disks = {name: _since(before.disks.get(name), now) for name, now in after.disks.items()}
    return Spent(seconds=(after.at_ns - before.at_ns) / 1e9, kernel_us=kernel_us, disks=disks)


def kernel_us_beyond(idle: Spent, busy: Spent) -> float | None:
    """Processor time of the kernel's threads in `busy`, minus their idle activity."""
    if idle.kernel_us is None or busy.kernel_us is None:
        return None
    return max(0.0, busy.kernel_us - idle.kernel_us * busy.seconds / idle.seconds)


def disks_beyond(idle: Spent, busy: Spent, operations: int) -> tuple[DiskWork, ...]:
    """The work of each leaf drive in `busy`, with `operations` operations, minus its idle activity."""
    share = busy.seconds / idle.seconds
    return tuple(
        _work(name, _numbers(counted), _numbers(idle.disks.get(name)), share, operations)
        for name, counted in busy.disks.items()
    )


def idle_of(alone: Spent) -> tuple[Idle, ...]:
    """The leaf drives' idle activity, in the form of the result."""
    return tuple(
        Idle(
            name=name,
            seconds=alone.seconds,
            flushes=flushes,
            writes=writes,
            write_kib=write_kib,
            reads=reads,
        )
        for name, counted in alone.disks.items()
        for flushes, writes, write_kib, reads in (_numbers(counted),)
    )


def _numbers(counted: DiskCounters | None) -> tuple[int | None, ...]:
    """Flushes, writes, KiB written, reads."""
    if counted is None:
        return None, None, None, None
    return counted.flushes, counted.writes, counted.write_kib, counted.reads


def _work(
    name: str, busy: Sequence[int | None], idle: Sequence[int | None], share: float, operations: int
) -> DiskWork:
    flushes, writes, write_kib, reads = (
        _beyond(counted, alone, share, operations) for counted, alone in zip(busy, idle, strict=True)
    )
    return DiskWork(name=name, flushes=flushes, writes=writes, write_kib=write_kib, reads=reads)


def _beneath(name: str, depth: int = 4) -> tuple[str, ...]:
    """The drives that do the work of a leaf: the leaf, or for a loop device the drives below its file."""
    below = drives_under_loop(name) if depth else ()
    return tuple(leaf for one in below for leaf in _beneath(one, depth - 1)) or (name,)


def _beyond(counted: int | None, idle: int | None, share: float, operations: int) -> float | None:
    """`counted` minus the idle activity; None also if other programs' share, which is only an estimate, is
    too large."""
    if counted is None or idle is None:
        return None
    others = idle * share
    if others > _TRIFLE * operations and others > _OTHERS_MAX * counted:
        return None
    return max(0.0, counted - others)


def _since(before: DiskCounters | None, now: DiskCounters | None) -> DiskCounters | None:
    """The difference of two counts; None if the drive was detached and its counters restarted."""
    if before is None or now is None or now.writes < before.writes or now.reads < before.reads:
        return None
    flushes = None
    if now.flushes is not None and before.flushes is not None:
        flushes = now.flushes - before.flushes
    return DiskCounters(
        reads=now.reads - before.reads,
        writes=now.writes - before.writes,
        write_kib=now.write_kib - before.write_kib,
        flushes=flushes,
    )


def _kernel_threads() -> dict[str, int] | None:
    """Processor time in ns of each kernel thread since its start; None if they are not visible, as in a
    container."""
    with suppress(OSError):
        if (PROC / f"{KTHREADD}/comm").read_text().strip() != "kthreadd":
            return None
        numbers = (PROC / f"{KTHREADD}/task/{KTHREADD}/children").read_text().split()
        times = {number: _time_ns(number) for number in numbers}
        known = {number: time_ns for number, time_ns in times.items() if time_ns is not None}
        return known or None
    return None


def _time_ns(number: str) -> int | None:
    """The first field of schedstat; None if the thread has ended, or if the kernel does not count it."""
    try:
        with (PROC / number / "schedstat").open("rb") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
