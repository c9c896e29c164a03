"""Loop devices of tests and their partitions, and waiting until the kernel has let go of one.

A detached loop device lives on while anybody has it open, its partitions live on after it, and what was
unmounted lives on in each mount namespace that was copied before. Tests beside this one do all that, for
moments.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from durability_client.system.device_users import use_of_device
from tests.waiting import wait_for

_SHUT_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, which is XFS_IOC_GOINGDOWN too


@contextmanager
def looped(backing: Path, *options: str) -> Iterator[Path]:
    """A loop device over a device or file, for the time of a block."""
    device = Path(_done(_run("losetup", *options, "--find", "--show", backing)).stdout.strip())
    try:
        yield device
    finally:
        detach(device)


def detach(device: Path) -> None:
    """Detach a loop device, without its partitions: the next one of this number would have them."""
    remove_partitions(device)
    _done(_run("losetup", "--detach", device))


@contextmanager
def one_partition(device: Path) -> Iterator[Path]:
    """The only partition of the device, in a table, for the time of a block."""
    first = 2048
    sectors = int(Path(f"/sys/block/{device.name}/size").read_text()) - first
    entry = struct.pack("<B3xB3xII", 0, 0x83, first, sectors)
    with device.open("r+b") as file:
        file.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
    add_partition(device, 1, first, sectors)
    try:
        yield Path(f"{device}p1")
    finally:
        remove_partitions(device)


def add_partition(device: Path, number: int, first: int, sectors: int) -> None:
    """Make a partition known to the kernel, which needs no partition table for it."""
    _done(_run("addpart", device, number, first, sectors))
    wait_for(Path(f"{device}p{number}").exists)


def remove_partitions(device: Path) -> None:
    """Remove each partition of the device, once nobody has it open; what lies on it stays."""
    for partition in Path("/sys/block", device.name).glob(f"{device.name}p*"):
        number = int((partition / "partition").read_text())
        wait_for(partial(_removed, device, number), partial(use_of_device, partition.name))


def shut_down(directory: Path) -> None:
    """Have a file system answer everything with an error, as one does whose drive is gone."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, _SHUT_DOWN, struct.pack("I", 2))  # without the log
    finally:
        os.close(fd)


def wait_until_unused(device: Path) -> None:
    """Return once nothing uses the device; past the deadline raise AssertionError with what does."""
    wait_for(lambda: use_of_device(device.name) is None, lambda: use_of_device(device.name))


def _removed(device: Path, number: int) -> bool:
    """Whether this partition could be removed; False while anybody has it open."""
    done = _run("delpart", device, number)
    return "busy" not in done.stderr and _done(done).returncode == 0


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "LC_ALL": "C"}
    return subprocess.run(words, check=False, capture_output=True, text=True, env=environment)


def _done(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert done.returncode == 0, f"{' '.join(done.args)}: {done.stderr}"
    return done
