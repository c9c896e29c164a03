"""A real kernel, file system and block device over a drive that can lose power. Root on Linux only.

    media (a file) <- nbdkit: the drive <- nbdfuse: a file <- loop: a block device <- file system, or nothing

A flush of the file system reaches the drive as an NBD flush. SIGKILL of nbdkit is the cut: everything above
sees I/O errors, as when a drive drops off its bus, and the content of the drive's cache is gone. `power_on`
then sets everything up again, on the same paths, with a newly enumerated loop device.

The drives are the models of `faults`, and two drives made by nbdkit's own cache filter, which shares no code
with the models: `filter-honest`, and `filter-amnesiac`, which loses all data written since power-on.

A loop device always reports a volatile cache. For a drive without one, the rig sets `queue/write_cache` to
`write through`, and the kernel sends no flush, as with a real drive of this kind. Loop devices do not know
FUA: the kernel sends a write and a flush in its place. A drive that ignores only FUA cannot be distinguished
here.

A rig made with `disturbed` has two more parts in front of the drive. `failing` makes every write fail with
EIO for the duration of a block. `stop_answering` holds every request until the cut, or until `answer`. The
drive behind them goes on with the requests that it has accepted. Its `events` can make it fail, or lose its
power, at one request.

`detach` removes the block device and everything above it while the drive keeps its power, like the end of an
operating system. `attach` attaches it again.

A missing tool or privilege is a SetupError that names it. Nothing of a rig is left after its `with` block,
even after an exception. A client that still holds the device then finds it dead. `cleanup` removes the rig if
the process that set it up is killed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from durability.errors import SetupError
from durability.protocol.local_address import PATH_BYTES_MAX
from durability_client.system import device_users
from durability_lab.drive import NBDKIT_PLUGIN, faults
from durability_lab.drive.drive_check import DriveCheck, check_drive
from durability_lab.drive.drive_events import NOT, DriveEvents
from durability_lab.drive.drive_log import DriveLog
from durability_lab.support import privileges
from durability_lab.support.cleanup import DRIVE_FILE, MOUNT_POINT, PID_SUFFIX, Cleanup, in_memory, watched
from durability_lab.support.loads import FileSystemName
from durability_lab.truth.expected_verdict import FILTERS

SIZE_BYTES = 384 << 20  # enough for each file system; the media file is sparse

_DEADLINE_S = 120.0  # long, for busy machines: an abandoned mount goes on and keeps its device
_MOUNT_DEADLINE_S = 250.0  # on a busy machine, replaying a slow drive's journal takes more than a minute
_POLL_S = 0.002
_NO_ROOM_BYTES = 1 << 20  # with less space left for the media, a failure is reported as lack of space
_MKFS: dict[FileSystemName, tuple[str, ...]] = {
    "ext4": ("-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("-q", "-f"),
    "btrfs": ("-q", "-f"),
}
_WITHOUT_LOOP_MOUNTS: Final = """
    kept=$1
    shift
    while read -r device directory rest; do
        case "$device $directory" in
            *" $kept") ;;
            /dev/loop*" "/?*) umount --lazy "$directory" ;;
        esac
    done </proc/self/mounts
    exec "$@"
"""
_DEVICES = (Path("/dev/fuse"), Path("/dev/loop-control"))
_PACKAGES = "nbdkit nbdkit-plugin-python libnbd-bin fuse3 e2fsprogs xfsprogs btrfs-progs util-linux"


class MountError(SetupError):
    """The file system on the drive cannot be mounted; after a cut, this may be the loss itself."""


def without_loop_mounts(*, but: Path | None = None) -> tuple[str, ...]:
    """The words before a command that unmount all loop devices for it, except the one at `but`.

    mkfs.btrfs examines the file behind each mounted loop device and fails at a dead one. A program in its own
    mount namespace would also keep the drives of others busy until it ends.
    """
    return ("unshare", "--mount", "sh", "-c", _WITHOUT_LOOP_MOUNTS, "sh", str(but or ""))


def missing(file_system: FileSystemName | None = None) -> str:
    """What this machine lacks for a rig, as a sentence; "" if nothing is missing."""
    problem = privileges.missing(
        "a drive under a real file system",
        capabilities=("CAP_SYS_ADMIN",),
        devices=_DEVICES,
        over_machine=True,
    )
    if problem:
        return problem
    if os.statvfs("/sys").f_flag & os.ST_RDONLY:
        return "/sys is mounted read-only, and a loop device is set up there: run in a privileged container"
    tools = ["nbdkit", "nbdfuse", "losetup", "mount", "umount", "unshare"]
    tools += [f"mkfs.{file_system}"] if file_system else []
    absent = [tool for tool in tools if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} not found: install {_PACKAGES}"
    if subprocess.run(("nbdkit", "python", "--dump-plugin"), capture_output=True, check=False).returncode:
        return f"nbdkit has no Python plugin: install {_PACKAGES}"
    return ""


class BlockRig:
    """One drive with its block device, and the file system on it if `file_system` names one.

    Use it in a `with` statement, which powers the drive on, makes the file system and mounts it. `target` is
    the client's target: a file of the mounted file system, or the block device. The drive's sectors have 4096
    bytes under a file system, because file systems rely on blocks that are not torn. On the raw device, they
    have 512 bytes.
    """

    def __init__(
        self,
        drive: str,
        file_system: FileSystemName | None,
        *,
        seed: int,
        size_bytes: int = SIZE_BYTES,
        parent: Path | None = None,
        disturbed: bool = False,
    ) -> None:
        problem = missing(file_system)
        if problem:
            raise SetupError(f"cannot set up a drive that can lose power: {problem}")
        self.drive = drive
        self.file_system = file_system
        self.sector_bytes = 4096 if file_system else 512
        self.loop = ""
        self.power_ons = 0
        self._write_through = drive not in FILTERS and not faults.parse(drive).volatile
        self._seed = seed
        self._size_bytes = size_bytes
        self._parent = parent
        self._disturbed = disturbed
        self._diskseq = 0
        self._attached = False
        self._nbdkit: _Program | None = None
        self._nbdfuse: _Program | None = None
        self._events: DriveEvents | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Power the drive on for the first time, make the file system and mount it; `close` undoes this.
        Raises SetupError, and then leaves nothing behind."""
        self._directory = Path(tempfile.mkdtemp(prefix="durability-rig-", dir=self._parent or in_memory()))
        self._cleanup = Cleanup(self._directory)
        self._media = self._directory / "media"
        self._device_file = self._directory / DRIVE_FILE
        self.mount_point = self._directory / MOUNT_POINT
        self._drive_log = self._directory / "drive_log"
        self._failing = self._directory / "failing"
        try:
            self._events = DriveEvents(str(self._directory / "events"))
            with self._media.open("wb") as file:
                file.truncate(self._size_bytes)
            self._device_file.touch()
            self.mount_point.mkdir()
            self.power_on()
            if self.file_system:
                mkfs = (f"mkfs.{self.file_system}", *_MKFS[self.file_system], self.loop)
                _run(*mkfs, before=without_loop_mounts())
                self.mount()
        except BaseException as error:
            full = isinstance(error, SetupError | OSError) and _free_bytes(self._directory) < _NO_ROOM_BYTES
            self.close()
            if full:
                where = self._directory.parent
                raise SetupError(f"no space is left in {where} for the drive's media") from error
            raise

    @property
    def target(self) -> Path:
        """The target path for `durability run` and `verify`; a raw device's path may change at `power_on`."""
        return self.mount_point / "target" if self.file_system else Path(self.loop)

    @property
    def device(self) -> Path:
        """The block device, for `verify --device`."""
        return Path(self.loop)

    def power_on(self) -> None:
        """Start the drive and attach its block device, also after a cut. Does not mount. Raises SetupError if
        a part does not start, or if a process still holds the previous device."""
        if self.power_ons:
            self._detach()
            self.events.happen(failing=NOT, reads=0)
        self.power_ons += 1
        listener = self._listener
        if len(os.fsencode(listener.absolute())) > PATH_BYTES_MAX:
            raise SetupError(
                f"{self._directory.parent}: its path is too long for a socket; choose a shorter path"
            )
        ready = self._directory / f"nbdkit.{self.power_ons}.ready"
        command = ("nbdkit", "-f", "-U", str(listener), "-P", str(ready), *self._drive_command())
        self._nbdkit = _Program(self._directory, *command)
        self._nbdkit.wait_for(ready.exists, "to listen")
        self.attach()

    def attach(self) -> None:
        """Attach the block device of a drive that has power, after `detach`. Raises SetupError as `power_on`
        does."""
        if self.loop:
            self._await_release()
        listener = self._listener
        self._nbdfuse = _Program(self._directory, "nbdfuse", str(self._device_file), "--unix", str(listener))
        self._nbdfuse.wait_for(
            lambda: self._device_file.stat().st_dev != self._directory.stat().st_dev, "to show the drive"
        )
        assert self._nbdkit is not None, "no drive to attach: power_on first"
        self._nbdfuse.end_with(self._nbdkit)
        # Direct I/O: otherwise a page cache below the block device would answer reads after the cut.
        options = ("--direct-io=on", f"--sector-size={self.sector_bytes}")
        self.loop = _run("losetup", "--find", "--show", *options, str(self._device_file)).strip()
        self._attached = True
        self._diskseq = _diskseq(self.loop)
        # Set in both cases: the setting belongs to the loop device and survives its attached file.
        _set_write_cache(self.loop, "write through" if self._write_through else "write back")

    @property
    def events(self) -> DriveEvents:
        """The events file of the drive; the rig must be open."""
        assert self._events is not None, "no drive yet: open first"
        return self._events

    @property
    def powered(self) -> bool:
        """Whether the drive has power. With `events`, a drive may lose power by itself; call `cut` then."""
        return self._nbdkit is not None and self._nbdkit.runs

    def detach(self, *, in_order: bool) -> None:
        """Remove the file system and the block device; the drive keeps its power.

        `in_order`: all written data go to the drive first; otherwise no more data do. Processes that hold a
        file must have ended.
        """
        if not in_order and self._nbdfuse is not None:
            self._nbdfuse.kill()
        self._detach_device()

    def unmount(self) -> None:
        """Unmount the file system in order. Raises SetupError."""
        _run("umount", str(self.mount_point))

    def mount(self) -> None:
        """Mount the file system, replaying its journal. Raises MountError."""
        assert self.file_system
        try:
            command = ("mount", "-t", self.file_system, self.loop, str(self.mount_point))
            _run(*command, deadline_s=_MOUNT_DEADLINE_S)
        except _OverdueError:
            raise  # an overdue mount shows nothing about the file system
        except SetupError as error:
            raise MountError(str(error)) from error

    def cut(self) -> None:
        """Cut the power now. Everything above sees I/O errors from then on."""
        assert self._nbdkit is not None, "no drive to cut: power_on first"
        self._nbdkit.kill()
        self._nbdkit = None
        if self._nbdfuse is not None:
            self._nbdfuse.kill()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Make every write fail with EIO for the duration of the block; reads and flushes work."""
        assert self._disturbed
        self._failing.touch()
        try:
            yield
        finally:
            self._failing.unlink()

    def stop_answering(self) -> None:
        """Hold every request until the next cut or `answer`; returns when no request is in the drive."""
        self._control_pause(b"p")

    def answer(self) -> None:
        """Undo `stop_answering`."""
        self._control_pause(b"r")

    def has_drained(self) -> bool:
        """Whether all promised data are on the media, so that a cut now would lose none of them.

        Only for drives whose media are a plain image; works with the power on.
        """
        with self._media.open("rb") as media:

            def read(offset: int, length: int) -> bytes:
                return os.pread(media.fileno(), length, offset)

            return not DriveLog(str(self._drive_log)).broken(read, self._size_bytes)

    def drive_check(self) -> DriveCheck | None:
        """The check of the drive's promises; None for nbdkit's own filters. Call it after `cut` and before
        `power_on`."""
        assert self._nbdkit is None, "the drive has power: cut it first"
        if self.drive in FILTERS:
            return None
        return check_drive(
            media=self._media,
            drive_log=self._drive_log,
            drive=self.drive,
            seed=self._seed,
            sector_bytes=self.sector_bytes,
            cuts=self.power_ons,
        )

    def close(self) -> None:
        """Remove the whole rig, in any state."""
        try:
            self._detach()
        finally:
            if self._events is not None:
                self._events.close()
            self._cleanup.dismiss()

    def _drive_command(self) -> tuple[str, ...]:
        if self.drive in FILTERS:
            return "--filter=cache", "file", f"file={self._media}", f"cache={FILTERS[self.drive]}"
        filters = ("--filter=pause", "--filter=error") if self._disturbed else ()
        settings = (
            f"pause-control={self._pause_socket}",
            "error-pwrite=EIO",
            "error-pwrite-rate=100%",
            f"error-file={self._failing}",
            f"events={self._directory / 'events'}",
        )
        return (
            *filters,
            "python",
            f"script={NBDKIT_PLUGIN}",
            f"media={self._media}",
            f"model={self.drive}",
            f"seed={self._seed}",
            f"sector_bytes={self.sector_bytes}",
            f"cuts={self.power_ons - 1}",
            f"drive_log={self._drive_log}",
            *(settings if self._disturbed else ()),
        )

    @property
    def _listener(self) -> Path:
        return self._directory / f"nbd.{self.power_ons}.sock"

    @property
    def _pause_socket(self) -> Path:
        return self._directory / f"pause.{self.power_ons}.sock"

    def _control_pause(self, order: bytes) -> None:
        assert self._disturbed
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(_DEADLINE_S)
            control.connect(str(self._pause_socket))
            control.sendall(order)
            if control.recv(1) != order.upper():
                raise SetupError(f"nbdkit's pause filter does not obey {order!r}")

    def _detach(self) -> None:
        """Undo all steps, even if an earlier step fails. The drive goes first: a hanging drive would block
        everything above it."""
        if self._nbdkit is not None:
            self.cut()
        self._detach_device()

    def _detach_device(self) -> None:
        _unmount(self.mount_point)
        if self._attached:
            self._attached = False
            with suppress(SetupError, OSError):
                _set_write_cache(self.loop, "write back")  # otherwise its next user would send no flush
            with suppress(SetupError):
                _run("losetup", "--detach", self.loop)
        _unmount(self._device_file)
        if self._nbdfuse is not None:
            self._nbdfuse.kill()
            self._nbdfuse = None

    def _await_release(self) -> None:
        """Wait until no process holds the previous loop device. Raises SetupError, which names a holder."""
        try:
            _wait_for(self._released, f"every user of {self.loop} to let go of it")
        except SetupError as error:
            name = Path(self.loop).name
            use = device_users.writer_of(name) or device_users.use_of_device(name)
            raise SetupError(f"{error}: {use.text if use else 'none is found'}") from error

    def _released(self) -> bool:
        """Whether the kernel has released the previous loop device, which happens after its last user."""
        return _diskseq(self.loop) != self._diskseq


class _Program:
    """A running program of the rig; its process id is in a file, for the cleanup process."""

    def __init__(self, directory: Path, name: str, *arguments: str) -> None:
        self._name = name
        self._log = directory / f"{name}.log"
        self._pid_file = directory / f"{name}{PID_SUFFIX}"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                watched(directory, name, (name, *arguments)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until `condition` holds. Raises SetupError at the deadline, or once the program has ended."""

        def holds() -> bool:
            if self._process.poll() is None:
                return condition()
            said = self._log.read_text(errors="replace").strip()
            raise SetupError(f"{self._name} ended with code {self._process.returncode}: {said}")

        _wait_for(holds, f"{self._name} {what}")

    @property
    def runs(self) -> bool:
        """Whether the program has not ended."""
        return self._process.poll() is None

    def end_with(self, drive: Self) -> None:
        """Kill the program once `drive` has ended, even if `drive` ended by itself.

        nbdfuse usually dies then anyway. If it lives, it fails requests with EINVAL, but a kernel gives EIO
        for a drive without power.
        """

        def end() -> None:
            drive._process.wait()
            self._process.kill()

        threading.Thread(target=end, daemon=True).start()

    def kill(self) -> None:
        """Kill the program, as a power cut does, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        self._pid_file.unlink(missing_ok=True)  # a program that was just started has no file yet


def _free_bytes(directory: Path) -> int:
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize


class _OverdueError(SetupError):
    """A tool did not end before its deadline."""


def _run(*command: str, before: tuple[str, ...] = (), deadline_s: float = _DEADLINE_S) -> str:
    """Run a tool to its end, with the words `before` in front, and return its output.

    Raises SetupError with the first line of the tool's message; some tools print their usage below it.
    """
    # `subprocess.run` would wait after its deadline for a tool that waits for its drive.
    process = subprocess.Popen(
        (*before, *command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",  # a tool's message may name a mount point that is not valid text
    )
    try:
        out, err = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired as error:
        process.kill()
        raise _OverdueError(f"{command[0]}: not done after {deadline_s:.0f} s") from error
    if process.returncode != 0:
        said = (err.strip() or out.strip()).partition("\n")[0]
        raise SetupError(f"{command[0]}: exit code {process.returncode}: {said}")
    return out


def _diskseq(loop: str) -> int:
    return int(Path("/sys/block", Path(loop).name, "diskseq").read_text())


def _set_write_cache(loop: str, value: str) -> None:
    """Set whether the kernel treats the device as one with a volatile cache, which gets flushes."""
    setting = Path("/sys/block", Path(loop).name, "queue/write_cache")
    setting.write_text(value)
    if setting.read_text().strip() != value:
        raise SetupError(f"{setting} does not change to {value!r}: this kernel cannot present such a drive")


def _unmount(where: Path) -> None:
    """Unmount `where`, lazily if it is in use; does nothing if nothing is mounted there."""
    for options in ((), ("--lazy",)):
        with suppress(SetupError):
            _run("umount", *options, str(where))
            return


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until `condition` holds. Raises SetupError after the deadline."""
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SetupError(f"waited {_DEADLINE_S:.0f} s without success for {what}")
        time.sleep(_POLL_S)
