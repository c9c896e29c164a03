"""The drive models of the lab, honest and lying: one class each, chosen by a spec.

A spec is `NAME`, or `NAME:parameter=value,parameter=value`, for example `early-ack:delay_ms=100`. With the
defaults, a lying drive loses or damages acknowledged data in most cuts. This assumes some thousand synced
writes of 4 KiB a second and a target of 4 to 32 MiB. The docstring of a class states exceptions.

The honest models keep every promise: after a cut, each sector has the newest version for which a flush or FUA
write had returned, or a later one. Each lying model breaks its promises in one way and is honest otherwise,
so a tester's findings have one cause. No model returns wrong data before a cut.

A parameter that is out of range, or that a model does not have, raises ValueError.
"""

from __future__ import annotations

import errno
from collections import deque
from dataclasses import dataclass, field, fields
from typing import ClassVar, Final

from durability_lab.drive.drive import Drive, HangingReadError, Model, mixed
from durability_lab.drive.flash_pages import PAGE_BYTES, TEAR_BYTES, page_nearby, pages, pieces, with_flips

_MOST_BYTES = 1 << 40
_MOST_MS = 86_400_000.0
_ZONE_BYTES = 64 << 10  # zone size of `PartialFlush`; whole pages
_FIRST_CUT = 1


def _bytes(default: int, least: int = 0) -> int:
    return field(default=default, metadata={"least": least, "most": _MOST_BYTES})


def _count(default: int) -> int:
    return field(default=default, metadata={"least": 1, "most": 1_000_000_000})


def _chance(default: float) -> float:
    return field(default=default, metadata={"least": 0.0, "most": 1.0})


def _ms(default: float) -> float:
    return field(default=default, metadata={"least": 0.0, "most": _MOST_MS})


def _chosen(drive: Drive, cuts: int, region: int, *, share: float) -> bool:
    """Whether `region` is chosen; about a `share` of all regions is, drawn again for each `cuts`."""
    return mixed(drive.seed, cuts, region) < share * 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteThrough(Model):
    """No volatile cache, or one with power-loss protection: a write is on media before it is acknowledged.

    Datacenter drives with capacitors work like this; the kernel sends them no flush.
    """

    name: ClassVar[str] = "write-through"
    honest: ClassVar[bool] = True
    volatile: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached(Model):
    """A drive with a volatile cache of `cache_bytes`; a full cache destages the sectors that wait longest.

    A subclass is a lying model unless it sets `honest`.
    """

    volatile: ClassVar[bool] = True
    honest: ClassVar[bool] = False

    cache_bytes: int = _bytes(32 << 20)
    kept: float = _chance(0.3)  # chance that a whole write is destaged at once
    torn: float = _chance(0.1)  # chance that only some sectors of a write are destaged at once

    def __post_init__(self) -> None:
        Model.__post_init__(self)
        if self.kept + self.torn > 1:
            raise ValueError(f"{self.name}: kept and torn are more than 1 together")

    def honours_flush(self, drive: Drive) -> bool:
        """Whether a flush that arrives now is carried out; otherwise it is only acknowledged."""
        return True

    def honours_fua(self, drive: Drive) -> bool:
        """Whether a FUA write that arrives now is destaged; otherwise it is only cached."""
        return self.honours_flush(drive)

    def room_bytes(self) -> int:
        """Capacity of the cache in bytes."""
        return self.cache_bytes

    def accept(self, drive: Drive, offset: int, data: bytes, *, fua: bool) -> None:
        """Destage the write if its FUA is honoured or, wholly or in part, by chance; otherwise cache it."""
        if fua and self.honours_fua(drive):
            self._destage_now(drive, offset, data)
            return
        fate = drive.chance()
        if fate < self.kept:
            self._destage_now(drive, offset, data)
        else:
            self._cache(drive, offset, data, torn=fate < self.kept + self.torn)

    def flush(self, drive: Drive) -> None:
        """Destage the whole cache, if this flush is carried out."""
        if self.honours_flush(drive):
            drive.settle(0)

    def _destage_now(self, drive: Drive, offset: int, data: bytes) -> None:
        if drive.cache:
            for sector in drive.sectors(offset, len(data)):
                drive.cache.pop(sector, None)
        self.destage(drive, offset, data)

    def _cache(self, drive: Drive, offset: int, data: bytes, *, torn: bool) -> None:
        size = drive.sector_bytes
        for start in range(0, len(data), size):
            part = data[start : start + size]
            if torn and drive.chance() < 0.5:
                self._destage_now(drive, offset + start, part)
            else:
                drive.cache[(offset + start) // size] = part
        drive.settle(self.room_bytes() // size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Honest(Cached):
    """A volatile cache that honours flush and FUA; a cut keeps, tears or loses unflushed writes.

    Samsung 970 EVO Plus and WD SN700 kept all flushed data under cuts (Russ Bishop, 2022).
    """

    name: ClassVar[str] = "honest"
    honest: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushIgnored(Cached):
    """Acknowledges flush and FUA but ignores them; data reach media when the cache is full, oldest first.

    SK Hynix Gold P31 and Sabrent Rocket lost flushed data (Russ Bishop, 2022); QEMU's `cache=unsafe` and
    Firecracker's default cache type do the same to their guests by design.
    """

    name: ClassVar[str] = "flush-ignored"

    cache_bytes: int = _bytes(1 << 20)
    kept: float = _chance(0.2)
    torn: float = _chance(0.05)

    def honours_flush(self, drive: Drive) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyAck(Cached):
    """Flush and FUA return at once; the data they cover are on media `delay_ms` later, in the same order.

    Order is kept because this fault is the hardest to detect: after a cut, the drive has the state that it
    had `delay_ms` earlier. Data were lost up to 700 ms after completion (Ahmadian et al., DATE 2018). A cut
    damages data if there was a sync within the last `delay_ms`.
    """

    name: ClassVar[str] = "early-ack"

    delay_ms: float = _ms(10.0)
    _under_way: deque[tuple[float, int, list[bytes]]] = field(  # due in s, offset, sectors; soonest first
        init=False, compare=False, repr=False, default_factory=deque
    )

    def destage(self, drive: Drive, offset: int, data: bytes) -> None:
        """Hold the data in memory for `delay_ms`; a cut before that loses them."""
        due_s = drive.now_s() + self.delay_ms / 1000
        self._under_way.append((due_s, offset, drive.hold(offset, data)))
        if drive.due_s is None:
            drive.plan(due_s)

    def tick(self, drive: Drive) -> None:
        """Write the due data to media, and plan the next write."""
        now_s = drive.now_s()
        while self._under_way and self._under_way[0][0] <= now_s:
            _, offset, sectors = self._under_way.popleft()
            drive.media.write(offset, b"".join(sectors))
            for sector, data in enumerate(sectors, offset // drive.sector_bytes):
                if drive.held.get(sector) is data:  # else a newer version is under way
                    del drive.held[sector]
        drive.plan(self._under_way[0][0] if self._under_way else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushSkipped(Cached):
    """Ignores each flush and each FUA with a chance of 1 in `one_in`; honours the others.

    Flushes are skipped at random, since skipping every Nth could stay in step with a file system's flushes.
    An honoured flush makes everything before it durable. A cut therefore loses data only if the last flush
    was skipped, in about one cut in `one_in`. Many writers hide the fault by flushing for each other. No
    published case is known.
    """

    name: ClassVar[str] = "flush-skipped"

    one_in: int = _count(2)
    kept: float = _chance(0.0)

    def honours_flush(self, drive: Drive) -> bool:
        """At random; one flush in `one_in` is ignored on average."""
        return drive.chance() * self.one_in >= 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialFlush(Cached):
    """A flush succeeds but leaves one of the `parts` parts of the cache unwritten; FUA is honoured.

    A controller with several channels or cores has a cache for each. No flush reaches the part for every
    `parts`-th zone of 64 KiB; that part writes back its oldest sectors when it is full. No published case is
    known.
    """

    name: ClassVar[str] = "partial-flush"

    cache_bytes: int = _bytes(1 << 20)
    parts: int = _count(4)

    def _cache(self, drive: Drive, offset: int, data: bytes, *, torn: bool) -> None:
        """Hold the data that no flush reaches, and destage the oldest if they exceed their cache part."""
        for start, part in pages(offset, data):
            if start // _ZONE_BYTES % self.parts:
                Cached._cache(self, drive, start, part, torn=torn)
            else:
                drive.hold(start, part)
        size = drive.sector_bytes
        while len(drive.held) * size * self.parts > self.cache_bytes:
            sector = next(iter(drive.held))
            drive.put(sector * size, drive.held[sector])


@dataclass(frozen=True, slots=True, kw_only=True)
class FuaIgnored(Cached):
    """A FUA write goes to the volatile cache like any other; flush is honoured.

    Flush and FUA are different paths in a firmware. QEMU's NVMe drive (7.2) claims FUA and drops it, as rig C
    found (docs/explanation/lab.md). The fault shows only if the host sends FUA. Below a loop device it does
    not show: there the kernel sends a flush instead.
    """

    name: ClassVar[str] = "fua-ignored"

    def honours_fua(self, drive: Drive) -> bool:
        """Never; a FUA write is cached like any other write."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shorn(Cached):
    """By chance, only the first part of a destaged page is programmed, a multiple of 512 bytes.

    Three of 15 SSDs did this, in multiples of 512 bytes (Zheng et al., FAST 2013). The page is served from
    memory until the cut, or until it is written again. If sectors are larger than 512 bytes, the tear can lie
    within a sector.
    """

    name: ClassVar[str] = "shorn"

    chance: float = _chance(0.005)

    def destage(self, drive: Drive, offset: int, data: bytes) -> None:
        """Write each page whole or, by chance, only its first units of `TEAR_BYTES`."""
        for start, part in pages(offset, data):
            if len(part) > TEAR_BYTES and drive.chance() < self.chance:
                tears = len(part) // TEAR_BYTES - 1
                drive.hold(start, part)
                drive.media.write(start, part[: TEAR_BYTES * (1 + int(drive.chance() * tears))])
            else:
                drive.put(start, part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Misdirected(Cached):
    """By chance, a destaged page overwrites another place.

    One bit of the page number is wrong: the page lies up to 2 MiB away. Both places are served from memory
    until the cut, or until they are written again. Disks in operation hold blocks that belong elsewhere
    (Bairavasundaram et al., FAST 2008). No published case of misdirection by a cut is known.
    """

    name: ClassVar[str] = "misdirected"

    chance: float = _chance(0.003)

    def destage(self, drive: Drive, offset: int, data: bytes) -> None:
        """Write each page to its own place or, by chance, to a place nearby."""
        for start, part in pages(offset, data):
            if drive.chance() < self.chance:
                wrong = page_nearby(start, drive.size_bytes, drive.chance)
                drive.hold(wrong, drive.settled(wrong, len(part)))
                drive.hold(start, part)
                drive.media.write(wrong, part)
            else:
                drive.put(start, part)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourFlip(Cached):
    """A cut flips bits in an older page that shares cells with a page being programmed.

    Three of 15 SSDs had bit corruption (Zheng et al., FAST 2013). Flash with several bits per cell programs
    the pages that share a cell at different times. At any time, the last `open_pages` pages are being
    programmed. A cut damages one sector in a neighbour of each, a page that was durable long before.
    """

    name: ClassVar[str] = "neighbour-flip"

    open_pages: int = _count(4)
    _endangered: deque[int] = field(init=False, compare=False, repr=False, default_factory=deque)  # sectors

    def destage(self, drive: Drive, offset: int, data: bytes) -> None:
        """Write the data, and endanger a sector near each of the last `open_pages` pages.

        A sector is safe again once that many later sectors are endangered, or once it is written itself.
        """
        drive.put(offset, data)
        for start, _ in list(pages(offset, data))[-self.open_pages :]:
            self._endanger(drive, page_nearby(start, drive.size_bytes, drive.chance) // drive.sector_bytes)
        while len(self._endangered) > self.open_pages:
            sector = self._endangered.popleft()
            if sector in drive.held:  # else it has been written since
                drive.put(sector * drive.sector_bytes, drive.held[sector])

    def _endanger(self, drive: Drive, sector: int) -> None:
        """Put the damaged content on media now, and hold the right content until programming is done."""
        if sector in drive.cache or sector in drive.held:
            return
        start = sector * drive.sector_bytes
        data = drive.media.read(start, drive.sector_bytes)
        drive.hold(start, data)
        drive.media.write(start, with_flips(data, drive.chance))
        self._endangered.append(sector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback(Cached):
    """Saves its mapping table every `interval_ms`; a cut returns the whole drive to the last saved table.

    One SSD had corrupt metadata (Zheng et al., FAST 2013). Flushed data are on flash, but the old table does
    not point to them: all sectors return to the same earlier time.
    """

    name: ClassVar[str] = "rollback"

    interval_ms: float = _ms(1000.0)

    def destage(self, drive: Drive, offset: int, data: bytes) -> None:
        """Hold the data in memory until the next commit of the mapping table, at most `interval_ms`."""
        drive.hold(offset, data)
        if drive.due_s is None:
            drive.plan(drive.now_s() + self.interval_ms / 1000)

    def tick(self, drive: Drive) -> None:
        """Commit: write all held data to media as one."""
        drive.media.write_as_one(list(pieces(drive.held, drive.sector_bytes)))
        drive.held.clear()
        drive.plan(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialRollback(Rollback):
    """As `rollback`, but for about a `share` of the drive, in regions of `region_bytes`; the rest is kept.

    Eight of 15 SSDs had unserializable writes, the most common failure (Zheng et al., FAST 2013). Newer
    writes are present while older ones are not, so no order of all writes explains the state after a cut. The
    mapping table is saved in parts.
    """

    name: ClassVar[str] = "partial-rollback"

    share: float = _chance(0.25)
    region_bytes: int = _bytes(65536, least=PAGE_BYTES)

    def destage(self, drive: Drive, offset: int, data: bytes) -> None:
        """Hold the data of chosen regions until the next commit of the mapping table; write the rest."""
        for start, part in pages(offset, data):
            if _chosen(drive, drive.cuts, start // self.region_bytes, share=self.share):
                Rollback.destage(self, drive, start, part)
            else:
                drive.put(start, part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regional(Cached):
    """A drive on which a cut makes about a `share` of the regions of `region_bytes` fail.

    The drive's seed determines the failing regions. They are the same after each cut, like worn cells. A
    failing sector therefore fails after any number of cuts; once rewritten, it is good until the next cut.
    """

    share: float = _chance(0.01)
    region_bytes: int = _bytes(8192, least=512)
    _written: set[int] = field(init=False, compare=False, repr=False, default_factory=set)  # since the cut

    def accept(self, drive: Drive, offset: int, data: bytes, *, fua: bool) -> None:
        """Note sectors written after a cut, which are good again; then accept as any cached drive."""
        if drive.cuts:
            self._written.update(drive.sectors(offset, len(data)))
        Cached.accept(self, drive, offset, data, fua=fua)

    def failing(self, drive: Drive, offset: int, length: int) -> int | None:
        """The offset of the first failing sector of this range, or None."""
        if not drive.cuts or not length:
            return None
        for region in range(offset // self.region_bytes, (offset + length - 1) // self.region_bytes + 1):
            if not _chosen(drive, _FIRST_CUT, region, share=self.share):
                continue
            first = max(offset, region * self.region_bytes)
            end = min(offset + length, (region + 1) * self.region_bytes)
            for sector in drive.sectors(first, end - first):
                if sector not in self._written:
                    return sector * drive.sector_bytes
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable(Regional):
    """After a cut, regions of the drive answer reads with an I/O error until they are written again.

    Pages whose programming a cut interrupts fail their error correction. With `recovery_ms` the errors are
    transient: that time after power-on, the drive has rebuilt its tables and returns all promised data.
    """

    name: ClassVar[str] = "unreadable"

    recovery_ms: float = _ms(0.0)

    def check_read(self, drive: Drive, offset: int, length: int) -> None:
        """Raises OSError with EIO if a sector of the range fails."""
        if self.recovery_ms and drive.now_s() >= drive.woke_s + self.recovery_ms / 1000:
            return
        if (sector := self.failing(drive, offset, length)) is not None:
            raise OSError(errno.EIO, f"the sector at {sector} cannot be read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging(Regional):
    """After a cut, reads of regions of the drive never return, until they are written again.

    An SSD that lost 72.6 GB in 8 cuts hung like this (Zheng et al., FAST 2013).
    """

    name: ClassVar[str] = "hanging"

    def check_read(self, drive: Drive, offset: int, length: int) -> None:
        """Raises HangingReadError if a sector of the range fails."""
        if (sector := self.failing(drive, offset, length)) is not None:
            raise HangingReadError(errno.ETIMEDOUT, f"a read of the sector at {sector} never returns")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedByCut(Cached):
    """A drive that changes permanently at its cut number `from_cut`."""

    from_cut: int = _count(_FIRST_CUT)

    def has_changed(self, cuts: int) -> bool:
        """Whether the drive has changed after `cuts` cuts."""
        return cuts >= self.from_cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Smaller(ChangedByCut):
    """After a cut the drive has only a `share` of its sectors, in whole blocks of 4096 bytes.

    Some of Intel's SSD 320 series came back from a power loss as drives of 8 MB ("Bad Context 13x", 2011).
    """

    name: ClassVar[str] = "smaller"

    share: float = _chance(0.001)

    def capacity_bytes(self, size_bytes: int, *, cuts: int) -> int:
        """All of `size_bytes` before the change; after it, a `share` in whole pages, at least one page."""
        if not self.has_changed(cuts):
            return size_bytes
        return min(size_bytes, max(1, int(size_bytes * self.share) // PAGE_BYTES) * PAGE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty(ChangedByCut):
    """After a cut every sector is zeros: the mapping table is lost, the capacity is as before.

    An erased drive reads like this, and so does one whose firmware starts again with an empty table. No
    published case of such a drive that keeps its capacity is known.
    """

    name: ClassVar[str] = "empty"

    def wake(self, drive: Drive) -> None:
        """Clear the media once the drive has changed."""
        if self.has_changed(drive.cuts):
            drive.media.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead(ChangedByCut):
    """After a cut every request fails with an I/O error, permanently.

    One of 15 SSDs was dead after its cuts (Zheng et al., FAST 2013). To a host, the drive looks like one
    without its cable: the host cannot learn its content.
    """

    name: ClassVar[str] = "dead"

    def accept(self, drive: Drive, offset: int, data: bytes, *, fua: bool) -> None:
        """As any cached drive, until it is dead. Raises OSError with EIO."""
        self._require_life(drive)
        Cached.accept(self, drive, offset, data, fua=fua)

    def flush(self, drive: Drive) -> None:
        """As any cached drive, until it is dead. Raises OSError with EIO."""
        self._require_life(drive)
        Cached.flush(self, drive)

    def check_read(self, drive: Drive, offset: int, length: int) -> None:
        """Raises OSError with EIO once it is dead."""
        self._require_life(drive)

    def _require_life(self, drive: Drive) -> None:
        if self.has_changed(drive.cuts):
            raise OSError(errno.EIO, "the drive is dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushBelow(Cached):
    """Honours flush and FUA up to `cache_bytes` of dirty data; with more it only acknowledges them.

    Such a firmware answers before its host times out. Once a burst exceeds `cache_bytes`, the drive goes on
    ignoring flushes: unflushed data leave the cache only above twice `cache_bytes`. No published case is
    known.
    """

    name: ClassVar[str] = "flush-below"

    cache_bytes: int = _bytes(512 << 10)

    def honours_flush(self, drive: Drive) -> bool:
        """Only while the cache holds no more than `cache_bytes`."""
        return len(drive.cache) * drive.sector_bytes <= self.cache_bytes

    def room_bytes(self) -> int:
        """Twice `cache_bytes`, so that a flush can find more than `cache_bytes` in the cache."""
        return 2 * self.cache_bytes


CATALOGUE: Final[dict[str, type[Model]]] = {
    model.name: model
    for model in (
        WriteThrough,
        Honest,
        FlushIgnored,
        EarlyAck,
        FlushSkipped,
        PartialFlush,
        FuaIgnored,
        FlushBelow,
        Shorn,
        Misdirected,
        NeighbourFlip,
        Rollback,
        PartialRollback,
        Unreadable,
        Hanging,
        Smaller,
        Empty,
        Dead,
    )
}


def parse(spec: str) -> Model:
    """The model that a spec names. Raises ValueError, which lists the models or parameters that exist."""
    name, _, settings = spec.partition(":")
    kind = CATALOGUE.get(name)
    if kind is None:
        raise ValueError(f"no drive model {name!r}; there are {', '.join(CATALOGUE)}")
    types = {
        parameter.name: int if isinstance(parameter.default, int) else float
        for parameter in fields(kind)
        if parameter.init
    }
    values: dict[str, int | float] = {}
    for setting in settings.split(",") if settings else ():
        key, equals, text = setting.partition("=")
        if key not in types:
            raise ValueError(f"{name} has no parameter {key!r}; it has {', '.join(types) or 'none'}")
        if key in values or not equals:
            raise ValueError(f"{name}: expected {key}=VALUE once, found {setting!r}")
        try:
            values[key] = types[key](text)
        except ValueError as error:
            raise ValueError(f"{name}: {key} must be a number, found {text!r}") from error
    return kind(**values)
