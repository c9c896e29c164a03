"""What the client's tests share: real loop devices with real file systems on them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from durability_lab.kernel_rig.block_rig import without_loop_mounts
from durability_lab.support import privileges
from tests.loop_devices import detach


@pytest.fixture(scope="session")
def loop_machine() -> None:
    """Skips where no loop device can be made, unless DURABILITY_LAB_REQUIRED=1 says that one must."""
    problem = privileges.missing(
        "a loop device",
        capabilities=("CAP_SYS_ADMIN",),
        devices=(Path("/dev/loop-control"),),
        over_machine=True,
    )
    if problem and os.environ.get("DURABILITY_LAB_REQUIRED") != "1":
        pytest.skip(problem)
    assert not problem, problem


@pytest.fixture(scope="session", autouse=True)
def _state_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A state directory of the tests' own: runs and measurements remember there where they wrote."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where there is one: for tests that sync very often and cut no power."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as directory:
        yield Path(directory)


@pytest.fixture
def make_loop(loop_machine: None, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A function that makes a loop device of some size over a file; all are detached at the end."""
    with contextlib.ExitStack() as stack:

        def make(size_bytes: int = 64 << 20, *, read_only: bool = False) -> Path:
            backing = tmp_path / f"disk{len(list(tmp_path.glob('disk*')))}.img"
            with backing.open("wb") as file:
                file.truncate(size_bytes)
            flags = ("--read-only",) if read_only else ()
            device = Path(_output("losetup", *flags, "--find", "--show", str(backing)))
            stack.callback(_detach, backing)
            return device

        yield make


@pytest.fixture
def make_mount(make_loop: Callable[..., Path], tmp_path: Path) -> Iterator[Callable[..., tuple[Path, Path]]]:
    """A function that mounts a new file system on a new loop device: gives the device and the directory."""
    with contextlib.ExitStack() as stack:

        def make(
            kind: str = "ext4", *, options: str = "defaults", mkfs: tuple[str, ...] = ()
        ) -> tuple[Path, Path]:
            device = make_loop(384 << 20)  # the least that mkfs.xfs takes is 300 MiB
            # Or the kernel would go on writing to a new ext4 while tests measure.
            whole = ("-E", "lazy_itable_init=0,lazy_journal_init=0") if kind == "ext4" else ()
            _output(*without_loop_mounts(), f"mkfs.{kind}", "-q", *whole, *mkfs, str(device))
            directory = tmp_path / f"mount-{device.name}"
            directory.mkdir()
            _output("mount", "-t", kind, "-o", options, str(device), str(directory))
            stack.callback(_unmount, directory)
            return device, directory

        yield make


def _unmount(directory: Path) -> None:
    """Unless the test has done so; the kernel's list is asked, since a dead file system answers EIO."""
    mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    if str(directory) in {line.split()[4] for line in mounts}:
        _output("umount", str(directory))


def _detach(backing: Path) -> None:
    """Every loop device of this file; by its number it might be another's by now."""
    query = ("losetup", "--associated", str(backing), "--noheadings", "--output", "NAME")
    for device in _output(*query).split():
        detach(Path(device))


def _output(*command: str) -> str:
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, env=environment
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout.strip()
