"""Plausibility: whether a device answers faster than its media could, and what that can mean.

A flush that only returns success costs almost nothing, and so does a flush on a drive with a protected
cache. A benchmark cannot tell them apart. So this module says what the device did, what that can mean, and
what only a power cut shows. It never certifies a device: a device that looks slow enough may still lose
data.

W is a direct write, F0 a sync with nothing to write, C a direct write and its sync, F(n) a sync after n bytes
were written directly: medians. Looked at in this order:

    no-flush-sent        commits were acknowledged and no drive got a flush
    faster-than-media    the drive rotates, and commits come faster than its platter comes round; if nobody
                         knows how fast it turns, that it rotates is in doubt, and the verdict inconclusive
    flush-no-media-work  C - W is about as long as F0, and F(64 MiB) shorter than the link would take
    volatile-cache       C is far above W + F0, and F(64 MiB) far above F0 and C - W
    inconclusive         anything else, or a control that is missing or disturbed: it says which
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

FLUSHES_NONE = 0.1  # per commit, at most: others' flushes may be among them
FLUSHES_EACH = 0.9  # per commit, at least: some are merged where several writers sync at once
RPM_MAX = 15_000  # of any disk
RPM_LEAST = 7_200  # allowed to any disk: many of a "5400 rpm class" report 5,400 and turn at 7,200
MEDIA_MARGIN = 1.1  # above what the platter allows
LINK_ASSUMED_BYTES_PER_S = 16_000_000_000  # PCIe 5.0 x4, the fastest link that drives have
# C - W is like F0 up to this multiple of it, and the noise: of a system call, and of a write as long as W.
ALIKE_FACTOR, ALIKE_NS, ALIKE_SHARE = 1.5, 20_000, 0.1
FAR_FACTOR = 2.0  # C is far above W + F0, F(n) far above F0 and C - W, from this factor on
_SYMBOLS = (  # whether of the whole commit, or of its sync alone
    ("W", "a direct write of 4 KiB", WRITE_CONTROL, True),
    ("F0", "a sync with nothing to write", FLUSH_CONTROL, False),
    ("C", "a direct write of 4 KiB and its sync", COMMIT_CONTROL, True),
)
RUN_FILE = "durability-run"  # in the directory that was measured, for the run to make
REACHES = 0.9  # of what a direct write hands over, at least, or a cache above the drive keeps it
MORE_WRITTEN = 1.5  # of what C writes to what W writes, or the sync writes things of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """The figures that the verdict depends on; None if not measured or not known.

    Times are medians in nanoseconds, rates commits per second of the median round. `rotational`: every
    drive below is said to be so, none says that nothing turns and none is emulated. `link_bytes_per_s`: of
    all drives below together. `beneath`: of a loop device flushes are counted at the disk under its file,
    whose write cache nobody has read. `assumed`: a drive may have said nothing of its cache, so that the
    kernel assumed that it has no volatile one. `flushes`: per commit of the headline, by drive. `write_share`
    and `commit_share`: bytes that reached the drives for each byte that W, and C, wrote. `empty_flushes`:
    that reached a drive for each F0. `ladder`: n in bytes, F(n). `others`: requests per second of others, by
    drive, where they were many.
    """

    path: str
    kind: TargetKind
    virtualisation: str
    emulated: bool
    write_caches: tuple[str | None, ...]
    beneath: bool
    assumed: bool
    rotational: bool
    rpm: int | None
    link_bytes_per_s: int | None
    random_rate: float | None
    sequential_rate: float | None
    flushes: tuple[tuple[str, float | None], ...]
    write_ns: float | None
    flush_ns: float | None
    commit_ns: float | None
    write_share: float | None
    commit_share: float | None
    empty_flushes: float | None
    ladder: tuple[tuple[int, float], ...]
    others: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTime:
    """A control's time in nanoseconds: `median_ns` of all samples, which the verdict rests on, and from
    `least_ns` to `most_ns` the medians of the rounds. `symbol`: W, F0, C or F(n), n being `dirty_bytes`."""

    symbol: str
    about: str
    dirty_bytes: int | None
    median_ns: float
    least_ns: float
    most_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plausibility:
    """The verdict. `seen`: what the device did, with figures; `reasons`: those of it that led to the verdict.
    `means`: what that can mean. `only_a_cut`: what only a cut can show. `commands`: what to type next."""

    code: Code
    seen: tuple[str, ...]
    reasons: tuple[str, ...]
    means: tuple[str, ...]
    only_a_cut: str
    commands: tuple[str, ...]

    @property
    def headline(self) -> str:
        """The verdict in a few words."""
        return HEADLINES[self.code]


def plausibility(result: Result) -> Plausibility:
    """The verdict on what `result` measured."""
    return plausibility_of(controls_of(result))


def controls_of(result: Result) -> Controls:
    """What of `result` the verdict rests on."""
    drives, media = result.facts.drives, result.media
    links = [one.link_bytes_per_s for one in media if one.link_bytes_per_s is not None]
    turns = [one.rpm for one in media if one.rpm]
    still = {one.name for one in media if one.rpm == 0}
    empty = disks_per_operation(result.rounds_of(FLUSH_CONTROL.name))
    # A loop device has the word of the disk under its file, where its work arrives and is counted.
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
    """Whether the kernel may have assumed that a drive has no volatile cache. It does so of a SCSI disk
    whose bridge or controller has no page on its cache; of a SATA drive that it reaches itself it knows."""
    by_sata = any(one.name == drive.name and one.link.startswith("SATA") for one in media)
    return drive.name.startswith("sd") and drive.write_cache == "write through" and not by_sata


def control_times(result: Result) -> tuple[ControlTime, ...]:
    """W, F0, C and the flush ladder, as far as they were measured."""
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
    """Which controls are missing, or did not measure what they are meant to; a sentence each."""
    return (*_missing(controls), *_disturbed(controls))


def more_written(controls: Controls) -> float | None:
    """How many times as much the drives wrote for C as for W, if that is so much that writes of others hide
    the time of the sync; else None."""
    if not controls.write_share or controls.commit_share is None:
        return None
    times = controls.commit_share / controls.write_share
    return times if times > MORE_WRITTEN else None


def _rate(rounds: tuple[Round, ...]) -> float | None:
    """The median round's, since a stall in one round must not make an SSD look like a disk."""
    found = spread([one.rate for one in rounds])
    return None if found is None else found.median


def _median_ns(result: Result, cell: Cell, *, whole: bool) -> float | None:
    """Every sample counts, since a median takes few."""
    latencies = merged(_latencies(result, cell, whole=whole))
    return latencies.percentile(50) if len(latencies) else None


def _latencies(result: Result, cell: Cell, *, whole: bool) -> Iterator[Latencies]:
    """Of each round of `cell`: of the whole commit, or of its sync alone."""
    for one in result.rounds_of(cell.name):
        yield one.commit_ns if whole else one.sync_ns


def _share(result: Result, cell: Cell) -> float | None:
    disks = disks_per_operation(result.rounds_of(cell.name))
    known = [disk.write_kib for disk in disks if disk.write_kib is not None]
    return sum(known) * KIB / cell.block_bytes if known and len(known) == len(disks) else None


def _decide(controls: Controls) -> tuple[Code, tuple[str, ...]]:
    """The verdict, and what of it the figures alone do not say."""
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
    # A flush of one block that takes as long as that of 64 MiB is a machine that was busy, or a fixed price.
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
    """What can reach the drives per second, and where that is known from."""
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
    """Commits that come faster than a platter: the next block has just passed and takes a whole turn to come
    again, a block anywhere takes half a turn on average."""
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
    """Controls that did not measure what they are meant to, on this file system."""
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
    """A difference of two times, which may be below zero."""
    return duration(time_ns) if time_ns >= 0 else f"-{duration(-time_ns)}"


_MEANS: Mapping[Code, tuple[str, ...]] = MappingProxyType(
    {
        "no-flush-sent": (),  # depends on what the drive declares
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
    """The run that a power cut is to end, by flush and by FUA, and what judges it afterwards. The server is
    the one that the machine has joined."""
    # A path with a serial in it was hashed, one that is not text was escaped: neither can be typed.
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
