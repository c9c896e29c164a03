"""A real kernel, file system and block device over a drive that can lose power. Root on Linux only.

    media (a file) <- nbdkit: the drive <- nbdfuse: a file <- loop: a block device <- file system, or nothing

A flush of the file system reaches the drive as an NBD flush. SIGKILL of nbdkit is the cut: everything above
sees I/O errors, as it does when a drive drops off its bus, and what the drive held in its cache is gone.
`power_on` then puts everything together again, on the same paths, with a loop device that the kernel
enumerated anew.

The drives: the three behaviours of `drive`, and the two that nbdkit's own cache filter makes, which share no
code with `drive`: `filter-honest`, and `filter-amnesiac`, which keeps nothing of what was written since it
was powered on.

Refuses to guess: a missing tool or privilege is a SetupError that names it. Nothing of a rig outlives its
`with` block: not after an exception, and not while a client still holds the device, which then finds it dead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from durability.errors import SetupError
from durability_lab.drive import BEHAVIOURS

DriveName: TypeAlias = Literal["honest", "write-through", "liar", "filter-honest", "filter-amnesiac"]
FileSystemName: TypeAlias = Literal["ext4", "xfs", "btrfs"]

SIZE_BYTES = 384 << 20  # mkfs.xfs refuses less than 300 MiB; the media file is sparse
_DEADLINE_S = 20.0
_POLL_S = 0.002
_MKFS: dict[FileSystemName, tuple[str, ...]] = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
_PACKAGES = "nbdkit nbdkit-plugin-python libnbd-bin fuse3 e2fsprogs xfsprogs btrfs-progs util-linux"


class MountError(SetupError):
    """The file system on the drive cannot be mounted, which after a cut may be the loss itself."""


def missing(file_system: FileSystemName | None = None) -> str:
    """What this machine lacks for a rig, as a sentence; "" where nothing is missing."""
    if os.geteuid() != 0:
        return "a drive under a real file system needs root: run as root"
    tools = ["nbdkit", "nbdfuse", "losetup", "mount", "umount"]
    tools += [_MKFS[file_system][0]] if file_system else []
    absent = [tool for tool in tools if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} not found: install {_PACKAGES}"
    if subprocess.run(("nbdkit", "python", "--dump-plugin"), capture_output=True, check=False).returncode:
        return f"nbdkit has no Python plugin: install {_PACKAGES}"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not Path(device).exists():
            return f"{device} not found: the kernel lacks FUSE or loop devices"
    return ""


class BlockRig:
    """One drive with its block device, and the file system on it if `file_system` names one.

    Use it in a `with` statement, which powers the drive on, makes the file system and mounts it. `target` is
    where a client belongs: a file of the mounted file system, or the block device. The drive's sectors are
    4096 bytes under a file system, because file systems rely on a block of theirs not being torn, and 512 on
    the raw device.
    """

    def __init__(
        self,
        drive: DriveName,
        file_system: FileSystemName | None,
        *,
        seed: int,
        size_bytes: int = SIZE_BYTES,
    ) -> None:
        problem = missing(file_system)
        if problem:
            raise SetupError(f"cannot set up a drive that can lose power: {problem}")
        self.drive = drive
        self.file_system = file_system
        self.sector_bytes = 4096 if file_system else 512
        self.loop = ""
        self.power_ons = 0
        self._seed = seed
        self._size_bytes = size_bytes
        self._diskseq = 0
        self._nbdkit: subprocess.Popen[bytes] | None = None
        self._nbdfuse: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Power the drive on for the first time, make the file system and mount it; `close` undoes it.

        Raises SetupError, and then leaves nothing behind.
        """
        # In memory where possible: the media's own speed is not what is tested.
        shared = Path("/dev/shm")
        self._directory = Path(
            tempfile.mkdtemp(prefix="durability-rig-", dir=shared if shared.is_dir() else None)
        )
        self._media = self._directory / "media"
        self._device_file = self._directory / "drive"
        self.mount_point = self._directory / "mount"
        try:
            with self._media.open("wb") as file:
                file.truncate(self._size_bytes)
            self._device_file.touch()
            self.mount_point.mkdir()
            self.power_on()
            if self.file_system:
                _run(*_MKFS[self.file_system], self.loop)
                self.mount()
        except BaseException:
            self.close()
            raise

    @property
    def target(self) -> Path:
        """The path to give to `durability run` and `verify`; a raw device's may change with `power_on`."""
        return self.mount_point / "target" if self.file_system else Path(self.loop)

    @property
    def device(self) -> Path:
        """The block device, for `verify --device`."""
        return Path(self.loop)

    def power_on(self) -> None:
        """Start the drive and attach its block device, anew after a cut. Does not mount.

        Raises SetupError where a part does not start, or where somebody still holds the device of before.
        """
        if self.power_ons:
            self._detach()
            _wait_for(self._released, f"every user of {self.loop} to let go of it")
        self.power_ons += 1
        socket = self._directory / f"nbd.{self.power_ons}.sock"
        ready = self._directory / f"nbdkit.{self.power_ons}.pid"
        self._nbdkit = self._start(
            "nbdkit", "-f", "-U", str(socket), "-P", str(ready), *self._drive_command()
        )
        _wait_for(ready.exists, "nbdkit to listen", self._nbdkit, self._log("nbdkit"))
        self._nbdfuse = self._start("nbdfuse", str(self._device_file), "--unix", str(socket))
        _wait_for(
            lambda: self._device_file.stat().st_size == self._size_bytes,
            "nbdfuse to show the drive",
            self._nbdfuse,
            self._log("nbdfuse"),
        )
        self.loop = _run(
            "losetup", "--find", "--show", f"--sector-size={self.sector_bytes}", str(self._device_file)
        ).strip()
        self._diskseq = _diskseq(self.loop)

    def mount(self) -> None:
        """Mount the file system, replaying its journal. Raises MountError."""
        assert self.file_system
        try:
            _run("mount", "-t", self.file_system, self.loop, str(self.mount_point))
        except SetupError as error:
            raise MountError(str(error)) from error

    def cut(self) -> None:
        """Take the power away, now. Everything above sees I/O errors from here on."""
        assert self._nbdkit is not None, "no drive to cut: power_on first"
        self._nbdkit.kill()
        self._nbdkit.wait()
        self._nbdkit = None

    def close(self) -> None:
        """Take everything apart and remove it, in whatever state it is."""
        try:
            self._detach()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _drive_command(self) -> tuple[str, ...]:
        if self.drive in BEHAVIOURS:
            return (
                "python",
                str(Path(__file__).with_name("nbdkit_plugin.py")),
                f"media={self._media}",
                f"behaviour={self.drive}",
                f"seed={self._seed + self.power_ons}",
                f"sector_bytes={self.sector_bytes}",
            )
        mode = {"filter-honest": "writeback", "filter-amnesiac": "unsafe"}[self.drive]
        return "--filter=cache", "file", str(self._media), f"cache={mode}"

    def _detach(self) -> None:
        """Undo mount, loop, nbdfuse and nbdkit, from the top; each step whatever became of the one before."""
        _unmount(self.mount_point)
        if self.loop:
            with suppress(SetupError):
                _run("losetup", "--detach", self.loop)
        _unmount(self._device_file)
        for process in (self._nbdfuse, self._nbdkit):
            if process is not None:
                _end(process)
        self._nbdfuse = self._nbdkit = None

    def _released(self) -> bool:
        """Whether the kernel has let go of the loop device of before, which it does after its last user."""
        return _diskseq(self.loop) != self._diskseq

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        with self._log(command[0]).open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _log(self, program: str) -> Path:
        return self._directory / f"{program}.log"


def _run(*command: str) -> str:
    """Run a tool to its end and return its output. Raises SetupError with what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"{' '.join(command)}: not done after {_DEADLINE_S:.0f} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise SetupError(f"{' '.join(command)}: exit code {done.returncode}: {said}")
    return done.stdout


def _diskseq(loop: str) -> int:
    return int(Path("/sys/block", Path(loop).name, "diskseq").read_text())


def _unmount(where: Path) -> None:
    """Unmount `where`, lazily if it is in use; nothing if nothing is mounted there."""
    for options in ((), ("--lazy",)):
        with suppress(SetupError):
            _run("umount", *options, str(where))
            return


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_DEADLINE_S / 4)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(
    condition: Callable[[], bool],
    what: str,
    process: subprocess.Popen[bytes] | None = None,
    log: Path | None = None,
) -> None:
    """Wait until `condition` holds. Raises SetupError past the deadline, or once `process` has ended."""
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        if process is not None and process.poll() is not None:
            said = log.read_text(errors="replace").strip() if log else ""
            raise SetupError(f"waiting for {what}: it ended with code {process.returncode}: {said}")
        if time.monotonic() > deadline:
            raise SetupError(f"waited {_DEADLINE_S:.0f} s in vain for {what}")
        time.sleep(_POLL_S)
