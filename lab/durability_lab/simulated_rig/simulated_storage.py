"""A simulated drive as the target of the real client: a block device that is cut on command.

No kernel lies between the client and the drive model: no page cache, no file system, no privileges. The
target is always a device, so only the workloads for devices run on it. Requests for files (names beside the
target, growing files) are refused.
"""

from __future__ import annotations

import errno
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from durability.errors import TargetBusyError
from durability.formats import facts
from durability.formats.facts import Drive as FoundDrive
from durability.formats.facts import Facts
from durability.formats.plan import MAIN, WRITE_THROUGH_METHODS, Plan, TargetKind
from durability_client.target.discovery import collect
from durability_client.target.drive_watch import conclude
from durability_client.target.storage import (
    Buffer,
    DriveLook,
    DriveWatch,
    PresentDrive,
    TargetDirectory,
    WritableBuffer,
)
from durability_lab.drive.drive import Drive, HangingReadError, Model
from durability_lab.drive.drive_log import DriveLog
from durability_lab.drive.media import SparseMedia

SIZE_BYTES = 64 << 20


class SimulatedFile:
    """A `TargetFile` of a simulated drive. With `fua` every write syncs itself. A sync takes `sync_s`.

    To a kernel, a drive that gets its power back is a new device. A file that was open before therefore
    fails, and so do requests under way. The next flush thus does not acknowledge data that the drive lost.
    """

    direct = True

    def __init__(self, drive: Drive, *, fua: bool, sync_s: float) -> None:
        self._drive = drive
        self._generation = drive.generation
        self._fua = fua
        self._sync_s = sync_s

    def pwrite(self, buffer: Buffer, offset: int) -> None:
        """Write at once; with `fua` the write takes `sync_s` and is a FUA write."""
        self._require_same_drive()
        if self._fua:
            self._take_time()
        self._drive.write(offset, bytes(buffer), fua=self._fua)  # an error keeps no view of the buffer alive
        self._require_same_drive()

    def sync(self) -> None:
        """Flush the drive in `sync_s`; does nothing with `fua`."""
        self._require_same_drive()
        if not self._fua:
            self._take_time()
            self._drive.flush()
        self._require_same_drive()

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        """Read from cache or media; returns the number of bytes, fewer at the end. Raises OSError."""
        self._require_same_drive()
        length = max(0, min(len(buffer), self._drive.size_bytes - offset))
        if length:  # beyond the end, 0 bytes are read without an error
            memoryview(buffer)[:length] = self._drive.read(offset, length)
        return length

    def size(self) -> int:
        """The drive's capacity now, which a cut can change; 0 while it has no power."""
        return self._drive.shown_bytes

    def truncate(self, size_bytes: int) -> None:
        """Never called: a device keeps its size."""
        raise AssertionError("a device cannot be truncated")

    def close(self) -> None:
        """Does nothing: no resource is held."""

    def _require_same_drive(self) -> None:
        if self._drive.generation != self._generation:
            raise OSError(errno.EIO, "the drive was enumerated anew")

    def _take_time(self) -> None:
        if self._sync_s:  # even a sleep of 0 s takes 50 us and more
            time.sleep(self._sync_s)


_NAME = "the simulated drive"


class SimulatedDriveWatch:
    """A `DriveWatch` of a simulated drive. The drive answers at once, and its power does not return by
    itself. One read therefore shows as much as many."""

    blind = ""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._generation = drive.generation

    def look(self, timeout_s: float) -> DriveLook:
        """Read the first sector, without waiting. A drive that was powered on since is a new device."""
        codes = {}
        try:
            self._drive.peek(0, self._drive.sector_bytes)
        except HangingReadError:
            pass
        except OSError as error:
            codes[_NAME] = error.errno or errno.EIO
        else:
            codes[_NAME] = 0 if self._drive.generation == self._generation else errno.ENODEV
        return conclude([_NAME], codes, refused="", timeout_s=timeout_s)

    def close(self) -> None:
        """Does nothing: no resource is held."""


class SimulatedStorage:
    """A `Storage` over a drive with the given model and seed: the same model and seed give the same drive.

    `sync_s`: duration of a sync. Without it, a drive in memory is faster than its server, and at the cut the
    writers would wait for credit. `clock`, `drive_log` and `hang` are those of `Drive`; `make_drive` takes
    the arguments of `Drive`.
    """

    kind: TargetKind = "device"

    def __init__(
        self,
        model: Model,
        *,
        seed: int,
        size_bytes: int = SIZE_BYTES,
        sync_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        drive_log: DriveLog | None = None,
        hang: Callable[[], NoReturn] | None = None,
        make_drive: Callable[..., Drive] = Drive,
    ) -> None:
        self.path = Path(f"/simulated/{model.spec}-{seed}")
        self._drive = make_drive(
            SparseMedia(size_bytes), model, seed=seed, clock=clock, drive_log=drive_log, hang=hang
        )
        self._sync_s = sync_s
        self._lock = threading.Lock()

    def cut(self) -> None:
        """Cut the power: every later read, write and sync raises EIO until `power_on`."""
        self._drive.cut()

    def fail_once(self) -> None:
        """Make the next write or sync raise EIO; the drive keeps its power."""
        self._drive.fail_once()

    def power_on(self) -> None:
        """Restore the power, as an operator does before `verify`."""
        self._drive.power_on()

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> SimulatedFile:
        """Open the drive. If the plan's sync method acts on each write, writes use FUA."""
        self._refuse_names(suffix)
        fua = plan is not None and plan.sync in WRITE_THROUGH_METHODS
        return SimulatedFile(self._drive, fua=fua, sync_s=self._sync_s)

    def open_bulk(self, suffix: str, *, create: bool = False, direct: bool = True) -> SimulatedFile:
        """Open the drive, with flushes that take no time."""
        self._refuse_names(suffix)
        return SimulatedFile(self._drive, fua=False, sync_s=0.0)

    def exists(self, suffix: str) -> bool:
        """True only for the device itself, which has no siblings."""
        return suffix == MAIN

    def suffixes(self) -> tuple[str, ...]:
        """Empty: a device has no siblings."""
        return ()

    def size(self, suffix: str) -> int:
        """The drive's capacity in bytes, 0 while the drive has no power. Raises FileNotFoundError for a
        sibling."""
        self._refuse_names(suffix)
        return self._drive.shown_bytes

    def unlink(self, suffix: str) -> None:
        """Raises FileNotFoundError: a device holds no files."""
        raise FileNotFoundError(f"{self.path}{suffix}: a device holds no files")

    def rename(self, old_suffix: str, new_suffix: str) -> None:
        """Raises FileNotFoundError: a device holds no files."""
        raise FileNotFoundError(f"{self.path}{old_suffix}: a device holds no files")

    def open_directory(self) -> TargetDirectory:
        """Raises FileNotFoundError: a device has no directory."""
        raise FileNotFoundError(f"{self.path}: a device has no directory")

    def sync_directory(self, *, ancestors: bool = False) -> None:
        """Does nothing: a device has no directory."""

    def lock(self, *, create: bool = False) -> None:
        """Lock the drive within this process. Raises TargetBusyError if it is locked."""
        if not self._lock.acquire(blocking=False):
            raise TargetBusyError(f"{self.path}: another run or verify holds it; wait for it, or end it")

    def unlock(self) -> None:
        """Unlock the drive; does nothing if it is not locked."""
        if self._lock.locked():
            self._lock.release()

    def host(self) -> facts.Host:
        """The machine that has the drive."""
        return collect(Path(tempfile.gettempdir()), "file").host

    def facts(self) -> facts.Facts:
        """This machine, and a target with the parameters of the simulated drive."""
        drive, model = self._drive, self._drive.model
        leaf = facts.Drive(
            name=self.path.name,
            model=f"Simulated {model.spec}",
            serial=f"simulated:{self.path.name}",
            firmware="1",
            size_bytes=drive.size_bytes,
            logical_block_bytes=drive.sector_bytes,
            physical_block_bytes=drive.sector_bytes,
            rotational=False,
            write_cache="write back" if model.volatile else "write through",
            fua=True,
            diskseq=drive.generation,
            unsafe_shutdowns=None,
            atomic_write_bytes=None,
            flushes=drive.flushes,
            emulated=False,
        )
        return facts.Facts(
            host=self.host(),
            path=str(self.path),
            path_in_file_system="",
            kind=self.kind,
            size_bytes=drive.size_bytes,
            offset_bytes=0,
            file_system=None,
            layers=(self.path.name,),
            drives=(leaf,),
            warnings=(),
        )

    def flushes(self, drive: str) -> int | None:
        """Flushes that the simulated drive completed, whatever `drive` names."""
        return self._drive.flushes

    def unsafe_shutdowns(self, drive: FoundDrive) -> int | None:
        """Always None: a simulated drive has no such counter, whatever `drive` names."""
        return None

    def watch_drives(self, armed: Facts) -> DriveWatch:
        """A watch of this drive, whatever `armed` names."""
        return SimulatedDriveWatch(self._drive)

    def drives(self) -> tuple[PresentDrive, ...]:
        """The simulated drive, enumerated again by each `power_on`; its capacity is 0 without power."""
        drive = self._drive
        return (PresentDrive(name=self.path.name, size_bytes=drive.shown_bytes, diskseq=drive.generation),)

    def drop_caches_below(self) -> None:
        """Does nothing: there is no cache between the client and the drive."""

    def _refuse_names(self, suffix: str) -> None:
        if suffix != MAIN:
            raise FileNotFoundError(f"{self.path}{suffix}: a device holds no files")
