"""Plausibility: whether a device commits faster than its media allow, and what can explain that.

A flush that does nothing takes almost no time, and so does a flush on a drive with a protected cache. A
benchmark cannot distinguish the two. So this module reports what the device did, the possible explanations,
and the question that only a power cut answers. It never certifies a device: a slow device may still lose
data.

All times are medians. W is a direct write. F0 is a sync with nothing to write. C is a direct write and its
sync. F(n) is a sync after n bytes of direct writes. The verdict is the first of these that fits:

    no-flush-sent        commits were acknowledged and no drive got a flush
    faster-than-media    the drive rotates and commits come faster than its platter turns; if the speed of
                         rotation is unknown, the drive may not rotate at all and the verdict is inconclusive
    flush-no-media-work  C - W is about as long as F0, and F(64 MiB) is shorter than the link would take
    volatile-cache       C is far above W + F0, and F(64 MiB) is far above F0 and C - W
    inconclusive         anything else, or a control is missing or disturbed; the reasons name that control
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from durability.bench.catalogue import (
    COMMIT_CONTROL,
    FLUSH_CONTROL,
    HEADLINE,
    LADDER,
    SEQUENTIAL,
    WRITE_CONTROL,
)
from durability.bench.cells import KIB, Cell
from durability.bench.hashed_serials import HASHED
from durability.bench.intervals import spread
from durability.bench.measurement import Latencies, Round
from durability.bench.result import Medium, Result
from durability.bench.result_warnings import others_per_s
from durability.bench.summary import disks_per_operation, merged, round_medians
from durability.formats.facts import Drive
from durability.formats.plan import TargetKind
from durability.units import duration, format_size

Code: TypeAlias = Literal[
    "no-flush-sent", "faster-than-media", "flush-no-media-work", "volatile-cache", "inconclusive"
]
HEADLINES: Mapping[Code, str] = MappingProxyType(
    {
        "no-flush-sent": "no flush sent",
        "faster-than-media": "faster than the media",
        "flush-no-media-work": "flush does no media work",
        "volatile-cache": "consistent with an honoured volatile cache",
        "inconclusive": "inconclusive",
    }
)

FLUSHES_NONE = 0.1  # at most so many flushes per commit count as none: other programs also send flushes
FLUSHES_EACH = 0.9  # at least so many flushes per commit count as one each: concurrent syncs share flushes
RPM_MAX = 15_000  # the fastest rotation of any disk
RPM_LEAST = 7_200  # assumed at least: many disks of a "5400 rpm class" report 5,400 and turn at 7,200
MEDIA_MARGIN = 1.1  # a rate counts as too fast above this multiple of what the platter allows
LINK_ASSUMED_BYTES_PER_S = 16_000_000_000  # PCIe 5.0 x4, the fastest link that drives have
# C - W counts as like F0 up to ALIKE_FACTOR times F0, plus ALIKE_NS for the noise of a system call, plus
# ALIKE_SHARE times W for the noise of a write.
ALIKE_FACTOR, ALIKE_NS, ALIKE_SHARE = 1.5, 20_000, 0.1
FAR_FACTOR = 2.0  # a time counts as far above another time from this multiple on
_SYMBOLS = (  # symbol, description, cell, and whether to time the whole commit or only its sync
    ("W", "a direct write of 4 KiB", WRITE_CONTROL, True),
    ("F0", "a sync with nothing to write", FLUSH_CONTROL, False),
    ("C", "a direct write of 4 KiB and its sync", COMMIT_CONTROL, True),
)
RUN_FILE = "durability-run"  # file name suggested for the run, in the measured directory
# If less than this share of the bytes of direct writes reaches the drives, a cache above them keeps the rest.
REACHES = 0.9
# If the drives write more than this multiple for C than for W, the sync causes writes of its own.
MORE_WRITTEN = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """The figures that the verdict depends on. A figure is None if it was not measured or is unknown.

    Times are medians in nanoseconds. Rates are commits per second of the median round.
    """

    path: str
    kind: TargetKind
    virtualisation: str
    emulated: bool
    write_caches: tuple[str | None, ...]
    # The target is a loop device: flushes are counted at the disk under its file, whose write cache is
    # unknown.
    beneath: bool
    # A drive may not have reported its cache, so that the kernel assumed that it has no volatile one.
    assumed: bool
    # Every drive is said to rotate, no drive reports 0 rpm, and none is emulated.
    rotational: bool
    rpm: int | None
    link_bytes_per_s: int | None  # of all drives together
    random_rate: float | None
    sequential_rate: float | None
    flushes: tuple[tuple[str, float | None], ...]  # per commit of the headline cell, by drive
    write_ns: float | None  # W
    flush_ns: float | None  # F0
    commit_ns: float | None  # C
    write_share: float | None  # bytes that reached the drives for each byte that W wrote
    commit_share: float | None  # bytes that reached the drives for each byte that C wrote
    empty_flushes: float | None  # flushes that reached a drive for each F0
    ladder: tuple[tuple[int, float], ...]  # n in bytes, F(n)
    others: tuple[tuple[str, float], ...]  # busy drives: requests per second from other programs


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTime:
    """The time of a control in nanoseconds."""

    symbol: str  # W, F0, C or F(n)
    about: str
    dirty_bytes: int | None  # n of F(n)
    median_ns: float  # median of all samples, which the verdict depends on
    least_ns: float  # lowest median of a round
    most_ns: float  # highest median of a round


@dataclass(frozen=True, slots=True, kw_only=True)
class Plausibility:
    """The verdict, with sentences that explain it."""

    code: Code
    seen: tuple[str, ...]  # what the device did, with figures; ends with `reasons`
    reasons: tuple[str, ...]  # what led to the verdict
    means: tuple[str, ...]  # possible explanations
    only_a_cut: str  # the question that only a power cut can answer
    commands: tuple[str, ...]  # commands to type next

    @property
    def headline(self) -> str:
        """The verdict in a few words."""
        return HEADLINES[self.code]


def plausibility(result: Result) -> Plausibility:
    """The verdict on what `result` measured."""
    return plausibility_of(controls_of(result))


def controls_of(result: Result) -> Controls:
    """The figures of `result` that the verdict depends on."""
    drives, media = result.facts.drives, result.media
    links = [one.link_bytes_per_s for one in media if one.link_bytes_per_s is not None]
    turns = [one.rpm for one in media if one.rpm]
    still = {one.name for one in media if one.rpm == 0}
    empty = disks_per_operation(result.rounds_of(FLUSH_CONTROL.name))
    # Requests to a loop device are counted at the disk under its file, so its own claims do not count.
    counted = {alone.name for alone in result.idle}
    beneath = [drive for drive in drives if counted and drive.name not in counted]
    return Controls(
        path=result.facts.path,
        kind=result.facts.kind,
        virtualisation=result.facts.host.virtualisation,
        emulated=any(drive.emulated for drive in drives),
        write_caches=tuple(None if drive in beneath else drive.write_cache for drive in drives),
        beneath=bool(beneath),
        assumed=any(_is_assumed(drive, media) for drive in drives),
        rotational=bool(drives)
        and all(
            drive.rotational and not drive.emulated and drive.name in counted - still for drive in drives
        ),
        rpm=max(turns) if turns and len(turns) == len(drives) else None,
        link_bytes_per_s=sum(links) if links and len(links) == len(drives) else None,
        random_rate=_rate(result.rounds_of(HEADLINE.name)),
        sequential_rate=_rate(result.rounds_of(SEQUENTIAL.name)),
        flushes=tuple(
            (disk.name, disk.flushes) for disk in disks_per_operation(result.rounds_of(HEADLINE.name))
        ),
        write_ns=_median_ns(result, WRITE_CONTROL, whole=True),
        flush_ns=_median_ns(result, FLUSH_CONTROL, whole=False),
        commit_ns=_median_ns(result, COMMIT_CONTROL, whole=True),
        write_share=_share(result, WRITE_CONTROL),
        commit_share=_share(result, COMMIT_CONTROL),
        empty_flushes=max((disk.flushes for disk in empty if disk.flushes is not None), default=None),
        ladder=tuple(
            (step.dirty_bytes, flush_ns)
            for step in LADDER
            if (flush_ns := _median_ns(result, step, whole=False))
        ),
        others=tuple(others_per_s(result).items()),
    )


def _is_assumed(drive: Drive, media: Sequence[Medium]) -> bool:
    """Whether the kernel may have assumed that a drive has no volatile cache. The kernel does so for a SCSI
    disk whose bridge or controller has no mode page on its cache. It knows the cache of a SATA drive that it
    reaches directly."""
    by_sata = any(one.name == drive.name and one.link.startswith("SATA") for one in media)
    return drive.name.startswith("sd") and drive.write_cache == "write through" and not by_sata


def control_times(result: Result) -> tuple[ControlTime, ...]:
    """The times of W, F0, C and the flush ladder that were measured."""
    sizes = ((step, format_size(step.dirty_bytes)) for step in LADDER)
    steps = ((f"F({size})", f"a sync after {size} of direct writes", step, False) for step, size in sizes)
    return tuple(
        ControlTime(
            symbol=symbol,
            about=about,
            dirty_bytes=cell.dirty_bytes if cell in LADDER else None,
            median_ns=median_ns,
            least_ns=min(medians),
            most_ns=max(medians),
        )
        for symbol, about, cell, whole in (*_SYMBOLS, *steps)
        if (median_ns := _median_ns(result, cell, whole=whole))
        and (medians := round_medians(_latencies(result, cell, whole=whole)))
    )


def plausibility_of(controls: Controls) -> Plausibility:
    """The verdict on `controls`."""
    code, reasons = _decide(controls)
    return Plausibility(
        code=code,
        seen=(*_seen(controls), *reasons),
        reasons=reasons,
        means=tuple(_means(code, controls)),
        only_a_cut=_ONLY_A_CUT[code],
        commands=tuple(_commands(controls)),
    )


def doubts(controls: Controls) -> tuple[str, ...]:
    """A sentence for each control that is missing or disturbed."""
    return (*_missing(controls), *_disturbed(controls))


def more_written(controls: Controls) -> float | None:
    """Bytes that the drives wrote for C divided by those for W, if the ratio is above `MORE_WRITTEN`: then
    additional writes hide the time of the flush. Else None."""
    if not controls.write_share or controls.commit_share is None:
        return None
    times = controls.commit_share / controls.write_share
    return times if times > MORE_WRITTEN else None


def _rate(rounds: tuple[Round, ...]) -> float | None:
    """The rate of the median round, so that a stall in one round does not make an SSD look like a disk."""
    found = spread([one.rate for one in rounds])
    return None if found is None else found.median


def _median_ns(result: Result, cell: Cell, *, whole: bool) -> float | None:
    """The median over the samples of all rounds, None without samples. A median needs few samples, so their
    number is not checked."""
    latencies = merged(_latencies(result, cell, whole=whole))
    return latencies.percentile(50) if len(latencies) else None


def _latencies(result: Result, cell: Cell, *, whole: bool) -> Iterator[Latencies]:
    """The latencies of each round of `cell`: of the whole commit (`whole`), or of its sync alone."""
    for one in result.rounds_of(cell.name):
        yield one.commit_ns if whole else one.sync_ns


def _share(result: Result, cell: Cell) -> float | None:
    disks = disks_per_operation(result.rounds_of(cell.name))
    known = [disk.write_kib for disk in disks if disk.write_kib is not None]
    return sum(known) * KIB / cell.block_bytes if known and len(known) == len(disks) else None


def _decide(controls: Controls) -> tuple[Code, tuple[str, ...]]:
    """The verdict, and its reasons beyond the figures that `seen` lists anyway."""
    too_fast = tuple(_too_fast(controls))
    flushes = _flushes_most(controls)
    if flushes is not None and flushes <= FLUSHES_NONE:
        return "no-flush-sent", too_fast
    if too_fast:
        return "inconclusive" if controls.rpm is None else "faster-than-media", too_fast
    if found := doubts(controls):
        return "inconclusive", found
    assert controls.write_ns is not None and controls.flush_ns is not None
    assert controls.commit_ns is not None
    (dirty_bytes, longest_ns), flush_ns = controls.ladder[-1], controls.flush_ns
    flushing_ns, asked_ns = controls.commit_ns - controls.write_ns, controls.write_ns + flush_ns
    link, link_words = _link(controls)
    alike_ns = ALIKE_FACTOR * flush_ns + ALIKE_NS + ALIKE_SHARE * controls.write_ns
    beyond_link = _bytes_per_s(dirty_bytes, longest_ns) > link
    if flushing_ns <= alike_ns and beyond_link:
        return "flush-no-media-work", (
            f"so a flush with data (C - W, {signed_duration(flushing_ns)}) took about as long as an empty one"
            f" (F0, {duration(flush_ns)}; up to {duration(alike_ns)} count as alike), and {link_words}",
        )
    far, grows = controls.commit_ns / asked_ns, longest_ns / flush_ns
    times = (
        f"a commit took {far:.1f} times as long as its write and an empty sync together, and a flush after"
        f" {format_size(dirty_bytes)} {grows:.1f} times as long as an empty flush"
    )
    # If a flush of one block takes as long as a flush of 64 MiB, the machine was busy or a flush has a fixed
    # cost.
    if far >= FAR_FACTOR and grows >= FAR_FACTOR and longest_ns >= FAR_FACTOR * flushing_ns:
        return "volatile-cache", (f"{times}: the flush moves data, and takes longer with more data",)
    return "inconclusive", (
        f"{times}; {link_words}: this fits neither a flush that moves data nor a flush that does nothing",
    )


def _flushes_most(controls: Controls) -> float | None:
    return max((count for _, count in controls.flushes if count is not None), default=None)


def _bytes_per_s(size_bytes: int, time_ns: float) -> float:
    return size_bytes * 1e9 / time_ns


def _link(controls: Controls) -> tuple[float, str]:
    """The bytes per second that can reach the drives, and words that say if this is known or assumed."""
    if controls.link_bytes_per_s is not None:
        return controls.link_bytes_per_s, f"the link carries {_per_s(controls.link_bytes_per_s)}"
    drives = max(1, len(controls.write_caches))
    assumed = LINK_ASSUMED_BYTES_PER_S * drives
    each = " for each drive" if drives > 1 else ""
    return assumed, (
        f"the link's bandwidth is unknown ({_per_s(LINK_ASSUMED_BYTES_PER_S)} assumed{each}, PCIe 5.0 x4, the"
        " fastest link of any drive)"
    )


def _per_s(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:,.3g} GB/s"


def _too_fast(controls: Controls) -> Iterator[str]:
    """A sentence for each pattern whose commits come faster than a platter allows. The block after the last
    one has just passed the head and needs a whole turn; a random block needs half a turn on average."""
    if not controls.rotational:
        return
    rpm = RPM_MAX if controls.rpm is None else max(controls.rpm, RPM_LEAST)
    for pattern, rate, per_turn in (
        ("block after block", controls.sequential_rate, 1),
        ("at random places", controls.random_rate, 2),
    ):
        limit = per_turn * rpm / 60
        if rate is None or rate <= MEDIA_MARGIN * limit:
            continue
        made = f"but it made {rate:,.0f} commits per second {pattern}"
        if controls.rpm is None:
            yield (
                f"the drive is said to rotate, {made}, and even {rpm:,} rpm allow about {limit:,.0f}: the"
                " flag is doubtful, as behind USB bridges and RAID controllers"
            )
        else:
            faster = f" (the drive reports {controls.rpm:,} rpm, but some that do turn at {rpm:,})"
            yield (
                f"the drive says that it rotates, {made}; a platter allows about {limit:,.0f} at {rpm:,} rpm"
                + (faster if controls.rpm < rpm else "")
            )


def _missing(controls: Controls) -> Iterator[str]:
    for what, value in (
        ("direct writes (W)", controls.write_ns),
        ("empty syncs (F0)", controls.flush_ns),
        ("direct writes with a sync (C)", controls.commit_ns),
    ):
        if not value:
            yield f"{what} were not measured"
    if not controls.ladder or controls.ladder[-1][0] != LADDER[-1].dirty_bytes:
        yield f"the flush after {format_size(LADDER[-1].dirty_bytes)} was not measured"
    if controls.random_rate is None:
        yield f"the headline ({HEADLINE.name}), whose flushes are counted, was not measured"
    elif not controls.flushes:
        yield "the drive below is unknown, so its flushes cannot be counted"
    elif _flushes_most(controls) is None:
        yield (
            "other programs used the drive so much that flushes cannot be attributed"
            if controls.others
            else "this system does not count flushes, or other programs sent as many as this one"
        )
    if controls.others and controls.write_share is None and controls.write_ns:
        yield "other programs wrote so much that it is unknown whether direct writes reached the drive"


def _disturbed(controls: Controls) -> Iterator[str]:
    """A sentence for each control that did not measure what it is meant to on this file system."""
    flushes = _flushes_most(controls)
    if flushes is not None and flushes < FLUSHES_EACH:
        yield f"only {flushes:.2g} flushes per commit reached a drive"
    if controls.empty_flushes is not None and controls.empty_flushes < FLUSHES_EACH:
        yield (
            f"a sync with nothing to write sent a drive {controls.empty_flushes:.2g} flushes, so F0 is not"
            " the time of a flush"
        )
    if controls.write_share is not None and controls.write_share < REACHES:
        yield (
            f"only {controls.write_share:.0%} of direct writes reached a drive in time: a layer above holds"
            " them back, so W is not the drive's time"
        )
    elif (times := more_written(controls)) is not None:
        yield (
            f"with a sync, the drives wrote {times:.1f} times as much: writes of the file system or of other"
            " programs hide the time of the flush"
        )


def _seen(controls: Controls) -> Iterator[str]:
    if controls.write_ns and controls.flush_ns and controls.commit_ns:
        flushing_ns = controls.commit_ns - controls.write_ns
        yield (
            f"a direct write of 4 KiB took {duration(controls.write_ns)} (W), a sync with nothing to write"
            f" {duration(controls.flush_ns)} (F0), a direct write and its sync"
            f" {duration(controls.commit_ns)} (C): C - W is {signed_duration(flushing_ns)}"
        )
    if controls.ladder:
        dirty_bytes, flush_ns = controls.ladder[-1]
        yield (
            f"after {format_size(dirty_bytes)} of direct writes a flush took {duration(flush_ns)}, which is"
            f" {_per_s(_bytes_per_s(dirty_bytes, flush_ns))} if it moved them"
        )
    for name, count in controls.flushes:
        if count is not None:
            yield f"{count:.2f} flushes per commit reached {name}"
    for name, per_s in controls.others:
        yield f"other programs sent {name} {per_s:.0f} requests per second: repeat this on an idle drive"


def signed_duration(time_ns: float) -> str:
    """The difference of two times as text; the difference may be negative."""
    return duration(time_ns) if time_ns >= 0 else f"-{duration(-time_ns)}"


_MEANS: Mapping[Code, tuple[str, ...]] = MappingProxyType(
    {
        "no-flush-sent": (),  # `_means` adds texts that depend on what the drive declares
        "faster-than-media": (
            "a cache answers instead of the platter: a volatile cache that ignores the flush, or a cache that"
            " flash, capacitors or a controller's battery protect",
            "or the drive writes wherever its head is (shingled, hybrid), or does not rotate at all",
        ),
        "flush-no-media-work": (
            "power-loss protection, as in datacenter drives: the cache counts as media",
            "or a cache of the host, hypervisor or controller, protected or not",
            "or the flush is acknowledged and ignored",
            "or the drive wrote most of the data while they arrived, which a fast drive can do",
        ),
        "volatile-cache": (
            "the device keeps writes in a volatile cache and moves them to the media at a flush",
            "or the device is slow for another reason, such as a network, and its flush moves fewer data",
        ),
        "inconclusive": ("the times prove nothing",),
    }
)
_NO_CACHE_DECLARED = (
    "the drive declares that it has no volatile cache (write through), so the kernel sends it no flush: data"
    " depend on its claim"
)
_NO_CACHE_ASSUMED = (
    "the kernel takes the drive for one without a volatile cache (write through) and sends it no flush: the"
    " drive declares that, or a USB bridge or a RAID controller says nothing of its cache"
)
_ONLY_A_CUT: Mapping[Code, str] = MappingProxyType(
    {
        "no-flush-sent": "whether data survive the loss of power without a flush",
        "faster-than-media": "whether data acknowledged this fast survive the loss of power",
        "flush-no-media-work": "which of these is true, and whether acknowledged data survive loss of power",
        "volatile-cache": "whether a flush moves all data that it covers, every time: a slow flush can still"
        " lose data",
        "inconclusive": "whether acknowledged data survive the loss of power",
    }
)


def _means(code: Code, controls: Controls) -> Iterator[str]:
    if code == "no-flush-sent":
        caches = set(controls.write_caches)
        if caches == {"write through"}:
            yield _NO_CACHE_ASSUMED if controls.assumed else _NO_CACHE_DECLARED
        elif caches != {"write back"}:
            yield "the drive may declare that it has no volatile cache; then the kernel sends no flush"
        if caches != {"write through"}:
            yield (
                "something above the drive withholds the flush: a mount without barriers, a layer or"
                " controller that answers itself, or a library that ignores syncs"
            )
    yield from _MEANS[code]
    if controls.emulated or controls.virtualisation not in ("none", ""):
        where = controls.virtualisation if controls.virtualisation not in ("none", "") else "emulated drive"
        yield (
            f"this is a virtual machine ({where}): the host may acknowledge a flush and do nothing (QEMU"
            " cache=unsafe, Firecracker's default cache type), and the claims of the guest's drive prove"
            " nothing about the host"
        )


def _commands(controls: Controls) -> Iterator[str]:
    """Commands to start a run by flush and one by FUA, for a power cut to end, and to verify it afterwards.
    The commands need no server address: the machine has joined one."""
    # Paths with a serial were hashed, and paths that are not text were escaped: neither can be typed.
    device = controls.kind == "device"
    path = controls.path if device else f"{controls.path.rstrip('/')}/{RUN_FILE}"
    target = "TARGET" if HASHED in path or "\\x" in path else _quoted(path)
    destroy = " --destroy-data" if device else ""
    yield f"durability run {target}{destroy}"
    yield f"durability run {target} --direct --sync dsync{destroy}"
    yield f"durability verify {target} --attest-cut 'pulled the plug'"


def _quoted(text: str) -> str:
    """`text` as one word of a shell."""
    return (
        text if re.fullmatch(r"[\w@%+=:,./-]+", text, re.ASCII) else "'" + text.replace("'", "'\"'\"'") + "'"
    )
