"""What the benchmark's tests share: where commands measure, and a drive in memory that declares anything."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from durability.bench.cells import MIB


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with a state directory of its own."""
    return os.environ | {"XDG_STATE_HOME": str(tmp_path / "state"), "COLUMNS": "200"}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory to measure in, which must be empty at the end."""
    directory = tmp_path / "place"
    directory.mkdir()
    yield directory
    assert list(directory.iterdir()) == []


@pytest.fixture
def memory_drive(loop_machine: None) -> Iterator[Path]:
    """A loop device over a file in memory, so that nothing else is counted on it."""
    backing = Path("/dev/shm") / f"durability-test-{os.getpid()}.img"
    with backing.open("wb") as file:
        file.truncate(256 * MIB)  # mkfs.btrfs takes no less than half of it
    try:
        device = Path(_output("losetup", "--find", "--show", str(backing)))
        before = {name: declared(device, name) for name in ("write_cache", "rotational")}
        declare(device, write_cache="write back", rotational="0")
        yield device
        declare(device, **before)  # the next user of the number would find it so
        _output("losetup", "--detach", str(device))
    finally:
        backing.unlink()


def declared(drive: Path, name: str) -> str:
    """What the drive declares itself to be."""
    return Path(f"/sys/block/{drive.name}/queue/{name}").read_text().strip()


def declare(drive: Path, **queue: str) -> None:
    """Have the drive declare something else."""
    for name, value in queue.items():
        Path(f"/sys/block/{drive.name}/queue/{name}").write_text(value)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
