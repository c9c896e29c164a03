"""A drive that can lose power: media, data held only in memory, and a model of its faults.

The same drive runs inside the test process (`simulated_storage`, `simulation`) and as a real block device.
`nbdkit_plugin` embeds the system's Python 3.11. This module, `media`, `faults` and `drive_log` therefore
import only the standard library and each other.

    write --> cache --(flush, FUA, early by chance, or because the cache is full)--> media
    read  <-- cache, else held sectors, else media
    cut       cache and held sectors are gone; every later request raises EIO until `power_on`

`cache` has the sectors that the drive has accepted and not yet destaged. `held` has the sectors that the
drive claims are on media but are not; a drive without a fault holds none. Before a cut, every model returns
correct data. Wrong data with the power on are another kind of fault, which other tools find.

The fate of an unflushed write at a cut is drawn when the write arrives. The write is kept (the drive wrote it
back at once), torn (the drive wrote some of its sectors back) or lost (all of it waits in the cache). Nothing
has to be decided at the cut itself. Killing the process that holds a drive is therefore as good a power cut
as `cut`. The same seed, requests and clock readings give the same damage.

Writes must be whole sectors, and requests outside the drive are refused. The drive never extends a request.
Sizes and offsets are in bytes.

To add a fault, write a subclass of `Model` in `faults` and override the methods that the fault changes.
"""

from __future__ import annotations

import errno
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import ClassVar, NoReturn

from durability_lab.drive.drive_log import DriveLog
from durability_lab.drive.media import Media

_PATIENCE_S = 0.001  # shortest wait of the timekeeping thread; under load, requests come sooner


class HangingReadError(OSError):
    """Raised instead of a read that never returns, if the caller asked not to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """How a drive carries out its commands. This base class has no cache and no fault.

    The fields are the model's parameters and the state of one drive. Every drive therefore has its own model,
    which `fresh` makes. The methods are called with the drive's lock held.
    """

    name: ClassVar[str]
    honest: ClassVar[bool]  # after a cut, all data are there for which a flush or FUA write had returned
    volatile: ClassVar[bool]  # the drive reports a volatile cache

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.init:
                value, least, most = (
                    getattr(self, field.name),
                    field.metadata["least"],
                    field.metadata["most"],
                )
                if not least <= value <= most:
                    raise ValueError(f"{self.name}: {field.name} must be from {least} to {most}, not {value}")

    @property
    def spec(self) -> str:
        """The model as `faults.parse` reads it: its name and the parameters that are not the defaults."""
        settings = [
            f"{field.name}={str(getattr(self, field.name)).removesuffix('.0')}"
            for field in fields(self)
            if field.init and getattr(self, field.name) != field.default
        ]
        return f"{self.name}:{','.join(settings)}" if settings else self.name

    def fresh(self) -> Model:
        """A new model with the same parameters and no state."""
        return replace(self)

    def capacity_bytes(self, size_bytes: int, *, cuts: int) -> int:
        """The capacity that a drive with media of `size_bytes` shows after `cuts` cuts."""
        return size_bytes

    def accept(self, drive: Drive, offset: int, data: bytes, *, fua: bool) -> None:
        """Accept a write. With `fua`, an honest model has it on media on return."""
        self.destage(drive, offset, data)

    def flush(self, drive: Drive) -> None:
        """Flush. An honest model has every accepted write on media on return."""

    def destage(self, drive: Drive, offset: int, data: bytes) -> None:
        """Bring one contiguous piece of whole sectors to media."""
        drive.put(offset, data)

    def check_read(self, drive: Drive, offset: int, length: int) -> None:
        """Raises OSError if the range cannot be read, HangingReadError if the read would never return."""

    def tick(self, drive: Drive) -> None:
        """Do the work that is due at `drive.due_s`, and plan the next."""

    def wake(self, drive: Drive) -> None:
        """Called when power is back after a cut."""


class Drive:
    """One drive; safe for several threads at once.

    A sector is the unit that an honest drive never tears. `clock` returns seconds, from any start. `cuts` is
    the number of earlier power losses. `drive_log` gets every write, flush, promise and cut. `hang` is called
    in the reading thread if a read never returns, and must not return either. Without `hang`, such a read
    waits for the next `cut` or `power_on`.
    """

    def __init__(
        self,
        media: Media,
        model: Model,
        *,
        seed: int,
        sector_bytes: int = 512,
        clock: Callable[[], float] = time.monotonic,
        cuts: int = 0,
        drive_log: DriveLog | None = None,
        hang: Callable[[], NoReturn] | None = None,
    ) -> None:
        if media.size_bytes <= 0 or media.size_bytes % sector_bytes:
            raise ValueError(f"a drive of {media.size_bytes} bytes is not whole sectors of {sector_bytes}")
        self.model = model.fresh()
        self.media = media
        self.sector_bytes = sector_bytes
        self.seed = seed
        self.generation = 1  # how often the drive was powered on, like the kernel's `diskseq`
        self.flushes = 0  # flush requests since the drive was made
        self.cuts = cuts  # how often the drive lost power, earlier cuts included
        self.now_s = clock
        self.due_s: float | None = None  # when `tick` has work to do
        self.woke_s: float  # when the drive was last powered on
        self.cache: OrderedDict[int, bytes] = OrderedDict()  # by sector; the longest waiting first
        self.held: dict[int, bytes] = {}  # by sector
        # Only random() is used: its sequence from an integer seed is documented as stable.
        self.chance = random.Random(mixed(seed, cuts)).random
        self._drive_log = drive_log
        self._hang = hang or self._hang_until_cut
        self._powered = True
        self._fail_next = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # notified when due_s or the power changes
        self._wake()

    # Requests of the host.

    @property
    def shown_bytes(self) -> int:
        """The capacity that a kernel shows; 0 for a drive without power."""
        return self.size_bytes if self._powered else 0

    def read(self, offset: int, length: int) -> bytes:
        """The newest bytes of the range, which need not be whole sectors. Raises OSError."""
        try:
            return self.peek(offset, length)
        except HangingReadError:
            self._hang()

    def peek(self, offset: int, length: int) -> bytes:
        """As `read`, but a read that would never return raises HangingReadError."""
        with self._lock:
            self._begin(offset, length)
            self.model.check_read(self, offset, length)
            data = self.media.read(offset, length)
            for layer in (self.held, self.cache):
                if layer:
                    data = self._overlaid(data, offset, layer)
            return data

    def write(self, offset: int, data: bytes | bytearray | memoryview, *, fua: bool = False) -> None:
        """Accept a write; `fua` (force unit access) makes this write alone durable. Raises OSError."""
        with self._lock:
            self._begin(offset, len(data))
            self._fail_if_told()
            if offset % self.sector_bytes or len(data) % self.sector_bytes:
                raise OSError(
                    errno.EINVAL,
                    f"{len(data)} bytes at {offset} are not whole sectors of {self.sector_bytes}",
                )
            whole = bytes(data)
            # The drive log comes first: a write that a kill interrupts may be on media already.
            if self._drive_log is not None:
                self._drive_log.wrote(offset, whole)
            self.model.accept(self, offset, whole, fua=fua)
            if fua and self._drive_log is not None:
                self._drive_log.forced(offset, len(whole))

    def flush(self) -> None:
        """Make everything acknowledged durable, if the drive is honest. Raises OSError."""
        with self._lock:
            self._begin(0, 0)
            self._fail_if_told()
            self.flushes += 1
            self.model.flush(self)
            if self._drive_log is not None:
                self._drive_log.flushed()

    # Events.

    def fail_once(self) -> None:
        """Make the next write or flush fail with EIO and do nothing; the drive keeps its power."""
        with self._lock:
            self._fail_next = True

    def cut(self) -> None:
        """Cut the power: data not on media are gone, and every request fails until `power_on`."""
        with self._lock:
            if not self._powered:
                return
            self._do_what_is_due()
            self._powered = False
            self.cuts += 1
            self.cache.clear()
            self.held.clear()
            self.due_s = None
            self.model = self.model.fresh()
            if self._drive_log is not None:
                self._drive_log.cut()
            self._changed.notify_all()

    def power_on(self) -> None:
        """Restore the power; the drive is enumerated again."""
        with self._lock:
            self._powered = True
            self.generation += 1
            self._wake()

    def tick(self) -> None:
        """Do the work that is due by the clock, as every request does first."""
        with self._lock:
            if self._powered:
                self._do_what_is_due()

    def wait_until_due(self) -> None:
        """Wait, in real seconds, until `tick` has work to do. Called in a thread of its own."""
        with self._changed:
            while self.due_s is None or self.due_s > (now_s := self.now_s()):
                self._changed.wait(None if self.due_s is None else max(self.due_s - now_s, _PATIENCE_S))

    # Called by a model, with the lock held.

    def put(self, offset: int, data: bytes) -> None:
        """Write whole sectors to media and drop held sectors in their place."""
        self.media.write(offset, data)
        if self.held:
            for sector in self.sectors(offset, len(data)):
                self.held.pop(sector, None)

    def hold(self, offset: int, data: bytes) -> list[bytes]:
        """Keep whole sectors in memory only, as though they were on media. Returns them sector by sector."""
        size = self.sector_bytes
        kept = [data[start : start + size] for start in range(0, len(data), size)]
        self.held.update(zip(self.sectors(offset, len(data)), kept, strict=True))
        return kept

    def settled(self, offset: int, length: int) -> bytes:
        """The data that should be on media: held sectors, otherwise the media's own content."""
        return self._overlaid(self.media.read(offset, length), offset, self.held)

    def settle(self, sectors_left: int) -> None:
        """Destage the longest waiting sectors until no more than `sectors_left` are cached.

        The cached sectors that directly follow on the drive are destaged with them. A record that arrived in
        one piece is therefore destaged in one piece.
        """
        cache, size = self.cache, self.sector_bytes
        while len(cache) > sectors_left:
            first, data = cache.popitem(last=False)
            piece = [data]
            while len(cache) > sectors_left and (following := cache.pop(first + len(piece), None)):
                piece.append(following)
            self.model.destage(self, first * size, b"".join(piece))

    def sectors(self, offset: int, length: int) -> range:
        """The numbers of the sectors that lie, wholly or in part, in this range."""
        return range(offset // self.sector_bytes, -(-(offset + length) // self.sector_bytes))

    def plan(self, due_s: float | None) -> None:
        """Have `tick` called when the clock shows `due_s`."""
        self.due_s = due_s
        if due_s is not None:
            self._changed.notify_all()

    # Internal.

    def _begin(self, offset: int, length: int) -> None:
        """Check power and range, and do due work; every request begins with this."""
        if not self._powered:
            raise OSError(errno.EIO, "the drive has no power")
        if offset < 0 or length < 0 or offset + length > self.size_bytes:
            raise OSError(
                errno.EINVAL, f"{length} bytes at {offset} lie outside a drive of {self.size_bytes}"
            )
        if self.due_s is not None:
            self._do_what_is_due()

    def _fail_if_told(self) -> None:
        if self._fail_next:
            self._fail_next = False
            raise OSError(errno.EIO, "the drive failed this request")

    def _do_what_is_due(self) -> None:
        if self.due_s is not None and self.due_s <= self.now_s():
            self.model.tick(self)

    def _wake(self) -> None:
        self.woke_s = self.now_s()
        self.size_bytes = self.model.capacity_bytes(self.media.size_bytes, cuts=self.cuts)
        if self.cuts:
            self.model.wake(self)

    def _overlaid(self, data: bytes, offset: int, layer: dict[int, bytes]) -> bytes:
        """`data`, read at `offset`, with the layer's sectors in place of its own."""
        size, end = self.sector_bytes, offset + len(data)
        out = bytearray(data)
        for sector in self.sectors(offset, len(data)):
            above = layer.get(sector)
            if above is not None:
                first, last = max(sector * size, offset), min((sector + 1) * size, end)
                out[first - offset : last - offset] = above[first - sector * size : last - sector * size]
        return bytes(out)

    def _hang_until_cut(self) -> NoReturn:
        with self._changed:
            generation = self.generation
            self._changed.wait_for(lambda: not self._powered or self.generation != generation)
        raise OSError(errno.EIO, "the drive lost its power while it was read")


def mixed(*numbers: int) -> int:
    """A 64-bit hash of all bits of the numbers, the same in every process (splitmix64)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ state >> 27) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state
