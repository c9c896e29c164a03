"""A file system in memory over a simulated drive: honest, journalled, and as durable as its drive.

It is what lies between the client and the drive where a target is a file. Data go to the drive as they are
written. Names, sizes and where blocks lie are changed in memory, and a sync of any file or of the directory
commits all such changes: a flush, then one record of the journal with force unit access. Each record holds
the checksum of the one before it, so a mount replays exactly the records that were committed in order and
that the drive still has. Once a commit has failed, nothing more is changed until the next mount.

    0            JOURNAL_BYTES                                  end
    | records …  | blocks, each given out once and never again  |

Refuses to be a file system for anything but one history: blocks are not reused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import greenlet

from durability.errors import TargetError
from durability.formats import facts
from durability.formats.packing import pack, unpack
from durability.formats.plan import CONTROL, MAIN, WRITE_THROUGH_METHODS, Plan, TargetKind, parse_name
from durability_client.target.storage import Buffer, WritableBuffer
from durability_lab.drive.drive import Drive
from durability_lab.histories.simulated.eventful_drive import HistoryStorage
from durability_lab.histories.simulated.virtual_loop import current_fiber

JOURNAL_BYTES = 1 << 20
BLOCK_BYTES = 4096

_RECORD = struct.Struct("<4sIII")  # magic, checksum of the record before, checksum of this one, length
_MAGIC = b"SJRN"
_SECTOR_BYTES = 512
_WAIT_S = 0.002


@dataclass(slots=True)
class _Inode:
    """A file: its size, and by number the block of the drive that holds each of its blocks."""

    size: int = 0
    blocks: dict[int, int] = field(default_factory=dict)


class SimulatedFileSystem:
    """The file system on `drive`; `make` comes first, then `mount`, after every loss of power as well: a
    drive that got its power back is another one, on which what was mounted has failed."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._reset()
        self.mounted = False

    def _reset(self) -> None:
        self.names: dict[str, int] = {}
        self._inodes: dict[int, _Inode] = {}
        self._next_inode = 1
        self._next_block = JOURNAL_BYTES // BLOCK_BYTES
        self._pending: list[tuple[Any, ...]] = []
        self._journal_end = 0
        self._last_checksum = 0
        self._committing = False
        self._failed = False
        self._generation = self._drive.generation
        self._mount = object()  # what a writer of an earlier mount does is nothing of this one

    def make(self) -> None:
        """An empty file system."""
        self._reset()
        self._pending.append(("made",))
        self.commit()

    def mount(self) -> None:
        """Replay the journal. Raises OSError where the drive cannot be read, or holds no file system."""
        self.mounted = False
        self._reset()
        while (operations := self._next_record()) is not None:
            for operation in operations:
                self._apply(tuple(operation))
        if not self._journal_end:
            raise OSError(errno.EUCLEAN, "no file system is on the drive")
        self.mounted = True

    def _next_record(self) -> list[list[Any]] | None:
        """The operations of the record where the journal ends so far, None if there is none."""
        head = self._drive.read(self._journal_end, _SECTOR_BYTES)
        magic, before, checksum, length = _RECORD.unpack_from(head)
        if magic != _MAGIC or before != self._last_checksum or length > JOURNAL_BYTES:
            return None
        whole = self._drive.read(self._journal_end, _padded(_RECORD.size + length))
        body = whole[_RECORD.size : _RECORD.size + length]
        if zlib.crc32(body, before) != checksum:
            return None
        self._journal_end += len(whole)
        self._last_checksum = checksum
        operations: list[list[Any]] = unpack(body)  # type: ignore[assignment]
        return operations

    # Changes. Each is applied in memory at once, and is durable with the next commit.

    def change(self, *operation: Any) -> None:
        """One change of names, sizes or blocks. Raises OSError where the file system has failed."""
        self.require_alive()
        self._apply(operation)
        self._pending.append(operation)

    def require_alive(self) -> None:
        """Raises OSError where a commit has failed, or nothing is mounted."""
        if self._has_failed() or not self.mounted:
            raise OSError(errno.EIO, "the file system has failed")

    def _has_failed(self) -> bool:
        return self._failed or self.is_stale

    @property
    def is_stale(self) -> bool:
        """Whether the drive was enumerated anew since the mount."""
        return self._drive.generation != self._generation

    def _apply(self, operation: tuple[Any, ...]) -> None:
        match operation:
            case ("made",):
                self.mounted = True
            case ("made_file", str(name), int(number)):
                self.names[name] = number
                self._inodes[number] = _Inode()
                self._next_inode = max(self._next_inode, number + 1)
            case ("removed", str(name)):
                del self.names[name]
            case ("moved", str(old), str(new)):
                self.names[new] = self.names.pop(old)
            case ("size", int(number), int(size)):
                self._inodes[number].size = size
            case ("block", int(number), int(index), int(block)):
                self._inodes[number].blocks[index] = block
                self._next_block = max(self._next_block, block + 1)

    def commit(self) -> None:
        """Make data and all changes durable. Raises OSError, after which the file system has failed."""
        while self._committing:
            fiber = current_fiber()
            if fiber is None:  # the writer that commits is gone, and will not end
                raise OSError(errno.EIO, "a commit does not end")
            fiber.sleep(_WAIT_S)
        if self._has_failed():
            raise OSError(errno.EIO, "the file system has failed")
        mount = self._mount
        self._committing = True
        operations, self._pending = self._pending, []
        try:
            self._drive.flush()
            self._require_mount(mount)
            if operations:
                self._append(operations)
            self._require_mount(mount)
        except greenlet.GreenletExit:  # who asked for it is killed, and the next commit does it
            if self._mount is mount:
                self._pending = operations + self._pending
            raise
        except BaseException:
            if self._mount is mount:
                self._failed = True
            raise
        finally:
            if self._mount is mount:
                self._committing = False

    def _require_mount(self, mount: object) -> None:
        if self._mount is not mount or self._has_failed():
            raise OSError(errno.EIO, "the file system was mounted anew, or has failed")

    def _append(self, operations: list[tuple[Any, ...]]) -> None:
        body = pack([list(operation) for operation in operations])
        checksum = zlib.crc32(body, self._last_checksum)
        record = _RECORD.pack(_MAGIC, self._last_checksum, checksum, len(body)) + body
        record = record.ljust(_padded(len(record)), b"\0")
        if self._journal_end + len(record) > JOURNAL_BYTES:
            raise OSError(errno.ENOSPC, "the journal is full")
        self._drive.write(self._journal_end, record, fua=True)
        self._journal_end += len(record)
        self._last_checksum = checksum

    # Files.

    def inode_of(self, name: str) -> int:
        """The file of that name. Raises FileNotFoundError."""
        if not self.mounted:
            raise OSError(errno.EIO, "nothing is mounted")
        if name not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self.names[name]

    def create(self, name: str) -> int:
        """A new file. Raises FileExistsError."""
        if name in self.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        number = self._next_inode
        self.change("made_file", name, number)
        return number

    def size_of(self, number: int) -> int:
        """Length of a file in bytes."""
        return self._inodes[number].size

    def pieces(
        self, number: int, offset: int, length: int, *, allocate: bool
    ) -> list[tuple[int | None, int]]:
        """Where `length` bytes at `offset` lie: each piece's place on the drive and length; None: nowhere."""
        inode, found = self._inodes[number], list[tuple[int | None, int]]()
        while length:
            index, within = divmod(offset, BLOCK_BYTES)
            step = min(length, BLOCK_BYTES - within)
            if index not in inode.blocks and allocate:
                self.change("block", number, index, self._next_block)
            block = inode.blocks.get(index)
            place = None if block is None else block * BLOCK_BYTES + within
            last = found[-1] if found else None
            if last is not None and last[0] is not None and place == last[0] + last[1]:
                found[-1] = (last[0], last[1] + step)
            else:
                found.append((place, step))
            offset, length = offset + step, length - step
        return found


def _padded(length: int) -> int:
    return -(-length // _SECTOR_BYTES) * _SECTOR_BYTES


class _File:
    """A `TargetFile` on a `SimulatedFileSystem`; `fua`: every write is durable when it returns."""

    direct = True

    def __init__(self, files: SimulatedFileSystem, drive: Drive, number: int, *, fua: bool) -> None:
        self._files = files
        self._drive = drive
        self._number = number
        self._fua = fua

    def pwrite(self, buffer: Buffer, offset: int) -> None:
        data = bytes(buffer)  # an error keeps no view of the buffer alive
        self._files.require_alive()
        before = self._files.size_of(self._number)
        for place, length in self._files.pieces(self._number, offset, len(data), allocate=True):
            assert place is not None
            self._drive.write(place, data[:length], fua=self._fua)
            data = data[length:]
        end = offset + len(memoryview(buffer))
        if end > before:
            self._files.change("size", self._number, end)
            if self._fua:
                self._files.commit()

    def sync(self) -> None:
        if not self._fua:
            self._files.commit()

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        length = max(0, min(len(buffer), self.size() - offset))
        pieces = self._files.pieces(self._number, offset, length, allocate=False)
        read = [bytes(step) if place is None else self._drive.read(place, step) for place, step in pieces]
        memoryview(buffer)[:length] = b"".join(read)  # an error before keeps no view of the buffer alive
        return length

    def size(self) -> int:
        return self._files.size_of(self._number)

    def truncate(self, size_bytes: int) -> None:
        self._files.change("size", self._number, size_bytes)

    def close(self) -> None:
        """Nothing is held."""


class _Directory:
    """A `TargetDirectory` of the one directory that there is."""

    def __init__(self, files: SimulatedFileSystem) -> None:
        self._files = files

    def sync(self) -> None:
        self._files.commit()

    def close(self) -> None:
        """Nothing is held."""


class HistoryFileStorage(HistoryStorage):
    """As `HistoryStorage`, of a file on a simulated file system."""

    kind: TargetKind = "file"

    def __init__(self, *arguments: Any, seed: int, **named: Any) -> None:
        super().__init__(*arguments, seed=seed, **named)
        self.path = Path("/mnt/target")
        self._uuid = f"uuid-{seed}"
        self._files = SimulatedFileSystem(self._drive)
        self._files.make()
        self._files.mount()

    @property
    def mounted(self) -> bool:
        """Whether the file system is mounted, on the drive as it was enumerated last."""
        return self._files.mounted and not self._files.is_stale

    def mount(self) -> None:
        """Mount what is on the drive; nothing is mounted if that cannot be done."""
        try:
            self._files.mount()
        except OSError:
            self._files.mounted = False

    def copy_from(self, other: HistoryStorage) -> None:
        """As that of the drive; the file system has the UUID of the other one."""
        assert isinstance(other, HistoryFileStorage)
        super().copy_from(other)
        self._uuid = other._uuid
        self.path = other.path
        self.mount()

    def unmount(self) -> None:
        """Write everything back, in order, and mount again."""
        with contextlib.suppress(OSError):
            self._files.commit()
        self.mount()

    def facts(self) -> facts.Facts:
        """As a system would find them. Raises TargetError where nothing is mounted."""
        if not self._files.mounted:
            raise TargetError(f"{self.path}: its file system is not mounted")
        file_system = facts.FileSystem(
            type="ext4",
            uuid=self._uuid,
            source="/dev/simulated",
            mount_point="/mnt",
            options="rw",
            block_bytes=BLOCK_BYTES,
        )
        found = super().facts()
        number = self._files.names.get(MAIN)
        return replace(
            found,
            kind="file",
            path=str(self.path),
            path_in_file_system=self.path.name,
            size_bytes=self._files.size_of(number) if number is not None else 0,
            file_system=file_system,
            file_id=str(number or ""),
        )

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> _File:  # type: ignore[override]
        """A file of the target, which `create` makes; with the plan's FUA."""
        number = self._files.create(suffix) if create else self._files.inode_of(suffix)
        fua = plan is not None and plan.sync in WRITE_THROUGH_METHODS
        return _File(self._files, self._drive, number, fua=fua)

    def open_bulk(self, suffix: str, *, create: bool = False, direct: bool = True) -> _File:  # type: ignore[override]
        """The same, for what is synced at the end."""
        new = create and not (suffix == MAIN and suffix in self._files.names)
        number = self._files.create(suffix) if new else self._files.inode_of(suffix)
        return _File(self._files, self._drive, number, fua=False)

    def exists(self, suffix: str) -> bool:
        """Whether it is there."""
        return self._files.mounted and suffix in self._files.names

    def suffixes(self) -> tuple[str, ...]:
        """Of all files that are this tool's. Raises OSError where nothing is mounted."""
        if not self._files.mounted:
            raise OSError(errno.EIO, "nothing is mounted")
        return tuple(sorted(name for name in self._files.names if name == CONTROL or parse_name(name)))

    def size(self, suffix: str) -> int:
        """In bytes."""
        return self._files.size_of(self._files.inode_of(suffix))

    def unlink(self, suffix: str) -> None:
        """Remove it."""
        self._files.inode_of(suffix)
        self._files.change("removed", suffix)

    def rename(self, old_suffix: str, new_suffix: str) -> None:
        """Give it another name."""
        self._files.inode_of(old_suffix)
        self._files.change("moved", old_suffix, new_suffix)

    def open_directory(self) -> _Directory:
        """The directory, to sync it."""
        return _Directory(self._files)

    def sync_directory(self, *, ancestors: bool = False) -> None:
        """Make all names durable."""
        self._files.commit()

    def lock(self, *, create: bool = False) -> None:
        """As `SimulatedStorage.lock`; `create` makes the file."""
        super().lock()
        if create and self._files.mounted and MAIN not in self._files.names:
            self._files.create(MAIN)
