"""A file system over a simulated drive: honest, journalled, and as durable as its drive.

If a target is a file, this file system lies between the client and the drive. Data go to the drive at once.
Names, sizes and block places are changed in memory. A sync of any file or of the directory commits all such
changes: a flush, then one journal record with force unit access. Each record holds the checksum of the record
before it. A mount therefore replays exactly the records that were committed in order and that the drive still
has. After a failed commit, no change is possible until the next mount.

    0            JOURNAL_BYTES                            end
    | records …  | blocks, each allocated once, not reused |

Since blocks are not reused, the file system is useful for one history only.
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
    """A file."""

    size: int = 0  # in bytes
    blocks: dict[int, int] = field(default_factory=dict)  # by block of the file: block of the drive


class SimulatedFileSystem:
    """The file system on `drive`. Call `make` first, then `mount`.

    After every power loss, call `mount` again: the drive is then a new device, and the old mount has failed.
    """

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
        self._mount = object()  # tells writers of an earlier mount from those of this one

    def make(self) -> None:
        """Make an empty file system."""
        self._reset()
        self._pending.append(("made",))
        self.commit()

    def mount(self) -> None:
        """Replay the journal. Raises OSError if the drive cannot be read or has no file system."""
        self.mounted = False
        self._reset()
        while (operations := self._next_record()) is not None:
            for operation in operations:
                self._apply(tuple(operation))
        if not self._journal_end:
            raise OSError(errno.EUCLEAN, "no file system is on the drive")
        self.mounted = True

    def _next_record(self) -> list[list[Any]] | None:
        """The operations of the next journal record, None if there is no valid record."""
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

    # Changes. Each is applied in memory at once, and durable after the next commit.

    def change(self, *operation: Any) -> None:
        """Make one change of names, sizes or blocks. Raises OSError if the file system has failed."""
        self.require_alive()
        self._apply(operation)
        self._pending.append(operation)

    def require_alive(self) -> None:
        """Raises OSError if a commit has failed, the drive was enumerated again, or nothing is mounted."""
        if self._has_failed() or not self.mounted:
            raise OSError(errno.EIO, "the file system has failed")

    def _has_failed(self) -> bool:
        return self._failed or self.is_stale

    @property
    def is_stale(self) -> bool:
        """Whether the drive was enumerated again since the mount."""
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
            if fiber is None:  # the committing writer is gone, so its commit never ends
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
        except greenlet.GreenletExit:  # the caller was killed; the next commit takes over its operations
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
        """The inode number of a file. Raises FileNotFoundError, or OSError if nothing is mounted."""
        if not self.mounted:
            raise OSError(errno.EIO, "nothing is mounted")
        if name not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self.names[name]

    def create(self, name: str) -> int:
        """Create a file; returns its inode number. Raises FileExistsError."""
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
        """The pieces of `length` bytes at `offset`: place on the drive (None if unallocated) and length."""
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
    """A `TargetFile` on a `SimulatedFileSystem`. `fua`: every write is durable when it returns."""

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
        memoryview(buffer)[:length] = b"".join(read)  # an earlier error keeps no view of the buffer alive
        return length

    def size(self) -> int:
        return self._files.size_of(self._number)

    def truncate(self, size_bytes: int) -> None:
        self._files.change("size", self._number, size_bytes)

    def close(self) -> None:
        """Does nothing: no resource is held."""


class _Directory:
    """A `TargetDirectory` for the only directory of the file system."""

    def __init__(self, files: SimulatedFileSystem) -> None:
        self._files = files

    def sync(self) -> None:
        self._files.commit()

    def close(self) -> None:
        """Does nothing: no resource is held."""


class HistoryFileStorage(HistoryStorage):
    """As `HistoryStorage`, for a file on a simulated file system."""

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
        """Whether the file system is mounted, and the drive was not enumerated again since."""
        return self._files.mounted and not self._files.is_stale

    def mount(self) -> None:
        """Mount the file system on the drive; if that fails, nothing is mounted."""
        try:
            self._files.mount()
        except OSError:
            self._files.mounted = False

    def copy_from(self, other: HistoryStorage) -> None:
        """As in `HistoryStorage`; UUID and path also become those of the other storage."""
        assert isinstance(other, HistoryFileStorage)
        super().copy_from(other)
        self._uuid = other._uuid
        self.path = other.path
        self.mount()

    def unmount(self) -> None:
        """Commit all changes, and mount again."""
        with contextlib.suppress(OSError):
            self._files.commit()
        self.mount()

    def facts(self) -> facts.Facts:
        """The facts that a system would find. Raises TargetError if nothing is mounted."""
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
        """Open a file of the target; `create` makes it. Its writes use FUA if the plan's sync says so."""
        number = self._files.create(suffix) if create else self._files.inode_of(suffix)
        fua = plan is not None and plan.sync in WRITE_THROUGH_METHODS
        return _File(self._files, self._drive, number, fua=fua)

    def open_bulk(self, suffix: str, *, create: bool = False, direct: bool = True) -> _File:  # type: ignore[override]
        """As `open`, for bulk writes that are synced at the end."""
        new = create and not (suffix == MAIN and suffix in self._files.names)
        number = self._files.create(suffix) if new else self._files.inode_of(suffix)
        return _File(self._files, self._drive, number, fua=False)

    def exists(self, suffix: str) -> bool:
        """Whether the file exists."""
        return self._files.mounted and suffix in self._files.names

    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of all files of this tool. Raises OSError if nothing is mounted."""
        if not self._files.mounted:
            raise OSError(errno.EIO, "nothing is mounted")
        return tuple(sorted(name for name in self._files.names if name == CONTROL or parse_name(name)))

    def size(self, suffix: str) -> int:
        """Length of the file in bytes."""
        return self._files.size_of(self._files.inode_of(suffix))

    def unlink(self, suffix: str) -> None:
        """Remove the file."""
        self._files.inode_of(suffix)
        self._files.change("removed", suffix)

    def rename(self, old_suffix: str, new_suffix: str) -> None:
        """Rename the file."""
        self._files.inode_of(old_suffix)
        self._files.change("moved", old_suffix, new_suffix)

    def open_directory(self) -> _Directory:
        """Open the directory, to sync it."""
        return _Directory(self._files)

    def sync_directory(self, *, ancestors: bool = False) -> None:
        """Make all names durable."""
        self._files.commit()

    def lock(self, *, create: bool = False) -> None:
        """As `SimulatedStorage.lock`; `create` makes the file."""
        super().lock()
        if create and self._files.mounted and MAIN not in self._files.names:
            self._files.create(MAIN)
