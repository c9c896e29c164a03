"""A simulated drive with events: slow requests, failing requests, no answers, power loss during reads.

The drive also records when it last made a promise to each run. It is the target of the real client, as
`SimulatedStorage` is, in a machine of the history. Grading verdicts is the task of `deserved`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from durability import limits
from durability.errors import TargetError
from durability.formats import facts
from durability.formats.facts import Drive as FoundDrive
from durability.formats.plan import Plan
from durability.formats.record import KIND_RECORD, read_superblock
from durability_client.target.storage import DriveLook, DriveWatch, PresentDrive, WritableBuffer
from durability_lab.drive import faults
from durability_lab.drive.drive import Drive
from durability_lab.drive.drive_log import LABEL_BYTES, SECTOR_BYTES, Broken, DriveLog
from durability_lab.histories.figures import PromisedOperations
from durability_lab.histories.simulated.virtual_loop import VirtualLoop, current_fiber
from durability_lab.simulated_rig.simulated_storage import SimulatedFile, SimulatedStorage
from durability_lab.truth.reference_judge import Label

SIZE_BYTES = 32 << 20
_MAGIC = b"DURB"
_POLL_S = 0.005
_LOOK_S = 0.1
_COPIED_BYTES = 64 << 10
_FLIPPED_AT = 100  # in a sector: behind the label of a record


class EventfulDrive(Drive):
    """A drive with events. A write takes about `write_s`, a flush or FUA write about `sync_s`.

    The actual time is drawn between half and one and a half times that value.
    """

    def __init__(
        self, *arguments: Any, loop: VirtualLoop, write_s: float, sync_s: float, **named: Any
    ) -> None:
        self._loop = loop
        self._write_s = write_s
        self._sync_s = sync_s
        self._draw = Random(f"{named['seed']} services").random
        self._under_way: dict[object, tuple[int, bytes]] = {}
        self._unpromised: set[int] = set()
        self._limit_bytes = SIZE_BYTES
        self.failing = ""  # "", "once" or "lasting"
        self.hung = False
        self.reads_left: int | None = None  # number of reads until `on_read` is called; None: never
        self.on_read: Callable[[bytes], bytes] = lambda data: data  # gets the data, returns the host's data
        self.glitches = 0  # counted power losses without loss of data, which no system saw
        self.node = "stays"  # how a system shows the drive without power (`steps`)
        self.plans: dict[int, Plan] = {}  # of every run whose superblock was written, in order
        self.sizes: dict[int, int] = {}  # by run: size of the drive when its superblock was written
        self.promised_ns: dict[int, int] = {}  # by run: when the drive last promised an operation
        self.begun_ns: dict[int, int] = {}  # by run: when the drive first promised an operation
        # By run: end of the farthest FUA write without a record, such as a file system's, while that run was
        # the newest. Run 0 stands for the time before the first run.
        self.nameless_bytes: dict[int, int] = {}
        self.operations: dict[int, PromisedOperations] = {}  # by run
        self._unflushed: set[Label] = set()
        super().__init__(*arguments, **named)

    @property
    def powered(self) -> bool:
        """Whether the drive has power."""
        return self._powered

    def read(self, offset: int, length: int) -> bytes:
        """As `Drive.read`, unless the drive fails or hangs; an event may happen at this read."""
        self._gate()
        data = super().read(offset, length)
        if self.reads_left is not None:
            self.reads_left -= 1
            if self.reads_left <= 0:
                self.reads_left = None
                return self.on_read(data)
        return data

    def write(self, offset: int, data: bytes | bytearray | memoryview, *, fua: bool = False) -> None:
        """As `Drive.write`, after some time. A cut hands the write to the drive first, which may lose it."""
        key, whole = object(), bytes(data)
        self._under_way[key] = offset, whole
        try:
            self._serve(self._sync_s if fua else self._write_s)
        finally:
            self._under_way.pop(key, None)
        super().write(offset, whole, fua=fua)
        run, records = _run_of(whole), _records_of(whole)
        for one in records:
            self.operations.setdefault(one.run, PromisedOperations()).accept(one.writer, one.seq)
        if fua:
            self._promise_records(records)
        else:
            self._unflushed |= records
        if len(whole) >= limits.SUPERBLOCK_BYTES and (plan := read_superblock(whole)) is not None:
            self.plans.setdefault(plan.run, plan)
            self.sizes.setdefault(plan.run, self.size_bytes)
        if fua and not whole.startswith(_MAGIC):
            newest = next(reversed(self.plans), 0)
            end = offset + len(whole)
            self.nameless_bytes[newest] = max(self.nameless_bytes.get(newest, 0), end)
        if run and fua:
            self._promise(run)
        elif run:
            self._unpromised.add(run)

    def flush(self) -> None:
        """As `Drive.flush`, after some time."""
        self._serve(self._sync_s)
        super().flush()
        for run in self._unpromised:
            self._promise(run)
        self._unpromised.clear()
        self._promise_records(self._unflushed)
        self._unflushed.clear()

    def _promise_records(self, records: set[Label]) -> None:
        for one in records:
            self.operations[one.run].promise(one.writer, one.slot, one.seq, self._loop.now_ns)

    def _promise(self, run: int) -> None:
        self.promised_ns[run] = self._loop.now_ns
        self.begun_ns.setdefault(run, self._loop.now_ns)

    @property
    def unsafe_shutdowns(self) -> int:
        """The drive's count of its power losses."""
        return self.cuts + self.glitches

    @property
    def recovering(self) -> bool:
        """Whether reads may fail now that will succeed later by themselves."""
        model = self.model
        recovery_ms = model.recovery_ms if isinstance(model, faults.Unreadable) else 0.0
        return self._powered and self.cuts > 0 and self.now_s() < self.woke_s + recovery_ms / 1000

    @property
    def shown_bytes(self) -> int:
        """The size that a system shows; without power 0, unless the node stays."""
        return self.size_bytes if self._powered or self.node == "stays" else 0

    @property
    def is_shown(self) -> bool:
        """Whether a system shows a device for this drive."""
        return self._powered or self.node != "gone"

    def cut(self) -> None:
        """Cut the power, in the middle of the writes that are under way."""
        if self._powered:
            for offset, data in tuple(self._under_way.values()):
                with suppress(OSError):  # a drive that is dead after an earlier cut accepts no write
                    super().write(offset, data)
        self._under_way.clear()
        self._unpromised.clear()
        self._unflushed.clear()
        self.failing, self.hung, self.reads_left = "", False, None
        super().cut()

    def broken(self, log: DriveLog) -> list[Broken]:
        """The promises that the drive does not keep now; without power, by the content of its media."""
        read = self.peek if self._powered else self.media.read
        return log.broken(read, self.size_bytes)

    def resize(self, size_bytes: int) -> None:
        """Make the drive smaller or larger permanently."""
        self._limit_bytes = self.size_bytes = size_bytes

    def _wake(self) -> None:
        super()._wake()
        self.size_bytes = self.size_bytes * self._limit_bytes // SIZE_BYTES

    def _serve(self, mean_s: float) -> None:
        self._gate()
        fiber = current_fiber()
        if fiber is not None and mean_s:
            fiber.sleep(mean_s * (0.5 + self._draw()))
        self._gate()

    def _gate(self) -> None:
        """Apply the drive's state to this request: wait while it hangs, raise OSError if it fails."""
        while self.hung:
            fiber = current_fiber()
            if fiber is None:
                raise OSError(errno.ETIMEDOUT, "the drive does not answer")
            fiber.sleep(_POLL_S)
        if self.failing:
            self.failing = self.failing.removesuffix("once")
            raise OSError(errno.EIO, "the drive reports an error")


def _run_of(data: bytes) -> int:
    """The run whose operation `data` begins with; 0 for anything else, the prefill included."""
    if not data.startswith(_MAGIC):
        return 0
    label = Label.of(data[:LABEL_BYTES])
    return label.run if label.kind == KIND_RECORD and label.seq else 0


def _records_of(data: bytes) -> set[Label]:
    """The operations with sectors in `data`, each as the label of one sector; the prefill does not count."""
    if not _run_of(data):
        return set()
    labels = (Label.of(data[at : at + LABEL_BYTES]) for at in range(0, len(data), SECTOR_BYTES))
    found = {(one.run, one.writer, one.seq): one for one in labels if one.kind == KIND_RECORD and one.seq}
    return set(found.values())


def flipped(data: bytes, draw: Random) -> tuple[bytes, bytes]:
    """`data` with one wrong bit in a randomly drawn sector, and the label of that sector."""
    start = draw.randrange(len(data) // SECTOR_BYTES) * SECTOR_BYTES
    wrong = bytearray(data)
    wrong[start + _FLIPPED_AT] ^= 1
    return bytes(wrong), data[start : start + LABEL_BYTES]


class HistoryDriveWatch:
    """A `DriveWatch` that reads the drive repeatedly, in virtual time, as the kernel's `DriveWatch` does."""

    blind = ""

    def __init__(self, drive: EventfulDrive, loop: VirtualLoop) -> None:
        self._drive = drive
        self._loop = loop
        self._generation = drive.generation

    def look(self, timeout_s: float) -> DriveLook:
        """Read the drive until it answers, for at most `timeout_s`. Must be called in a fiber."""
        fiber = current_fiber()
        assert fiber is not None
        end_s = self._loop.time() + timeout_s
        while self._loop.time() < end_s:
            if not self._drive.hung and self._drive.generation == self._generation:
                try:
                    self._drive.read(0, 512)
                except OSError:
                    pass
                else:
                    return DriveLook(drive="answered", text="it still answers reads")
            fiber.sleep(_LOOK_S)
        if self._drive.hung:
            return DriveLook(drive="silent", text="a read did not return")
        return DriveLook(drive="dead", text="every read failed")

    def close(self) -> None:
        """Does nothing: no resource is held."""


class _EmptyFile(SimulatedFile):
    """A device that the system shows with 0 bytes."""

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        """Reads nothing."""
        return 0

    def size(self) -> int:
        """Always 0."""
        return 0


class HistoryStorage(SimulatedStorage):
    """The drive as a target, in a machine that `host` describes.

    `counters`: the drive counts unsafe shutdowns. `serials`: which serial the drive shows (`History`).
    `emulated`: a hypervisor emulates the drive and its counter.
    """

    _drive: EventfulDrive

    @property
    def mounted(self) -> bool:
        """Always true: a drive without file system needs no mount."""
        return True

    def mount(self) -> None:
        """Called when the drive has power again or its machine has started; does nothing here."""

    def size(self, suffix: str) -> int:
        """The size that the system shows. Raises FileNotFoundError if it shows no device."""
        self._require_shown()
        return super().size(suffix)

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> SimulatedFile:
        """As `SimulatedStorage.open`. Raises FileNotFoundError if there is no device."""
        self._refuse_names(suffix)
        self._require_shown()
        if not self._drive.shown_bytes:
            return _EmptyFile(self._drive, fua=False, sync_s=0.0)
        return super().open(suffix, plan=plan, create=create)

    def exists(self, suffix: str) -> bool:
        """Whether the system shows a device for this suffix."""
        return super().exists(suffix) and self._drive.is_shown

    def drives(self) -> tuple[PresentDrive, ...]:
        """The drive, if the system shows it."""
        return super().drives() if self._drive.is_shown else ()

    def _require_shown(self) -> None:
        if not self._drive.is_shown:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))

    def unmount(self) -> None:
        """Unmount in order and mount again; does nothing here."""

    def __init__(
        self,
        model: str,
        *,
        seed: int,
        counters: bool,
        serials: str,
        emulated: bool,
        loop: VirtualLoop,
        host: Callable[[], facts.Host],
    ) -> None:
        draw = Random(f"{seed} speed").random
        sync_s = 0.004 + 0.008 * draw()

        def make(*arguments: Any, **named: Any) -> EventfulDrive:
            return EventfulDrive(*arguments, loop=loop, write_s=sync_s / 10, sync_s=sync_s, **named)

        self.log = DriveLog()
        super().__init__(
            faults.parse(model),
            seed=seed,
            size_bytes=SIZE_BYTES,
            clock=loop.time,
            drive_log=self.log,
            make_drive=make,
        )
        self.path = Path("/dev/simulated")
        self._counters = counters
        self._emulated = emulated
        self._host = host
        self._loop = loop
        self._serial = {"own": f"serial-{seed}", "none": ""}.get(serials, "serial-of-the-adapter")
        self._wwid = f"naa.{seed}" if serials in ("own", "wwid") else ""

    @property
    def serial(self) -> str:
        """The serial that the system shows; "" for none."""
        return self._serial

    def renumber(self) -> None:
        """Change the serial that the drive shows, if it shows one."""
        self._serial += "?" if self._serial else ""

    def copy_from(self, other: HistoryStorage) -> None:
        """Copy all readable data of another drive to the media of this one, as far as they fit."""
        for offset in range(0, min(self._drive.size_bytes, other.drive.size_bytes), _COPIED_BYTES):
            with suppress(OSError):
                data = other.drive.peek(offset, _COPIED_BYTES)
                if any(data):
                    self._drive.media.write(offset, data)

    @property
    def drive(self) -> EventfulDrive:
        """The drive itself."""
        return self._drive

    def watch_drives(self, armed: facts.Facts) -> DriveWatch:
        """A watch that reads the drive."""
        return HistoryDriveWatch(self._drive, self._loop)

    def host(self) -> facts.Host:
        """The machine that has the drive."""
        return self._host()

    def facts(self) -> facts.Facts:
        """The facts that a system would find. Raises TargetError if the drive has no power."""
        if not self._drive.powered:
            raise TargetError(f"{self.path}: no such device")
        found = super().facts()
        (leaf,) = found.drives
        leaf = replace(
            leaf,
            name=self.path.name,
            serial=self._serial,
            wwid=self._wwid,
            unsafe_shutdowns=self._drive.unsafe_shutdowns if self._counters else None,
            emulated=self._emulated,
        )
        return replace(found, drives=(leaf,), layers=(leaf.name,))

    def unsafe_shutdowns(self, drive: FoundDrive) -> int | None:
        """The drive's present count. None if the drive counts nothing, has no power, or is not the same
        device as `drive` to the system."""
        here = self._drive.powered and drive.diskseq == self._drive.generation
        return self._drive.unsafe_shutdowns if here and self._counters else None
