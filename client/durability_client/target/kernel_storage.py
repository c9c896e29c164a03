"""The target on a real kernel: files and block devices, opened so that a sync means what the plan says.

Refuses sync methods and O_DIRECT where the system has none, rather than fall back to something weaker; it
never decides whether a target may be overwritten (`safety_checks` does) and never retries what failed.
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
from durability_client.system import block_devices, encrypted_directories, smart
from durability_client.system.path_walk import real_path
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
    """A `TargetFile` on a descriptor of the kernel, which it owns, as it does `check`."""

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
        """Write all of `buffer` in one call; a short write is OSError with EIO."""
        written = os.pwrite(self._fd, buffer, offset)
        if written != len(buffer):
            raise _short_write(written, buffer, offset)

    def sync(self) -> None:
        """Call the sync method, or nothing where each write syncs itself; then `check`. Raises OSError."""
        if self._sync is not None:
            self._sync(self._fd)
        if self._check is not None:
            self._check()

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        """One preadv(2); gives the number of bytes read, fewer only at the end. Raises OSError."""
        return os.preadv(self._fd, [buffer], offset)

    def size(self) -> int:
        """Bytes from start to end, of a file or a block device."""
        return os.lseek(self._fd, 0, os.SEEK_END)  # fstat says 0 for a block device

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
    """A `TargetDirectory` on a descriptor of the kernel, which it owns."""

    __slots__ = ("_fd",)

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

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
    """What to call after a write for `method`, None where the write itself syncs. Raises UsageError."""
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
    """A `Storage` on the kernel's files and block devices. A process that is started with it shares its lock,
    which lasts until the last of them is gone; otherwise pickling leaves the lock with the original.

    Symbolic links are resolved once, here, and never followed to write. Raises SetupError for one that
    another user made (see `path_walk`).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = real_path(path)
        self._typed = Path(path).absolute()
        self._lock_fd: int | None = None

    def __reduce__(self) -> tuple[Callable[..., KernelStorage], tuple[Any, ...]]:
        if self._lock_fd is not None and get_spawning_popen() is not None:
            return _sharing_lock, (self.path, DupFd(self._lock_fd))
        return KernelStorage, (self.path,)

    @property
    def kind(self) -> TargetKind:
        """A device where the path is a block device now, else a file."""
        try:
            return "device" if stat.S_ISBLK(self.path.stat().st_mode) else "file"
        except OSError:
            return "file"

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> KernelFile:
        """Open for reading past the page cache, or with a plan by its sync method.

        Raises OSError, UsageError for a method or `direct` that this system does not have, and TargetError if
        a file to be read only seems to be missing.
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
        """Open for prefill and control arm: O_DIRECT if wanted and possible, synced by a full fsync."""
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        new = os.O_EXCL if create and suffix != MAIN else 0
        if direct and _O_DIRECT is not None:
            try:
                return KernelFile(self._open(suffix, flags | new, direct=True), sync=_full_fsync, direct=True)
            except UsageError:
                new = 0  # this file system has no O_DIRECT, and it was not required; yet the file was made
        return KernelFile(self._open(suffix, flags | new, direct=False), sync=_full_fsync, direct=False)

    def exists(self, suffix: str) -> bool:
        """Whether the file is there; False for a damaged entry too."""
        try:
            with _damaged_is_missing():
                self.path_of(suffix).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of siblings that plans make, sorted. Raises OSError if the list has no end."""
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
        """Bytes of the file or device. Raises FileNotFoundError where it is missing or damaged, TargetError
        where it only seems to be missing."""
        with _locked_is_not_missing(self.path), _damaged_is_missing():
            fd = os.open(self.path_of(suffix), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return os.lseek(fd, 0, os.SEEK_END)
        finally:
            os.close(fd)

    def unlink(self, suffix: str) -> None:
        """Remove the file. Raises OSError."""
        self.path_of(suffix).unlink()

    def rename(self, old_suffix: str, new_suffix: str) -> None:
        """Give the file another name, in place of a file that has it. Raises OSError."""
        self.path_of(old_suffix).rename(self.path_of(new_suffix))

    def open_directory(self) -> KernelDirectory:
        """The directory of the target, with a descriptor of its own. Raises OSError."""
        return KernelDirectory(self.path.parent)

    def sync_directory(self, *, ancestors: bool = False) -> None:
        """Fsync the directory, with `ancestors` all up to the mount point; a device has none."""
        if self.kind == "device":
            return
        directory = KernelDirectory(self.path.parent)
        try:
            directory.sync()
        finally:
            directory.close()
        path = self.path.parent
        while ancestors and not os.path.ismount(path):
            path = path.parent
            _sync_ancestor(path)

    def lock(self, *, create: bool = False) -> None:
        """Hold the target: flock for a file, O_EXCL for a device. Raises TargetBusyError,
        UnreadableTargetError, and TargetError for other errors."""
        assert self._lock_fd is None
        # O_EXCL on a block device claims it against mounts, md, dm and every other claimant, as flock does a
        # file.
        exclusive = os.O_EXCL if self.kind == "device" else (os.O_CREAT if create else 0)
        try:
            with _damaged_is_missing():
                flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
                fd = os.open(self.path, flags | exclusive, _MODE)
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
        except BlockingIOError:
            raise TargetBusyError(
                f"{self.path}: another run or verify holds it; wait for its end, or stop it"
            ) from None
        except OSError as error:
            raise TargetError(
                f"{self.path}: cannot be locked: {error.strerror}; name a target on another file system"
            ) from error

    def unlock(self) -> None:
        """Give the lock back; nothing where it is not held."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def facts(self) -> Facts:
        """What is known of target and machine now; see `discovery`."""
        return facts_module.collect(self.path, self.kind, typed=self._typed)

    def flushes(self, drive: str) -> int | None:
        """What `Drive.flushes` of `drive` is now, from the kernel's counters."""
        return block_devices.flushes_of(drive)

    def unsafe_shutdowns(self, drive: Drive) -> int | None:
        """What `drive` counts now, None where it does not answer or may be another one."""
        count = smart.unsafe_shutdowns(block_devices.node_of(drive.name))
        is_same = drive.diskseq is not None and block_devices.diskseq_of(drive.name) == drive.diskseq
        return count if is_same else None

    def watch_drives(self, armed: Facts) -> KernelDriveWatch:
        """Prepare to read the drives of `armed` past the page cache, in a process of its own."""
        return KernelDriveWatch(self.path, armed)

    def drives(self) -> tuple[PresentDrive, ...]:
        """The drives below the path as the kernel shows them now; () where it shows none."""
        return facts_module.drive_states(self.path, self.kind)

    def drop_caches_below(self) -> None:
        """Drop the cached pages of files behind loop devices, which O_DIRECT above them does not bypass."""
        for drive in facts_module.drive_states(self.path, self.kind):
            block_devices.drop_backing_cache(drive.name)

    def path_of(self, suffix: str) -> Path:
        """The path of TARGET + `suffix`."""
        return self.path.with_name(self.path.name + suffix) if suffix else self.path

    def _open(self, suffix: str, flags: int, *, direct: bool) -> int:
        path = self.path_of(suffix)
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW
        if not direct:
            return os.open(path, flags, _MODE)
        if _O_DIRECT is None:
            raise UsageError("--direct needs O_DIRECT, which this system does not have; remove --direct")
        try:
            return os.open(path, flags | _O_DIRECT, _MODE)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise UsageError(f"{path}: its file system does not support O_DIRECT; remove --direct") from error

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
def _damaged_is_missing() -> Iterator[None]:
    """Raises FileNotFoundError for a file whose own metadata fail the file system's checks: it is as good as
    gone. EIO is not among these errors: a drive that was pulled out answers so too."""
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
    """Raises TargetError for a file of `target` that only seems to be missing: its directory is locked."""
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
    """An exclusively locked descriptor of the file that `fd` has open. Raises OSError, and closes `fd`."""
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            # NFSv4 gives an exclusive lock only to who may write. Only there: an overlay would copy the file.
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
        _full_fsync(fd)  # who may not write to it cannot make sure of more
    finally:
        os.close(fd)


def _sharing_lock(path: Path, lock: Any) -> KernelStorage:
    """A storage in a process that was just started. A writer that outlives the run's main process, for it
    waits for the drive, must not write to what the next run or verify holds."""
    storage = KernelStorage(path)
    storage._lock_fd = lock.detach()
    return storage
