"""The target on a real kernel: files and block devices, opened so that syncs work as the plan requires.

If the system lacks a sync method or O_DIRECT, opening fails instead of using a weaker method. This module
does not decide whether a target may be overwritten (`safety_checks` does), and retries no failed operation.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from durability.errors import TargetBusyError, TargetError, UnreadableTargetError, UsageError
from durability.formats.facts import Drive, Facts
from durability.formats.plan import CONTROL, MAIN, Plan, SyncMethod, TargetKind, parse_name
from durability_client.system import block_devices, encrypted_directories
from durability_client.system.path_walk import OpenName, place_of, real_path
from durability_client.target import discovery as facts_module
from durability_client.target.commit_check import CommitCheck, commit_check, require_alive
from durability_client.target.drive_watch import KernelDriveWatch
from durability_client.target.storage import MEDIUM_ERRORS, Buffer, PresentDrive, WritableBuffer

_O_DIRECT: int | None = getattr(os, "O_DIRECT", None)
_F_FULLFSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_F_NOCACHE: int | None = getattr(fcntl, "F_NOCACHE", None)
_EUCLEAN: int | None = getattr(errno, "EUCLEAN", None)
_MODE = 0o600


class KernelFile:
    """A `TargetFile` on a kernel descriptor. It owns the descriptor and `check`."""

    __slots__ = ("_check", "_fd", "_sync", "direct")

    def __init__(
        self,
        fd: int,
        *,
        sync: Callable[[int], None] | None,
        direct: bool,
        check: CommitCheck | None = None,
    ) -> None:
        self._fd = fd
        self._sync = sync
        self.direct = direct
        self._check = check

    def pwrite(self, buffer: Buffer, offset: int) -> None:
        """Write all of `buffer` in one call. A short write raises OSError with EIO."""
        written = os.pwrite(self._fd, buffer, offset)
        if written != len(buffer):
            raise _short_write(written, buffer, offset)

    def sync(self) -> None:
        """Call the sync method, unless each write syncs itself, then `check`. Raises OSError."""
        if self._sync is not None:
            self._sync(self._fd)
        if self._check is not None:
            self._check()

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        """Read with one preadv(2). Returns the bytes read, fewer only at the end. Raises OSError."""
        return os.preadv(self._fd, [buffer], offset)

    def size(self) -> int:
        """Bytes from start to end, of a file or a block device."""
        return os.lseek(self._fd, 0, os.SEEK_END)  # fstat returns size 0 for a block device

    def truncate(self, size_bytes: int) -> None:
        """One ftruncate(2) to `size_bytes`. Raises OSError."""
        os.ftruncate(self._fd, size_bytes)

    def close(self) -> None:
        """Close the descriptor; nothing is synced."""
        os.close(self._fd)
        if self._check is not None:
            self._check.close()


class _SyncedWriteFile(KernelFile):
    """A `KernelFile` whose every write carries RWF_DSYNC."""

    __slots__ = ()

    def pwrite(self, buffer: Buffer, offset: int) -> None:
        written = os.pwritev(self._fd, [buffer], offset, os.RWF_DSYNC)
        if written != len(buffer):
            raise _short_write(written, buffer, offset)


class KernelDirectory:
    """A `TargetDirectory` on a kernel descriptor, which it owns."""

    __slots__ = ("_fd",)

    def __init__(self, path: Path, *, below: int | None = None) -> None:
        """`below`: descriptor of the directory in which a relative `path` begins."""
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=below)

    def sync(self) -> None:
        """Fsync the directory, then check that its file system still takes changes. Raises OSError."""
        _full_fsync(self._fd)
        require_alive(self._fd)

    def close(self) -> None:
        """Close the descriptor; nothing is synced."""
        os.close(self._fd)


def _short_write(written: int, buffer: Buffer, offset: int) -> OSError:
    return OSError(errno.EIO, f"short write at offset {offset}: {written} of {len(buffer)} bytes")


def _full_fsync(fd: int) -> None:
    """The strongest fsync that the system has: macOS's fsync does not flush the drive."""
    if _F_FULLFSYNC is not None:
        fcntl.fcntl(fd, _F_FULLFSYNC)
    else:
        os.fsync(fd)


def sync_call(method: SyncMethod) -> Callable[[int], None] | None:
    """The function to call after a write for `method`; None if the write itself syncs. Raises UsageError."""
    if method == "fullfsync":
        if _F_FULLFSYNC is None:
            raise UsageError(
                "--sync fullfsync exists on macOS only; use --sync fsync, which flushes the drive here"
            )
        return _full_fsync
    if method == "rwf-dsync" and not hasattr(os, "RWF_DSYNC"):
        raise UsageError("--sync rwf-dsync needs Linux; use --sync fsync or dsync here")
    if method == "fdatasync":
        if not hasattr(os, "fdatasync"):
            raise UsageError("macOS has no --sync fdatasync; use --sync fullfsync, which flushes the drive")
        return os.fdatasync
    return os.fsync if method == "fsync" else None


class KernelStorage:
    """A `Storage` on the kernel's files and block devices.

    A child process that gets a storage at its start shares its lock, which lasts until the last of these
    processes has ended. Other pickled copies have no lock. Symbolic links are resolved once, in the
    constructor, and writes never follow them. From the lock on, the target's directory is kept open, so that
    no link that is made later leads writes elsewhere. Raises SetupError for a link that another user made
    (see `path_walk`).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = real_path(path)
        self._typed = Path(path).absolute()
        self._lock_fd: int | None = None
        self._directory_fd: int | None = None  # of the target's directory, as long as the lock is held

    def __reduce__(self) -> tuple[Callable[..., KernelStorage], tuple[Any, ...]]:
        if self._lock_fd is not None and get_spawning_popen() is not None:
            assert self._directory_fd is not None
            return _sharing_lock, (self.path, DupFd(self._lock_fd), DupFd(self._directory_fd))
        return KernelStorage, (self.path,)

    @property
    def kind(self) -> TargetKind:
        """Device if the path is a block device now, else file."""
        try:
            return "device" if stat.S_ISBLK(self.path.stat().st_mode) else "file"
        except OSError:
            return "file"

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> KernelFile:
        """Open for reads that bypass the page cache, or, with a plan, for writes by its sync method.

        Raises OSError, and UsageError if this system lacks the method or O_DIRECT. Raises TargetError if a
        file to be read only seems to be missing, because its directory is encrypted and locked.
        """
        if plan is None:
            with _locked_is_not_missing(self.path), _damaged_is_missing():
                return self._open_reader(self.path_of(suffix))
        method_flags = {"dsync": os.O_DSYNC, "osync": os.O_SYNC}.get(plan.sync, 0)
        sync = sync_call(plan.sync)
        flags = os.O_RDWR | method_flags | (os.O_CREAT | os.O_EXCL if create else 0)
        fd = self._open(suffix, flags, direct=plan.direct)
        file_class = _SyncedWriteFile if plan.sync == "rwf-dsync" else KernelFile
        check = commit_check(plan, self.path_of(suffix), fd)
        return file_class(fd, sync=sync, direct=plan.direct, check=check)

    def open_bulk(self, suffix: str, *, create: bool = False, direct: bool = True) -> KernelFile:
        """Open for prefill or control arm: with O_DIRECT if wanted and possible. `sync` is a full fsync."""
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        new = os.O_EXCL if create and suffix != MAIN else 0
        if direct and _O_DIRECT is not None:
            try:
                return KernelFile(self._open(suffix, flags | new, direct=True), sync=_full_fsync, direct=True)
            except UsageError:
                new = 0  # without O_DIRECT, which is optional here, the failed open has created the file
        return KernelFile(self._open(suffix, flags | new, direct=False), sync=_full_fsync, direct=False)

    def exists(self, suffix: str) -> bool:
        """Whether the file exists. False also for a damaged entry."""
        try:
            with _damaged_is_missing():
                self.path_of(suffix).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def suffixes(self) -> tuple[str, ...]:
        """Sorted suffixes of siblings with names that plans make. Raises OSError for an incomplete list."""
        if self.kind == "device":
            return ()
        name = self.path.name
        try:
            siblings = os.listdir(self.path.parent)  # noqa: PTH208 - names, not paths, are compared
        except FileNotFoundError:
            return ()
        found = (entry[len(name) :] for entry in siblings if entry.startswith(name))
        return tuple(sorted(suffix for suffix in found if suffix == CONTROL or parse_name(suffix)))

    def size(self, suffix: str) -> int:
        """Bytes of the file or device. Raises FileNotFoundError if it is missing or damaged, and TargetError
        if it only seems to be missing."""
        with _locked_is_not_missing(self.path), _damaged_is_missing():
            fd = os.open(self.path_of(suffix), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return os.lseek(fd, 0, os.SEEK_END)
        finally:
            os.close(fd)

    def unlink(self, suffix: str) -> None:
        """Remove the file. Raises OSError."""
        os.unlink(self._name_of(suffix), dir_fd=self._directory_fd)

    def rename(self, old_suffix: str, new_suffix: str) -> None:
        """Rename the file, and replace a file that has the new name. Raises OSError."""
        directory = self._directory_fd
        old, new = self._name_of(old_suffix), self._name_of(new_suffix)
        os.replace(old, new, src_dir_fd=directory, dst_dir_fd=directory)

    def open_directory(self) -> KernelDirectory:
        """Open the directory of the target with a new descriptor. Raises OSError."""
        return self._directory()

    def sync_directory(self, *, ancestors: bool = False) -> None:
        """Fsync the directory, and with `ancestors` all its parents up to the mount point. Does nothing for a
        device."""
        if self.kind == "device":
            return
        directory = self._directory()
        try:
            directory.sync()
        finally:
            directory.close()
        path = self.path.parent
        while ancestors and not os.path.ismount(path):
            path = path.parent
            _sync_ancestor(path)

    def lock(self, *, create: bool = False) -> None:
        """Lock the target, with flock for a file and O_EXCL for a device. Raises TargetBusyError,
        UnreadableTargetError, TargetError for other errors, and SetupError for a refused link."""
        assert self._lock_fd is None
        # O_EXCL on a block device excludes mounts, md, dm and all other users that claim the device.
        exclusive = os.O_EXCL if self.kind == "device" else (os.O_CREAT if create else 0)
        try:
            with _damaged_is_missing():
                flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
                with _unchanged(self.path) as place:
                    fd = os.open(place.name, flags | exclusive, _MODE, dir_fd=place.fd)
                    directory_fd = os.dup(place.fd)
        except FileNotFoundError:
            if create:
                raise TargetError(f"{self.path}: its directory does not exist; create it first") from None
            return
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise TargetBusyError(
                    f"{self.path}: mounted, or held by another program; release it"
                ) from error
            of_class = UnreadableTargetError if error.errno in MEDIUM_ERRORS else TargetError
            raise of_class(f"{self.path}: cannot be opened: {error.strerror}") from error
        try:
            self._lock_fd = _flocked(fd, self.path) if self.kind == "file" else fd
            self._directory_fd = directory_fd
        except BlockingIOError:
            raise TargetBusyError(
                f"{self.path}: another run or verify holds it; wait for its end, or stop it"
            ) from None
        except OSError as error:
            raise TargetError(
                f"{self.path}: cannot be locked: {error.strerror}; name a target on another file system"
            ) from error
        finally:
            if self._directory_fd is None:
                os.close(directory_fd)

    def unlock(self) -> None:
        """Release the lock, if it is held."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None
        if self._directory_fd is not None:
            os.close(self._directory_fd)
            self._directory_fd = None

    def facts(self) -> Facts:
        """Current facts of the target and the machine, see `discovery`."""
        return facts_module.collect(self.path, self.kind, typed=self._typed)

    def flushes(self, drive: str) -> int | None:
        """The current value of `Drive.flushes` for `drive`, from the kernel's counters."""
        return block_devices.flushes_of(drive)

    def unsafe_shutdowns(self, drive: Drive) -> int | None:
        """The current power-loss counter of `drive`. None if the drive does not answer, or if another drive
        may have its name now."""
        count = block_devices.unsafe_shutdowns_of(drive.name)
        is_same = drive.diskseq is not None and block_devices.diskseq_of(drive.name) == drive.diskseq
        return count if is_same else None

    def watch_drives(self, armed: Facts) -> KernelDriveWatch:
        """Prepare to read the drives of `armed`, bypassing the page cache, in another process."""
        return KernelDriveWatch(self.path, armed)

    def drives(self) -> tuple[PresentDrive, ...]:
        """The drives below the path as the kernel shows them now; () if it shows none."""
        return facts_module.drive_states(self.path, self.kind)

    def drop_caches_below(self) -> None:
        """Drop the cached pages of files behind loop devices, which O_DIRECT above them does not bypass."""
        for drive in facts_module.drive_states(self.path, self.kind):
            block_devices.drop_backing_cache(drive.name)

    def path_of(self, suffix: str) -> Path:
        """The path of TARGET + `suffix`."""
        return self.path.with_name(self.path.name + suffix) if suffix else self.path

    def _directory(self) -> KernelDirectory:
        below = self._directory_fd
        return KernelDirectory(self.path.parent if below is None else Path(), below=below)

    def _name_of(self, suffix: str) -> str | Path:
        """The name of TARGET + `suffix` in the open directory, or its path without the lock."""
        return self.path_of(suffix) if self._directory_fd is None else self.path.name + suffix

    def _open(self, suffix: str, flags: int, *, direct: bool) -> int:
        if direct and _O_DIRECT is None:
            raise UsageError("--direct needs O_DIRECT, which this system does not have; remove --direct")
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW | (_O_DIRECT or 0 if direct else 0)
        try:
            return os.open(self._name_of(suffix), flags, _MODE, dir_fd=self._directory_fd)
        except OSError as error:
            path = self.path_of(suffix)
            if direct and error.errno == errno.EINVAL:
                raise UsageError(
                    f"{path}: its file system does not support O_DIRECT; remove --direct"
                ) from error
            error.filename = str(path)
            raise

    def _open_reader(self, path: Path) -> KernelFile:
        if _O_DIRECT is not None:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _O_DIRECT)
                return KernelFile(fd, sync=None, direct=True)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if _F_NOCACHE is not None:
            fcntl.fcntl(fd, _F_NOCACHE, 1)
        else:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return KernelFile(fd, sync=None, direct=False)


@contextmanager
def _unchanged(path: Path) -> Iterator[OpenName]:
    """The place of a path without links, open during the block. Raises TargetError if a link leads elsewhere
    now, and SetupError if another user made that link."""
    with place_of(path) as place:
        if place.path != path:
            raise TargetError(f"{path}: a symbolic link leads to {place.path} now; begin again")
        yield place


@contextmanager
def _damaged_is_missing() -> Iterator[None]:
    """Raises FileNotFoundError for a file whose metadata fail the file system's checks, because such a file
    is lost. EIO does not count as damage: reads of a drive that was pulled out return it, too."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EBADMSG, _EUCLEAN):
            raise FileNotFoundError(
                errno.ENOENT, f"its metadata are damaged: {error.strerror}", error.filename
            ) from error
        raise


@contextmanager
def _locked_is_not_missing(target: Path) -> Iterator[None]:
    """Raises TargetError if a file of `target` only seems to be missing, because an encrypted directory above
    it is locked."""
    try:
        yield
    except FileNotFoundError as error:
        locked = encrypted_directories.locked_above(target)
        if locked is None:
            raise
        raise TargetError(
            f"{locked} is encrypted and locked: files that are there seem to be missing. Unlock it first (its"
            f" owner logs in, or `fscrypt unlock {locked}`)"
        ) from error


def _flocked(fd: int, path: Path) -> int:
    """An exclusively locked descriptor of the file of `fd`. On an error, closes `fd` and raises OSError."""
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            # NFSv4 needs a writable descriptor for an exclusive lock. Only NFS gets one: on an overlay file
            # system, opening for writing would copy the file.
            writable = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
            os.close(fd)
            fd = writable
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _sync_ancestor(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _full_fsync(fd)  # without `require_alive`, because this user may not be allowed to change ancestors
    finally:
        os.close(fd)


def _sharing_lock(path: Path, lock: Any, directory: Any) -> KernelStorage:
    """A storage with a shared lock, in a new process. A writer that waits for a drive may outlive the run's
    main process. With the shared lock, no later run or `verify` can lock the target until it has ended."""
    storage = KernelStorage(path)
    storage.path = path
    storage._lock_fd = lock.detach()
    storage._directory_fd = directory.detach()
    return storage
