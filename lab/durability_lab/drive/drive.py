"""A drive that can lose power: media, what it only holds in memory over them, and a model of how it errs.

The same drive runs inside the test process (`simulated_storage`, `simulation`) and as a real block device
(`nbdkit_plugin`, which embeds the system's Python 3.11): so this module, `media`, `faults` and `drive_log`
import the standard library and each other, nothing else.

    write --> cache --(flush, FUA, or early by chance, or for want of room)--> media
    read  <-- cache, over what is held, over media
    cut       cache and held are gone; every later request raises EIO until `power_on`

`cache` has what the drive has accepted and not yet destaged, `held` what it says is on media and is not: a
drive without a fault holds nothing. Reads before a cut are right for every model; a drive that returns wrong
data with the power on has another kind of fault, which other tools find.

What becomes of an unflushed write at a cut is drawn when the write arrives: it is kept (the drive happened to
write it back at once), torn (it wrote some of its sectors back) or lost (all of it waits in the cache). What
a drive does early it may do late, so nothing has to be decided at the cut itself, and killing the process
that holds a drive is as good a power cut as `cut`. The same seed, requests and readings of the clock give the
same damage.

Refuses requests that are not whole sectors or lie outside the drive; it never extends one. Sizes and offsets
in bytes.

To add a fault: a subclass of `Model` in `faults`, which overrides what the fault is about.
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

_PATIENCE_S = 0.001  # of the thread that keeps time: under load the requests are sooner


class HangingReadError(OSError):
    """A read that would never return, if the caller asked not to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """How a drive treats its commands: here without a cache and without a fault.

    The fields are a model's parameters, and what a drive of it has to remember besides: so every drive has a
    model of its own, which `fresh` makes. `honest`: after a cut everything is there that a flush or FUA
    had returned for. `volatile`: there is a cache, as the drive says of itself. The methods are called
    with the drive's lock held.
    """

    name: ClassVar[str]
    honest: ClassVar[bool]
    volatile: ClassVar[bool]

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
        """The model as `faults.parse` reads it: its name, and the parameters that are not as usual."""
        settings = [
            f"{field.name}={str(getattr(self, field.name)).removesuffix('.0')}"
            for field in fields(self)
            if field.init and getattr(self, field.name) != field.default
        ]
        return f"{self.name}:{','.join(settings)}" if settings else self.name

    def fresh(self) -> Model:
        """The same model, which remembers nothing."""
        return replace(self)

    def capacity_bytes(self, size_bytes: int, *, cuts: int) -> int:
        """The capacity that a drive with media of `size_bytes` shows after `cuts` cuts."""
        return size_bytes

    def accept(self, drive: Drive, offset: int, data: bytes, *, fua: bool) -> None:
        """A write has come; with `fua` it is to be on media on return."""
        self.destage(drive, offset, data)

    def flush(self, drive: Drive) -> None:
        """Everything that was accepted is to be on media on return."""

    def destage(self, drive: Drive, offset: int, data: bytes) -> None:
        """Bring whole sectors, in one piece, to media."""
        drive.put(offset, data)

    def check_read(self, drive: Drive, offset: int, length: int) -> None:
        """Raises OSError where this cannot be read, HangingReadError where that is never known."""

    def tick(self, drive: Drive) -> None:
        """`drive.due_s` has come: do what was due, and say when next."""

    def wake(self, drive: Drive) -> None:
        """Power is back after a cut."""


class Drive:
    """One drive; safe for several threads at once.

    `generation` counts how often it was powered on, as the kernel's `diskseq` does; `flushes` the flush
    requests since it was made, `cuts` how often it lost power, including before. A sector is the unit that an
    honest drive never tears. `clock` is in seconds, from any start. `drive_log` is told everything that the
    drive is told and promises. `hang` is called, in the thread that reads, where a read never returns: it
    must not return either; without it the read waits until the next `cut`.
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
        self.generation = 1
        self.flushes = 0
        self.cuts = cuts
        self.now_s = clock
        self.due_s: float | None = None
        self.woke_s: float  # when it last got its power
        self.cache: OrderedDict[int, bytes] = OrderedDict()  # by sector; the longest waiting first
        self.held: dict[int, bytes] = {}  # by sector
        # Of `random` only random() is used: its sequence from an integer seed is documented as stable.
        self.chance = random.Random(mixed(seed, cuts)).random
        self._drive_log = drive_log
        self._hang = hang or self._hang_until_cut
        self._powered = True
        self._fail_next = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # of due_s and of power
        self._wake()

    # What a host asks for.

    @property
    def shown_bytes(self) -> int:
        """The capacity that a kernel shows: 0 of a drive without power."""
        return self.size_bytes if self._powered else 0

    def read(self, offset: int, length: int) -> bytes:
        """The newest bytes there. Need not be whole sectors. Raises OSError."""
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
        """Accept a write; with `fua` (force unit access) as though flushed alone. Raises OSError."""
        with self._lock:
            self._begin(offset, len(data))
            self._fail_if_told()
            if offset % self.sector_bytes or len(data) % self.sector_bytes:
                raise OSError(
                    errno.EINVAL,
                    f"{len(data)} bytes at {offset} are not whole sectors of {self.sector_bytes}",
                )
            whole = bytes(data)
            # First the drive log: a write that a kill interrupts may be on media already.
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

    # What happens to a drive.

    def fail_once(self) -> None:
        """Let the next write or flush fail with EIO and do nothing; the drive has power and goes on."""
        with self._lock:
            self._fail_next = True

    def cut(self) -> None:
        """Take the power away: what is not on media is gone, and every request fails until `power_on`."""
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
        """Give the power back; the drive is enumerated anew."""
        with self._lock:
            self._powered = True
            self.generation += 1
            self._wake()

    def tick(self) -> None:
        """Do what is due by the clock, as every request does first."""
        with self._lock:
            if self._powered:
                self._do_what_is_due()

    def wait_until_due(self) -> None:
        """Wait, in real seconds, until `tick` has something to do. For a thread of its own."""
        with self._changed:
            while self.due_s is None or self.due_s > (now_s := self.now_s()):
                self._changed.wait(None if self.due_s is None else max(self.due_s - now_s, _PATIENCE_S))

    # What a model does. The lock is held.

    def put(self, offset: int, data: bytes) -> None:
        """Write whole sectors to media, where nothing is held in their place any more."""
        self.media.write(offset, data)
        if self.held:
            for sector in self.sectors(offset, len(data)):
                self.held.pop(sector, None)

    def hold(self, offset: int, data: bytes) -> list[bytes]:
        """Keep whole sectors in memory only, as though they were on media; what is kept, sector by sector."""
        size = self.sector_bytes
        kept = [data[start : start + size] for start in range(0, len(data), size)]
        self.held.update(zip(self.sectors(offset, len(data)), kept, strict=True))
        return kept

    def settled(self, offset: int, length: int) -> bytes:
        """What the media should have there: what is held, or else what is on them."""
        return self._overlaid(self.media.read(offset, length), offset, self.held)

    def settle(self, sectors_left: int) -> None:
        """Destage what waits longest until no more than `sectors_left` are cached. The sectors that follow on
        the drive go with it: a record, which came in one piece, leaves in one."""
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

    # The rest.

    def _begin(self, offset: int, length: int) -> None:
        """What every request begins with."""
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
        """`data`, read at `offset`, with what the layer has in its place."""
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
    """A 64-bit number that depends on every bit of all of them, the same in every process (splitmix64)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ state >> 27) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state
