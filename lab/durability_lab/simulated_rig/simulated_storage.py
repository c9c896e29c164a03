"""A simulated drive as the target of the real client: a block device that is cut on command.

No kernel lies between the client and the drive model: no page cache, no file system, no privileges. So the
target is a device, never a file, and only the workloads that a device can carry run on it. What the client
asks for beyond that (names beside the target, growing files) is refused.
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
    """A `TargetFile` of a simulated drive; `fua` makes every write sync itself, and a sync takes `sync_s`.

    A drive that gets its power back is another one to the kernel. So a file that was open before fails then,
    and what was under way too: what the drive lost is not acknowledged by its next flush."""

    direct = True

    def __init__(self, drive: Drive, *, fua: bool, sync_s: float) -> None:
        self._drive = drive
        self._generation = drive.generation
        self._fua = fua
        self._sync_s = sync_s

    def pwrite(self, buffer: Buffer, offset: int) -> None:
        """Write at once; with a sync method on each write it takes `sync_s` and is a FUA write."""
        self._require_same_drive()
        if self._fua:
            self._take_time()
        self._drive.write(offset, bytes(buffer), fua=self._fua)  # an error keeps no view of the buffer alive
        self._require_same_drive()

    def sync(self) -> None:
        """Flush the drive in `sync_s`; nothing where each write was FUA."""
        self._require_same_drive()
        if not self._fua:
            self._take_time()
            self._drive.flush()
        self._require_same_drive()

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        """Read from cache or media; gives the bytes read, fewer at the end. Raises OSError."""
        self._require_same_drive()
        length = max(0, min(len(buffer), self._drive.size_bytes - offset))
        if length:  # beyond the end there is nothing to read, and no error
            memoryview(buffer)[:length] = self._drive.read(offset, length)
        return length

    def size(self) -> int:
        """The drive's capacity now, which a cut can change; 0 while it has no power."""
        return self._drive.shown_bytes

    def truncate(self, size_bytes: int) -> None:
        """Never called: a device keeps its size."""
        raise AssertionError("a device cannot be truncated")

    def close(self) -> None:
        """Nothing is held."""

    def _require_same_drive(self) -> None:
        if self._drive.generation != self._generation:
            raise OSError(errno.EIO, "the drive was enumerated anew")

    def _take_time(self) -> None:
        if self._sync_s:  # even a sleep of nothing takes 50 us and more
            time.sleep(self._sync_s)


_NAME = "the simulated drive"


class SimulatedDriveWatch:
    """A `DriveWatch` of a simulated drive. What it does it does at once, and without power it stays until its
    owner gives it back; so one read shows what many would."""

    blind = ""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._generation = drive.generation

    def look(self, timeout_s: float) -> DriveLook:
        """Read the first sector, without waiting. A drive that was powered on since is another one."""
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
        """Nothing is held."""


class SimulatedStorage:
    """A `Storage` over a drive, made of its model and a seed: the same ones are the same drive.

    `sync_s` is what a sync takes: of memory alone, a drive outruns its server, and its writers then wait for
    credit where they should meet a cut. `clock`, `drive_log` and `hang` as `Drive` has them; `make_drive`
    takes what `Drive` does.
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
        """Take the power away: every later read, write and sync raises EIO until `power_on`."""
        self._drive.cut()

    def fail_once(self) -> None:
        """The next write or sync raises EIO; the drive goes on."""
        self._drive.fail_once()

    def power_on(self) -> None:
        """Give the power back, as an operator does before `verify`."""
        self._drive.power_on()

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> SimulatedFile:
        """The drive; a plan with FUA as its sync method has writes use FUA."""
        self._refuse_names(suffix)
        fua = plan is not None and plan.sync in WRITE_THROUGH_METHODS
        return SimulatedFile(self._drive, fua=fua, sync_s=self._sync_s)

    def open_bulk(self, suffix: str, *, create: bool = False, direct: bool = True) -> SimulatedFile:
        """The drive, with flushes that take no time."""
        self._refuse_names(suffix)
        return SimulatedFile(self._drive, fua=False, sync_s=0.0)

    def exists(self, suffix: str) -> bool:
        """True of the device alone: it has no siblings."""
        return suffix == MAIN

    def suffixes(self) -> tuple[str, ...]:
        """Empty: a device has no siblings."""
        return ()

    def size(self, suffix: str) -> int:
        """The drive's capacity in bytes, which the kernel shows as 0 while the drive has no power. Raises
        FileNotFoundError for a sibling."""
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
        """A device has no directory."""

    def lock(self, *, create: bool = False) -> None:
        """Hold the drive within this process. Raises TargetBusyError."""
        if not self._lock.acquire(blocking=False):
            raise TargetBusyError(f"{self.path}: another run or verify holds it; wait for it, or end it")

    def unlock(self) -> None:
        """Give the drive back; nothing where it is not held."""
        if self._lock.locked():
            self._lock.release()

    def host(self) -> facts.Host:
        """The machine that the drive is in."""
        return collect(Path(tempfile.gettempdir()), "file").host

    def facts(self) -> facts.Facts:
        """A machine and a target made up of the drive's parameters."""
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
        """None: no simulated drive is asked during a run, whatever `drive` names."""
        return None

    def watch_drives(self, armed: Facts) -> DriveWatch:
        """Look at the drive itself, whatever `armed` names."""
        return SimulatedDriveWatch(self._drive)

    def drives(self) -> tuple[PresentDrive, ...]:
        """The simulated drive, enumerated anew by each `power_on`; of no capacity without power."""
        drive = self._drive
        return (PresentDrive(name=self.path.name, size_bytes=drive.shown_bytes, diskseq=drive.generation),)

    def drop_caches_below(self) -> None:
        """There is nothing between the client and the drive."""

    def _refuse_names(self, suffix: str) -> None:
        if suffix != MAIN:
            raise FileNotFoundError(f"{self.path}{suffix}: a device holds no files")
