"""Protocols through which writers, the prefill and a scan use the target.

With them, the same client works on a real file, on a block device and on a simulated drive that loses power
on command. They hide nothing that evidence depends on: a kernel error is passed on as OSError, a short write
is an error, and no operation is retried. Implementations do not buffer, reorder or cache.
"""

from __future__ import annotations

import errno
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from durability.formats.case import DriveState
from durability.formats.facts import Drive, Facts
from durability.formats.plan import Plan, TargetKind

# One-dimensional, with single bytes as items, so that len() is the size in bytes. Page-aligned if O_DIRECT
# may be in use.
Buffer: TypeAlias = "bytes | bytearray | memoryview | mmap.mmap"
WritableBuffer: TypeAlias = "bytearray | memoryview | mmap.mmap"

# EIO and its variants: ENODATA is "critical medium error", EILSEQ a failed protection check, EUCLEAN damage
# found by a file system.
MEDIUM_ERRORS = frozenset(
    getattr(errno, name)
    for name in ("EIO", "ENODATA", "EILSEQ", "EREMOTEIO", "EBADMSG", "EUCLEAN")
    if hasattr(errno, name)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentDrive:
    """Attributes of a drive that show if it went away and came back: then the kernel has enumerated it again,
    perhaps with another size."""

    name: str
    size_bytes: int
    diskseq: int | None  # None: the kernel does not number the drive


class TargetFile(Protocol):
    """One open file description of a target's file: one writer's, or one reader's. Offsets and sizes in
    bytes."""

    @property
    def direct(self) -> bool:
        """Whether reads and writes bypass the page cache. Then offset, length and address must be aligned."""

    def pwrite(self, buffer: Buffer, offset: int) -> None:
        """Write all of `buffer` at `offset`. Raises OSError, with EIO for a short write."""

    def sync(self) -> None:
        """Make the written data durable by the plan's sync method. Returns after the drive's confirmation.

        Calls no sync if each write syncs itself (dsync, osync, rwf-dsync). Raises OSError.
        """

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        """Read up to `len(buffer)` bytes at `offset`; fewer only at the end of the file. Raises OSError."""

    def size(self) -> int:
        """Current length of the file or device."""

    def truncate(self, size_bytes: int) -> None:
        """Cut a file to `size_bytes`. Never called on a device. Raises OSError."""

    def close(self) -> None:
        """Close the descriptor without a sync."""


class TargetDirectory(Protocol):
    """The directory of a target and its siblings, held open by one writer of names."""

    def sync(self) -> None:
        """Make all names durable that were made, replaced or removed before.

        Raises OSError, also if the file system failed before this sync, which then returned success.
        """

    def close(self) -> None:
        """Close the descriptor without a sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveLook:
    """Observed state of a target's drives after an I/O error, with a `text` for people."""

    drive: DriveState
    text: str


class DriveWatch(Protocol):
    """Checks after an I/O error of a target whether its drives still answer. Does not access the drives
    before `look`."""

    @property
    def blind(self) -> str:
        """Why not all of the drives can be read, or ""."""

    def look(self, timeout_s: float) -> DriveLook:
        """Read the drives, bypassing all caches, until one answers or all have failed for `timeout_s`. Always
        returns after about that time. Raises nothing."""

    def close(self) -> None:
        """Stop watching. Reads that do not return are abandoned."""


class Storage(Protocol):
    """A target: the main file TARGET (suffix "") or a device, and the files TARGET + suffix beside it."""

    @property
    def path(self) -> Path:
        """The target's absolute path, symbolic links resolved."""

    @property
    def kind(self) -> TargetKind:
        """Device if the path is a block device, else file, even if the file does not exist."""

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> TargetFile:
        """Open a file for reading (no plan), or for writing by the plan's sync method and `direct`.

        Reads go to the drive, not to the page cache: with O_DIRECT, or else after the file's cached pages
        were dropped. `create` makes a new file, and raises FileExistsError if it exists. Raises OSError, and
        UsageError if this system lacks the sync method or O_DIRECT.
        """

    def open_bulk(self, suffix: str, *, create: bool = False, direct: bool = True) -> TargetFile:
        """Open a file for writes that are never acknowledged: prefill and control arm.

        Bypasses the page cache if `direct` is set and the file system can do it. `sync` is a full fsync.
        `create` makes the file. An existing main file is kept; for other existing files, raises
        FileExistsError.
        """

    def exists(self, suffix: str) -> bool:
        """Whether the file exists."""

    def suffixes(self) -> tuple[str, ...]:
        """The sorted suffixes of the target's existing siblings: control arm, append generations, names and
        their temporary files. Raises OSError if the directory cannot be listed completely."""

    def size(self, suffix: str) -> int:
        """Length of the file or device. Raises OSError, and FileNotFoundError if it does not exist."""

    def unlink(self, suffix: str) -> None:
        """Remove the file. Raises OSError."""

    def rename(self, old_suffix: str, new_suffix: str) -> None:
        """Rename the file, and replace a file that has the new name. Raises OSError."""

    def open_directory(self) -> TargetDirectory:
        """Open the directory with a new descriptor. Raises OSError."""

    def sync_directory(self, *, ancestors: bool = False) -> None:
        """Make names durable: fsync the directory, and with `ancestors` all its parents up to the mount
        point. Raises OSError."""

    def lock(self, *, create: bool = False) -> None:
        """Lock the target against other processes, until `unlock` or the end of the process.

        `create` makes an empty main file if there is none. Without `create`, a missing file is not locked and
        raises nothing. Raises TargetBusyError if another process holds the target, and UnreadableTargetError
        if a medium error prevents opening it.
        """

    def unlock(self) -> None:
        """Release the lock."""

    def facts(self) -> Facts:
        """Current facts of the target and the machine."""

    def flushes(self, drive: str) -> int | None:
        """The current `Drive.flushes` of the drive of that name. Fast enough for every second."""

    def unsafe_shutdowns(self, drive: Drive) -> int | None:
        """The current `Drive.unsafe_shutdowns` of `drive`; None if the drive was enumerated again. Slow,
        because it asks the drive."""

    def watch_drives(self, armed: Facts) -> DriveWatch:
        """Prepare to read the drives of `armed`, the facts at arming, after an I/O error."""

    def drives(self) -> tuple[PresentDrive, ...]:
        """The current drives below the target. Fast, sends no command to a drive, and raises nothing."""

    def drop_caches_below(self) -> None:
        """Drop the caches of the layers below, if possible."""
