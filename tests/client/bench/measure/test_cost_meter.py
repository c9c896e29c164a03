"""What is counted for an operation: on real loop devices, and with readings made up."""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from durability_client.bench.measure.cost_meter import (
    Meter,
    Reading,
    Spent,
    disks_beyond,
    idle_of,
    kernel_us_beyond,
    spent,
)
from durability_client.system import block_devices
from durability_client.system.block_devices import DiskCounters

SECOND_NS = 10**9
MakeLoop = Callable[..., Path]


def _counters(reads: int, writes: int, write_kib: int, flushes: int | None) -> DiskCounters:
    return DiskCounters(reads=reads, writes=writes, write_kib=write_kib, flushes=flushes)


def _reading(seconds: float, threads: dict[str, int] | None, counters: DiskCounters | None) -> Reading:
    return Reading(at_ns=int(seconds * SECOND_NS), threads=threads, disks={"sda": counters})


def test_the_idle_share_is_subtracted() -> None:
    """The drive's idle activity is subtracted in proportion to time; no figure becomes negative."""
    idle = spent(_reading(0, {}, _counters(0, 0, 0, 0)), _reading(2, {}, _counters(20, 40, 40, 2)))
    busy = spent(_reading(5, {}, _counters(30, 50, 500, 5)), _reading(6, {}, _counters(31, 170, 900, 105)))
    (work,) = disks_beyond(idle, busy, operations=1000)
    assert (work.name, work.reads, work.writes, work.write_kib, work.flushes) == ("sda", 0, 100, 380, 99)


def test_what_others_drown_is_unknown() -> None:
    """If other programs do a large part of the drive's work, the count is None. A few requests of others
    among many operations do not matter."""
    idle = spent(_reading(0, {}, _counters(0, 0, 0, 0)), _reading(1, {}, _counters(0, 100, 9000, 3)))
    busy = spent(_reading(2, {}, _counters(0, 0, 0, 0)), _reading(3, {}, _counters(0, 1000, 4000, 2)))
    (work,) = disks_beyond(idle, busy, operations=1000)
    assert (work.reads, work.writes, work.write_kib, work.flushes) == (0, 900, None, 0)
    (work,) = disks_beyond(idle, busy, operations=10)
    assert work.flushes is None


def test_threads_of_the_kernel_come_and_go() -> None:
    """A new thread counts whole, one that is gone not at all, and the idle share is taken off."""
    idle = spent(_reading(0, {"10": 0}, None), _reading(1, {"10": 1_000_000}, None))
    before = _reading(2, {"10": 2_000_000, "11": 7_000_000}, None)
    after = _reading(4, {"10": 9_000_000, "12": 3_000_000}, None)
    assert kernel_us_beyond(idle, spent(before, after)) == 7000 + 3000 - 2 * 1000


def test_what_is_not_counted_is_unknown() -> None:
    """Without counters, or with a drive that was taken away in between, nothing is made up."""
    nothing = spent(_reading(0, None, None), _reading(1, None, None))
    assert kernel_us_beyond(nothing, nothing) is None
    (work,) = disks_beyond(nothing, nothing, operations=1)
    assert (work.flushes, work.writes, work.write_kib, work.reads) == (None, None, None, None)
    again = spent(_reading(0, {}, _counters(9, 9, 9, 9)), _reading(1, {}, _counters(1, 1, 1, 1)))
    (work,) = disks_beyond(again, again, operations=1)
    assert work.writes is None
    no_flushes = spent(_reading(0, {}, _counters(1, 1, 1, None)), _reading(1, {}, _counters(2, 2, 2, None)))
    (work,) = disks_beyond(
        Spent(seconds=1, kernel_us=0, disks={"sda": _counters(0, 0, 0, None)}), no_flushes, operations=1
    )
    assert (work.writes, work.flushes) == (1, None)
    (idle,) = idle_of(nothing)
    assert (idle.seconds, idle.writes) == (1, None)


def test_this_machines_kernel_threads_have_times() -> None:
    """The CPU times of kernel threads only grow. Containers may not show these threads."""
    meter = Meter(())
    before, after = meter.read(), meter.read()
    if before.threads is None:
        pytest.skip("no kernel threads are shown here")
    assert after.threads is not None
    assert all(after.threads[name] >= time for name, time in before.threads.items() if name in after.threads)


def test_counters_of_another_machines_tree(tmp_path: Path) -> None:
    """The fields of /sys/block/*/stat are read as the kernel documents them. Old kernels have no flush
    counter."""
    block = tmp_path / "class/block/sda"
    (block / "queue").mkdir(parents=True)
    (block / "stat").write_text("  1  2  3  4  5  6  70  8  9 10 11 12 13 14 15 16 17\n")
    assert block_devices.counters_of("sda", sys=tmp_path) == _counters(1, 5, 35, 16)
    assert block_devices.flushes_of("sda", sys=tmp_path) == 16
    (block / "stat").write_text("  1  2  3  4  5  6  70  8  9 10 11\n")
    assert block_devices.counters_of("sda", sys=tmp_path) == _counters(1, 5, 35, None)
    (block / "queue/iostats").write_text("0\n")
    assert block_devices.counters_of("sda", sys=tmp_path) is None
    assert block_devices.counters_of("sdb", sys=tmp_path) is None


def test_a_loop_device_is_counted_at_the_disk_beneath(make_loop: MakeLoop, tmp_path: Path) -> None:
    """The work of a loop device is looked for on the drives under its file; with no file, on itself."""
    loop = make_loop(8 << 20)
    meter = Meter((loop.name,))
    found = subprocess.run(
        ("findmnt", "-no", "SOURCE", "-T", tmp_path), capture_output=True, text=True, check=True
    )
    if not found.stdout.startswith("/dev/"):
        assert meter.drives == (loop.name,)
    else:
        assert loop.name not in meter.drives
        assert all(not name.startswith("loop") for name in meter.drives)


def test_each_write_and_flush_is_counted(memory_drive: Path) -> None:
    """100 direct writes of 4 KiB with a sync each are 100 flushes, 400 KiB and at least 100 writes."""
    meter = Meter((memory_drive.name,))
    assert meter.drives == (memory_drive.name,)
    idle = meter.leave_alone(0.05)
    before = meter.read()
    fd = os.open(memory_drive, os.O_RDWR | os.O_DIRECT)
    try:
        with mmap.mmap(-1, 4096) as block:
            for number in range(100):
                os.pwrite(fd, block, number * 4096)
                os.fdatasync(fd)
    finally:
        os.close(fd)
    (work,) = disks_beyond(idle, spent(before, meter.read()), operations=100)
    assert work.flushes == 100
    assert work.write_kib == 400
    assert work.writes is not None
    assert 100 <= work.writes <= 200  # a flush without data is counted as a write too
