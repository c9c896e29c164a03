"""What a writer, the prefill and a scan need of the thing under test, as two protocols.

They exist so that one client works on a real file, on a block device and on a simulated drive that loses
power on command. They hide nothing that evidence depends on: an error of the kernel comes out as the OSError
it is, a short write is an error, and nothing is ever retried. Neither protocol buffers, reorders or caches.
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

# One-dimensional and of single bytes, so that len() is its size; page-aligned wherever O_DIRECT may be in
# use.
Buffer: TypeAlias = "bytes | bytearray | memoryview | mmap.mmap"
WritableBuffer: TypeAlias = "bytearray | memoryview | mmap.mmap"

# EIO in its shades: ENODATA is "critical medium error", EILSEQ a failed protection check, EUCLEAN a file
# system's.
MEDIUM_ERRORS = frozenset(
    getattr(errno, name)
    for name in ("EIO", "ENODATA", "EILSEQ", "EREMOTEIO", "EBADMSG", "EUCLEAN")
    if hasattr(errno, name)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentDrive:
    """What shows that a drive went away and came back: the kernel enumerates it anew, perhaps with another
    size. `diskseq` None: the kernel does not number it."""

    name: str
    size_bytes: int
    diskseq: int | None


class TargetFile(Protocol):
    """One open file description of a target's file: one writer's, or one reader's. Offsets and sizes in
    bytes."""

    @property
    def direct(self) -> bool:
        """Whether reads and writes bypass the page cache: then offset, length and address must be aligned."""

    def pwrite(self, buffer: Buffer, offset: int) -> None:
        """Write all of `buffer` at `offset`. Raises OSError; a short write is one, with EIO."""

    def sync(self) -> None:
        """Make what was written durable by the plan's sync method; returns only after the drive said so.

        Does nothing where each write syncs itself (dsync, osync, rwf-dsync). Raises OSError.
        """

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        """Read up to `len(buffer)` bytes at `offset`; fewer only at the end of the file. Raises OSError."""

    def size(self) -> int:
        """Length of the file, or of the device, now."""

    def truncate(self, size_bytes: int) -> None:
        """Cut a file to `size_bytes`. Raises OSError; never called on a device."""

    def close(self) -> None:
        """Give the descriptor back; nothing is synced."""


class TargetDirectory(Protocol):
    """The directory of a target and its siblings, held open by one writer of names."""

    def sync(self) -> None:
        """Make every name durable that was made, replaced or removed before.

        Raises OSError, also where the file system has failed before this sync and does not say so.
        """

    def close(self) -> None:
        """Give the descriptor back; nothing is synced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveLook:
    """What was seen of a target's drives after an I/O error; `text` says it for people."""

    drive: DriveState
    text: str


class DriveWatch(Protocol):
    """Can say after an I/O error of a target whether its drives still answer. Needs nothing of them until
    then."""

    @property
    def blind(self) -> str:
        """Why not all of the drives can be looked at, or ""."""

    def look(self, timeout_s: float) -> DriveLook:
        """Read the drives past every cache until one answers, or all have failed for `timeout_s`; blocks for
        so long, whatever the drives do. Raises nothing."""

    def close(self) -> None:
        """Stop watching; reads that do not return are left behind."""


class Storage(Protocol):
    """A target: the main file TARGET (suffix "") or a device, and the files TARGET + suffix beside it."""

    @property
    def path(self) -> Path:
        """The target's absolute path, symbolic links resolved."""

    @property
    def kind(self) -> TargetKind:
        """A device where the path is a block device, else a file, whether it exists or not."""

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> TargetFile:
        """Open a file for reading (no plan), or for writing by the plan's sync method and `direct`.

        Reading asks the drive, not the page cache: O_DIRECT, or where there is none a file whose cached pages
        were dropped. `create` makes the file and refuses one that exists (FileExistsError). Raises OSError,
        and UsageError for a sync method or `direct` that this system does not have.
        """

    def open_bulk(self, suffix: str, *, create: bool = False, direct: bool = True) -> TargetFile:
        """Open a file for writes that are never acknowledged: prefill and control arm.

        Bypasses the page cache where `direct` asks for it and the file system can; `sync` is a full fsync.
        `create` makes the file. A main file that exists is kept, any other is refused (FileExistsError).
        """

    def exists(self, suffix: str) -> bool:
        """Whether the file is there."""

    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of the target's siblings that exist, sorted: control arm, append generations, names
        and their temporaries. Raises OSError where the directory cannot be listed to its end."""

    def size(self, suffix: str) -> int:
        """Length of the file or device. Raises OSError, FileNotFoundError where it does not exist."""

    def unlink(self, suffix: str) -> None:
        """Remove the file. Raises OSError."""

    def rename(self, old_suffix: str, new_suffix: str) -> None:
        """Give the file another name, in place of a file that has it. Raises OSError."""

    def open_directory(self) -> TargetDirectory:
        """Open the directory, with a descriptor of the caller's own. Raises OSError."""

    def sync_directory(self, *, ancestors: bool = False) -> None:
        """Make names durable: fsync the directory, with `ancestors` all up to the mount point. Raises
        OSError."""

    def lock(self, *, create: bool = False) -> None:
        """Hold the target until `unlock` or the end of the process, against other users of it.

        `create` makes an empty main file where there is none; without it a missing file has nothing to hold.
        Raises TargetBusyError if another process holds it, UnreadableTargetError if an I/O error of the
        medium keeps it from being opened.
        """

    def unlock(self) -> None:
        """Give the lock back."""

    def facts(self) -> Facts:
        """What is known of target and machine now."""

    def flushes(self, drive: str) -> int | None:
        """The present `Drive.flushes` of the drive of that name; cheap enough for every second."""

    def unsafe_shutdowns(self, drive: Drive) -> int | None:
        """The present `Drive.unsafe_shutdowns` of `drive`; None for one that was enumerated anew. Asks the
        drive, which takes a while."""

    def watch_drives(self, armed: Facts) -> DriveWatch:
        """Prepare to look at the drives of `armed`, the facts at arming, after an I/O error."""

    def drives(self) -> tuple[PresentDrive, ...]:
        """The drives below the target as they are now; cheap, asks no drive, and raises nothing."""

    def drop_caches_below(self) -> None:
        """Have the layers below forget what they cached, as far as they can be told to."""
