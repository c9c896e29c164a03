"""The smallest honest file system: a target in memory that keeps, over a cut, what was synced and no more.

A file's bytes survive if the file was synced after they were written, a name if the directory was synced
after it was given; nothing else does. So a writer that acknowledges too early, or forgets a sync, loses what
it acknowledged. Reads fail where a test says so.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from durability.formats.facts import Facts
from durability.formats.plan import MAIN, WRITE_THROUGH_METHODS, Plan, TargetKind
from durability_client.target.storage import Buffer, PresentDrive, Storage, WritableBuffer
from tests.core.evidence.memory_target import SECTOR, Disk


class Inode:
    """One file's bytes, as they are and as a cut would leave them."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytes(data)


class OpenFile:
    """A `TargetFile`, opened under the name `suffix`."""

    direct = True

    def __init__(self, files: Files, suffix: str, inode: Inode) -> None:
        self._files = files
        self._suffix = suffix
        self._inode = inode

    def pwrite(self, buffer: Buffer, offset: int) -> None:
        self._files.step("write")
        data, end = self._inode.data, offset + len(buffer)
        data.extend(bytes(max(0, end - len(data))))
        data[offset:end] = memoryview(buffer)

    def sync(self) -> None:
        self._files.step("sync")
        self._inode.durable = bytes(self._inode.data)

    def undo(self) -> None:
        """Forget what was not synced, as a kernel does with pages that it could not write back."""
        self._inode.data[:] = self._inode.durable

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        self._files.check_read(self._suffix, offset, len(buffer))
        found = self._inode.data[offset : offset + len(buffer)]
        memoryview(buffer)[: len(found)] = found
        self._files.flip(self._suffix, offset, memoryview(buffer)[: len(found)])
        return len(found)

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size_bytes: int) -> None:
        del self._inode.data[size_bytes:]

    def close(self) -> None:
        """Nothing is held."""


class OpenDirectory:
    """A `TargetDirectory`."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def sync(self) -> None:
        self._files.step("sync directory")
        self._files.keep_names()

    def close(self) -> None:
        """Nothing is held."""


class Files:
    """A `Storage`. `now`: the facts of the target. `before` is called before each write ("write"), sync of a
    file ("sync") and of the directory ("sync directory"), with how many of that kind there were and the last
    file that was opened for writing; it may raise, or cut.

    `bad`: suffix and offset of sectors that give an I/O error. `hidden`: the files that give one whatever
    is asked. `listed`: whether the directory can be listed. `flips`: how often the byte at suffix and
    offset is read wrong. `gone`: suffix and range from which the drive does not answer any more. `power_for`:
    how many reads there is power for; open files stay open.
    """

    kind: TargetKind = "file"
    path = Path("/mnt/target")

    def __init__(self, now: Facts) -> None:
        self.now = now
        self.before: Callable[[str, int, OpenFile | None], None] = lambda kind, number, file: None
        self.bad: set[tuple[str, int]] = set()
        self.hidden: set[str] = set()
        self.listed = True
        self.flips: dict[tuple[str, int], int] = {}
        self.gone: tuple[str, range] | None = None
        self.power_for: int | None = None
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._steps: dict[str, int] = {}
        self._powered = True
        self._written: OpenFile | None = None

    @classmethod
    def of(cls, disk: Disk, now: Facts) -> Files:
        """Files that hold what `disk` holds."""
        return cls.holding({suffix: bytes(data) for suffix, data in disk.files.items()}, now)

    @classmethod
    def holding(cls, contents: Mapping[str, bytes], now: Facts) -> Files:
        """Files with these contents, by their suffixes."""
        files = cls(now)
        files._names = {suffix: Inode(data) for suffix, data in contents.items()}
        return files

    @property
    def storage(self) -> Storage:
        """These files as what they are to the client."""
        return cast(Storage, self)

    # What happens to them.

    def watch(self, before: Callable[[str, int, OpenFile | None], None]) -> None:
        """From now on call `before`, and count from here."""
        self.before = before
        self._steps.clear()

    def cut(self) -> None:
        """Take the power away: every request fails until `power_on`."""
        self._powered = False

    def vanish(self) -> None:
        """The drive drops off its bus, and what was mounted with it: nothing is there any more."""
        self._names.clear()
        self.now = replace(self.now, drives=())

    def power_on(self) -> None:
        """Give the power back; what was not synced is gone."""
        self._powered = True
        self._names = dict(self._durable_names)
        for inode in self._names.values():
            inode.data[:] = inode.durable

    def step(self, kind: str) -> None:
        """Count a step and see whether it may be done."""
        self._require_power()
        self._steps[kind] = self._steps.get(kind, 0) + 1
        self.before(kind, self._steps[kind], self._written)
        self._require_power()

    def keep_names(self) -> None:
        """What a sync of the directory does."""
        self._durable_names = dict(self._names)

    def check_read(self, suffix: str, offset: int, length: int) -> None:
        """Raises what a drive that fails here raises."""
        if self.power_for is not None:
            self.power_for -= 1
            if self.power_for < 0:
                raise _error(errno.EIO)
        if any(name == suffix and offset - SECTOR < bad < offset + length for name, bad in self.bad):
            raise _error(errno.EIO)
        if self.gone is not None and self.gone[0] == suffix and offset in self.gone[1]:
            raise _error(errno.ENODEV)

    def flip(self, suffix: str, offset: int, read: memoryview) -> None:
        """Make what was read wrong, where it is to be."""
        for (name, at), times in self.flips.items():
            if times and name == suffix and offset <= at < offset + len(read):
                read[at - offset] ^= 1
                self.flips[name, at] -= 1

    def _require_power(self) -> None:
        if not self._powered:
            raise _error(errno.EIO)

    # What a client asks for.

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> OpenFile:
        assert plan is None or plan.sync not in WRITE_THROUGH_METHODS, "only what is synced survives here"
        file = self._open(suffix, create=create)
        if plan is not None:
            self._written = file
        return file

    def open_bulk(self, suffix: str, *, create: bool = False, direct: bool = True) -> OpenFile:
        return self._open(suffix, create=create and not (suffix == MAIN and suffix in self._names))

    def _open(self, suffix: str, *, create: bool) -> OpenFile:
        self._require_power()
        self._look(suffix)
        if create and suffix in self._names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), suffix)
        if create:
            self._names[suffix] = Inode()
        if suffix not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), suffix)
        return OpenFile(self, suffix, self._names[suffix])

    def _look(self, suffix: str) -> None:
        if suffix in self.hidden:
            raise _error(errno.EIO)

    def exists(self, suffix: str) -> bool:
        self._look(suffix)
        return suffix in self._names

    def suffixes(self) -> tuple[str, ...]:
        if not self.listed:
            raise _error(errno.EIO)
        return tuple(sorted(suffix for suffix in self._names if suffix != MAIN))

    def size(self, suffix: str) -> int:
        return self._open(suffix, create=False).size()

    def unlink(self, suffix: str) -> None:
        self._open(suffix, create=False)
        del self._names[suffix]

    def rename(self, old_suffix: str, new_suffix: str) -> None:
        self._open(old_suffix, create=False)
        self._names[new_suffix] = self._names.pop(old_suffix)

    def open_directory(self) -> OpenDirectory:
        return OpenDirectory(self)

    def sync_directory(self, *, ancestors: bool = False) -> None:
        self.open_directory().sync()

    def facts(self) -> Facts:
        return self.now

    def drives(self) -> tuple[PresentDrive, ...]:
        return tuple(
            PresentDrive(name=drive.name, size_bytes=drive.size_bytes, diskseq=drive.diskseq)
            for drive in self.now.drives
        )

    def drop_caches_below(self) -> None:
        """There is nothing below."""


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))
