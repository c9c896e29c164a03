"""Loop devices of tests, and waiting until the kernel has let go of one.

A detached loop device lives on while anybody has it open, and what was unmounted lives on in each mount
namespace that was copied before. Tests beside this one do both, for moments.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from durability_client.system.device_users import use_of_device
from tests.waiting import wait_for


@contextmanager
def looped(backing: Path, *options: str) -> Iterator[Path]:
    """A loop device over a device or file, for the time of a block."""
    command = ("losetup", *options, "--find", "--show", str(backing))
    device = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield Path(device)
    finally:
        subprocess.run(("losetup", "--detach", device), check=True)


def wait_until_unused(device: Path) -> None:
    """Return once nothing uses the device; past the deadline raise AssertionError with what does."""
    wait_for(lambda: use_of_device(device.name) is None, lambda: use_of_device(device.name))
