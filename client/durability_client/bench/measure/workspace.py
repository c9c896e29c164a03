"""The place where cells are measured: test files in a directory, or a device that may be overwritten.

If TARGET is a directory, or a file in one, a working directory is made in that directory. It contains all
test files, and is removed when the measurement ends for any reason. After a SIGKILL or a power cut, the next
measurement there recognises it by its name and its unlocked lock file, and removes it.

Existing files are neither written nor removed. If TARGET is a file, its first and last blocks are read. A
file that this tool did not write is refused, because the user who names it expects something else. A block
device needs the user's consent (see `safety_checks`), and is locked against other users.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from durability.bench.cells import MIB, Cell, file_sizes
from durability.bench.filled import FILLED_SHARE
from durability.errors import TargetError, UsageError
from durability.formats.mixing import combine
from durability_client.bench.measure.job import JobTask
from durability_client.bench.measure.payload import Payload
from durability_client.system import block_devices
from durability_client.system.mounts import mount_of
from durability_client.system.output_files import sync_directory
from durability_client.target import safety_checks
from durability_client.target.discovery import drives_below
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.safety_checks import Consent

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 64 * MIB  # size of the control measurement in memory
_NAME = "durability-bench-"
_NAMES = re.compile(re.escape(_NAME) + r"[0-9a-f]{16}")
_LOCK = "lock"
_LOCK_TEXT = "durability bench made this directory; it may be removed when no bench is running\n"
_MODE = 0o600
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_MEMORY_DRIVE = re.compile(r"(zram|ram|brd)\d+")
_FILE_BYTES_MAX = (16 << 40) - MIB  # largest file on ext4; half of the free space of drives up to twice that
_OPEN: set[Path] = set()  # working directories of this process

Progress: TypeAlias = Callable[[int, int], None]


class LackError(Exception):
    """A cell needs something that this place does not have. This is not an error of the target."""


class CellPlace(Protocol):
    """A place for cells. All methods raise OSError for errors of the target."""

    where: Path  # the directory or device
    leftovers: list[Path]  # working directories of killed measurements that were removed
    others: list[Path]  # working directories of measurements that still run here

    def require_room(self, cells: Sequence[Cell]) -> None:
        """Raises TargetError if there is not enough space for `cells`. Writes nothing."""

    def prepare(self, cells: Sequence[Cell], progress: Progress) -> None:
        """Write and sync the data that cells overwrite. `progress` gets bytes done and bytes in all."""

    def begin(self, cell: Cell, seed: int) -> list[JobTask]:
        """Prepare the cell's files, and return the task of each of its jobs. Raises LackError."""

    def end(self, cell: Cell) -> None:
        """Remove the files that `begin` made."""

    def close(self) -> str:
        """Remove all test files. Returns a sentence if that failed, else ""."""


def check_target(path: Path, consent: Consent) -> None:
    """Refuse an unsuitable TARGET (absolute, symbolic links resolved). Raises TargetError, UsageError."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        safety_checks.check_path(path, consent)
        # Otherwise its parent would be measured: with a mistyped mount point, that is the system's disk.
        raise TargetError(
            f"{path} does not exist, expected a directory, a file in one or a block device; create it, or "
            "mount its file system"
        ) from error
    except OSError:
        mode = 0
    if stat.S_ISDIR(mode):
        safety_checks.check_directory(path)
        return
    safety_checks.check_path(path, consent)
    if stat.S_ISBLK(mode):
        safety_checks.check_evidence(path, consent)
    else:
        safety_checks.check_contents(KernelStorage(path))


def place_of(path: Path, consent: Consent, *, size_bytes: int) -> CellPlace:
    """The place for TARGET. Raises like `check_target`."""
    check_target(path, consent)
    if path.is_block_device():
        return Device(path, size_bytes=size_bytes)
    return Directory(path if path.is_dir() else path.parent, size_bytes=size_bytes)


def memory(size_bytes: int) -> CellPlace | None:
    """The place for the control measurement in memory; None without a tmpfs with enough space."""
    mount = mount_of(MEMORY)
    if mount is None or mount.type != "tmpfs" or not os.access(MEMORY, os.W_OK):
        return None
    file_system = os.statvfs(MEMORY)
    size_bytes = min(size_bytes, MEMORY_BYTES)
    if file_system.f_bavail * file_system.f_frsize < 4 * size_bytes:
        return None
    return Directory(MEMORY, size_bytes=size_bytes)


class Directory:
    """Cells in files, in a working directory in `parent`. A job's file has the job's share of
    `size_bytes`."""

    def __init__(self, parent: Path, *, size_bytes: int) -> None:
        self.where = parent
        self._size_bytes = size_bytes
        self.leftovers = remove_leftovers(parent)
        self.others = [
            path for path in _working_directories(parent) if path not in _OPEN and _lock_of(path) == "held"
        ]
        try:
            self._lock_fd, self._own = _make_working_directory(parent)
        except OSError as error:
            raise TargetError(f"{parent}: cannot create a file in it: {error.strerror}") from error
        _OPEN.add(self._own)
        self._owner = self._own.lstat().st_uid
        if self._owner != os.geteuid():  # on a file system where one user owns all files
            self.leftovers += remove_leftovers(parent, owner=self._owner)

    def require_room(self, cells: Sequence[Cell]) -> None:
        """Raises TargetError if there is too little space for the files that `cells` need at a time."""
        passing = self._size_bytes if any(not cell.goes_on for cell in cells) else 0
        needed_bytes = sum(file_sizes(cells, self._size_bytes)) + passing
        needed_bytes += needed_bytes // 64 + MIB  # for the file system's own metadata
        file_system = os.statvfs(self._own)
        free_bytes = file_system.f_bavail * file_system.f_frsize
        if free_bytes < needed_bytes:
            raise TargetError(
                f"{self.where}: {free_bytes >> 20} MiB free, {-(-needed_bytes >> 20)} MiB needed; lower "
                "--size, or free some space"
            )

    def prepare(self, cells: Sequence[Cell], progress: Progress) -> None:
        """Write and sync the files that several cells overwrite, and their directories."""
        sizes = file_sizes(cells, self._size_bytes)
        done, total = 0, sum(sizes)
        for number, size_bytes in enumerate(sizes):
            for written in _fill(self._file("whole", number), size_bytes, seed=number, create=True):
                done += written
                progress(done, total)
        sync_directory(self._own)
        sync_directory(self.where)

    def begin(self, cell: Cell, seed: int) -> list[JobTask]:
        """The tasks for one file per job, or one file for all jobs: files of `prepare`, or new ones."""
        span = self._fill_bytes() if cell.fills else self._size_bytes // (1 if cell.shared else cell.jobs)
        paths = []
        for number in range(1 if cell.shared else cell.jobs):
            if cell.goes_on:
                paths.append(self._file("whole", number))
            else:
                paths.append(self._file("passing", number))
                self._make(paths[-1], cell, span)
        if not cell.goes_on:
            sync_directory(self._own)
        return [
            JobTask(
                cell=cell,
                path=str(paths[0 if cell.shared else job]),
                offset_bytes=0,
                span_bytes=span,
                seed=combine(seed, job),
            )
            for job in range(cell.jobs)
        ]

    def end(self, cell: Cell) -> None:
        """Remove the files or directories that only this cell used."""
        if cell.goes_on:
            return
        for number in range(cell.jobs):
            path = self._file("passing", number)
            if cell.workload == "create":
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        sync_directory(self._own)  # so that the next round does not include this work

    def close(self) -> str:
        """Remove the working directory and release its lock. Returns a sentence if that failed, else ""."""
        _OPEN.discard(self._own)
        try:
            _remove(self._own, self._owner)
        except FileNotFoundError:
            return ""  # the directory is already gone
        except OSError as error:
            return (
                f"{self._own} could not be removed ({error.strerror}); remove it when the target works again"
            )
        finally:
            os.close(self._lock_fd)
        return ""

    def _fill_bytes(self) -> int:
        """Most of the free space, in whole MiB. Raises LackError if the space is memory, or smaller than the
        size for other cells."""
        mount = mount_of(self._own)
        if mount is not None and mount.type in _IN_MEMORY:
            raise LackError(_in_memory(mount.type))
        _require_drives(drives_below(self._own))
        file_system = os.statvfs(self._own)
        span = int(file_system.f_bavail * file_system.f_frsize * FILLED_SHARE) // MIB * MIB
        if span < self._size_bytes:
            raise LackError(f"needs more free space than {span >> 20} MiB, to write most of it")
        return min(span, _FILE_BYTES_MAX) if mount is not None and mount.type == "ext4" else span

    def _file(self, kind: str, number: int) -> Path:
        return self._own / f"{kind}-{number:02d}"

    def _make(self, path: Path, cell: Cell, span_bytes: int) -> None:
        """Make a file or directory in the state that `cell` needs. Only its name is not durable yet."""
        if cell.workload == "create":
            path.mkdir(0o700)
            return
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        try:
            if cell.workload != "append":
                if cell.fills:
                    _preallocate_most(fd, span_bytes)
                elif cell.file_state == "fresh":
                    _preallocate(fd, span_bytes)
                os.ftruncate(fd, span_bytes)
            os.fsync(fd)
        finally:
            os.close(fd)


class Device:
    """Cells on a block device. The jobs use adjacent ranges of its first `size_bytes`."""

    def __init__(self, path: Path, *, size_bytes: int) -> None:
        self.leftovers: list[Path] = []
        self.others: list[Path] = []
        self.where = path
        self._storage = KernelStorage(path)
        self._storage.lock()
        device_bytes = self._storage.size("")
        if device_bytes < size_bytes:
            self._storage.unlock()
            raise UsageError(
                f"{path}: the device has {device_bytes} bytes, fewer than --size {size_bytes}; lower --size"
            )
        self._size_bytes = size_bytes

    def require_room(self, cells: Sequence[Cell]) -> None:
        """Do nothing, because the constructor has checked the size."""

    def prepare(self, cells: Sequence[Cell], progress: Progress) -> None:
        """Write and sync the first `size_bytes` of the device."""
        done = 0
        for written in _fill(self._storage.path, self._size_bytes, seed=0, create=False):
            done += written
            progress(done, self._size_bytes)

    def begin(self, cell: Cell, seed: int) -> list[JobTask]:
        """Each job's share of the device, in whole MiB. Raises LackError for a cell that needs files."""
        if cell.needs_file_system:
            raise LackError("needs a file system, but TARGET is a device")
        if cell.fills:
            number = self._storage.path.stat().st_rdev
            name = block_devices.name_of((os.major(number), os.minor(number)))
            _require_drives(block_devices.stack_of((name,)).leaves if name is not None else ())
            span = int(self._storage.size("") * FILLED_SHARE) // MIB * MIB
            task = JobTask(
                cell=cell, path=str(self._storage.path), offset_bytes=0, span_bytes=span, seed=seed
            )
            return [task]
        span = self._size_bytes // (1 if cell.shared else cell.jobs) // MIB * MIB
        return [
            JobTask(
                cell=cell,
                path=str(self._storage.path),
                offset_bytes=0 if cell.shared else job * span,
                span_bytes=span,
                seed=combine(seed, job),
            )
            for job in range(cell.jobs)
        ]

    def end(self, cell: Cell) -> None:
        """Do nothing, because there are no files to remove on a device."""
        pass

    def close(self) -> str:
        """Release the device's lock. Always returns ""."""
        self._storage.unlock()
        return ""


def _require_drives(names: Sequence[str]) -> None:
    """Raises LackError if one of the drives is in memory, which this cell would fill."""
    if memory_name := next(filter(_MEMORY_DRIVE.fullmatch, names), ""):
        raise LackError(_in_memory(memory_name))


def _in_memory(what: str) -> str:
    return f"needs a drive, but TARGET is in memory ({what})"


def check_size(cells: Sequence[Cell], size_bytes: int) -> None:
    """Refuse a size that is too small for one of the cells. Raises UsageError."""
    needs = {cell.name: _needed_bytes(cell) for cell in cells if cell.place == "target"}
    name = max(needs, key=needs.__getitem__, default="")
    if needs and size_bytes < needs[name]:
        raise UsageError(
            f"--size {size_bytes} is too small for {name}, which needs {needs[name]} bytes; raise --size, or "
            "choose other cells with --only"
        )


def _needed_bytes(cell: Cell) -> int:
    """The bytes that a cell needs: whole MiB per job, and enough that no block is written twice per
    commit."""
    blocks = max(1, cell.writes_per_sync) * (1 if cell.shared else cell.jobs)
    return max(-(-cell.block_bytes * blocks // MIB), 1 if cell.shared else cell.jobs) * MIB


def sync(tasks: Sequence[JobTask]) -> None:
    """Write back the data that another program wrote to the files of `tasks`, so that none are written during
    another measurement. Raises OSError."""
    for path in dict.fromkeys(task.path for task in tasks):
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def remove_leftovers(parent: Path, *, owner: int | None = None) -> list[Path]:
    """Remove working directories in `parent` of killed measurements, and return them. `owner`: owner of the
    directories, None for this user."""
    whose = os.geteuid() if owner is None else owner
    removed = []
    for directory in _working_directories(parent):
        if _is_of(directory, whose) and _lock_of(directory) == "free":
            with suppress(OSError):
                _remove(directory, whose)
                removed.append(directory)
    return removed


def _working_directories(parent: Path) -> list[Path]:
    """The entries of `parent` with names of working directories."""
    with suppress(OSError):
        names = sorted(filter(_NAMES.fullmatch, os.listdir(parent)))  # noqa: PTH208 - names are compared
        return [parent / name for name in names]
    return []


def _is_of(directory: Path, owner: int) -> bool:
    """Whether it is a directory of that user. Another user could replace theirs by a link during removal."""
    with suppress(OSError):
        found = directory.lstat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid == owner
    return False


def _remove(directory: Path, owner: int) -> None:
    """Remove a working directory, its lock file last, so that remains after a kill or error are recognised.

    The contents are removed through a descriptor, because the owner of the directory above could replace the
    directory by a link. Raises OSError.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_uid != owner:
            raise PermissionError(errno.EPERM, "it is another user's now")
        for name in os.listdir(fd):  # noqa: PTH208 - by the descriptor
            if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=fd)
            elif name != _LOCK:
                os.unlink(name, dir_fd=fd)
        with suppress(FileNotFoundError):
            os.unlink(_LOCK, dir_fd=fd)
    finally:
        os.close(fd)
    directory.rmdir()


def _lock_of(directory: Path) -> Literal["held", "free", "not ours"]:
    """Whether a process holds the lock of the working directory, or the directory is not this tool's."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        try:
            fd = os.open(directory / _LOCK, os.O_RDWR | flags)  # NFSv4 locks only writable files
        except PermissionError:
            fd = os.open(directory / _LOCK, os.O_RDONLY | flags)
    except OSError:
        return "not ours"
    try:
        if os.pread(fd, len(_LOCK_TEXT) + 1, 0) != _LOCK_TEXT.encode():
            return "not ours"
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return "free"
    except BlockingIOError:
        return "held"
    except OSError:
        return "not ours"
    finally:
        os.close(fd)


def _make_working_directory(parent: Path) -> tuple[int, Path]:
    """Make a directory in `parent` with a lock file that is locked from the start. Returns the lock file's
    descriptor, and the directory's path."""
    own = parent / f"{_NAME}{secrets.token_hex(8)}"
    own.mkdir(0o700)
    unnamed = own / f"{_LOCK}.new"
    fd = -1
    try:
        fd = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(fd, _LOCK_TEXT.encode())
        unnamed.rename(own / _LOCK)
    except BaseException:
        if fd >= 0:
            os.close(fd)
        shutil.rmtree(own, ignore_errors=True)
        raise
    return fd, own


def _fill(path: Path, size_bytes: int, *, seed: int, create: bool) -> Iterator[int]:
    """Write `size_bytes` (a multiple of 1 MiB) of incompressible data, then sync. Yields each bytes
    written."""
    pool = Payload("unique", block_bytes=MIB, seed=combine(seed, size_bytes))
    flags = os.O_WRONLY | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
    with _opened(path, flags) as fd:
        for offset in range(0, size_bytes, MIB):
            number = offset // MIB % pool.count
            if number == 0:
                pool.refresh()
            if os.pwrite(fd, pool.views[number], offset) != MIB:
                raise OSError(errno.ENOSPC, f"short write at offset {offset} of {path}")
            yield MIB
        os.fsync(fd)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Open the file, with O_DIRECT if its file system supports that."""
    flags |= os.O_NOFOLLOW
    try:
        fd = os.open(path, flags | getattr(os, "O_DIRECT", 0), _MODE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fd = os.open(path, flags & ~os.O_EXCL, _MODE)  # the failed open may have made the file
    try:
        yield fd
    finally:
        os.close(fd)


def _preallocate_most(fd: int, size_bytes: int) -> None:
    """Like `_preallocate`, but raises LackError if the size is more than a file or this user may have."""
    try:
        _preallocate(fd, size_bytes)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise LackError(f"needs {size_bytes >> 20} MiB, more than a file may have here") from error
        if error.errno not in (errno.EDQUOT, errno.ENOSPC):
            raise
        raise LackError(f"needs {size_bytes >> 20} MiB, more than this user may have here") from error


def _preallocate(fd: int, size_bytes: int) -> None:
    """Call fallocate(2), since posix_fallocate writes data if the file system lacks it. Raises LackError."""
    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if fallocate is None:
        raise LackError("needs fallocate, which this system does not have")
    if fallocate(fd, 0, ctypes.c_longlong(0), ctypes.c_longlong(size_bytes)):
        code = ctypes.get_errno()
        if code in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise LackError("needs fallocate, which this file system does not have")
        raise OSError(code, os.strerror(code))
