"""Charts: chooses the pictures for a result, and their data. `plot` draws them.

Cells that the result does not have are left out of a picture, and pictures without cells are not made. If a
sample is too small for a percentile, the line is faint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Literal, TypeAlias

from durability.bench import catalogue, figures
from durability.bench.cells import KIB, MIB, Cell, size_word
from durability.bench.intervals import Spread
from durability.bench.plausibility import LINK_ASSUMED_BYTES_PER_S, control_times, controls_of
from durability.bench.result import CellRounds, Result
from durability.bench.summary import CellSummary, merged
from durability.formats.histogram import PERCENTS, SAMPLES_BEYOND_MIN, FineHistogram, supported
from durability.units import counted
from durability_client.bench.report.plot import Axis, Plot, Point, Reference, Series
from durability_client.bench.report.scales import log_bounds, log_ticks, nines
from durability_client.bench.report.svg import SERIES

Of: TypeAlias = Literal["commit", "sync", "read"]
Varying: TypeAlias = Literal["block_bytes", "jobs", "writes_per_sync"]

_NOT_OF_THE_FAMILY = frozenset(
    {"name", "group", "about", "seconds", "warmup_s", "rounds", "p99_limit_ms", "fio"}
)
_CURVE_MIN = 3  # points
_NOT_VARIED = frozenset({"flush ladder", "data probe", "controls", "sustained"})
Labelled: TypeAlias = tuple[str, CellRounds]
COMMITS: Mapping[str, str] = MappingProxyType(
    {
        catalogue.HEADLINE.name: "fdatasync",
        catalogue.FSYNC.name: "fsync",
        catalogue.DSYNC.name: "O_DSYNC, direct",
        catalogue.PACED.name: "paced, fdatasync",
    }
)
_LOGS: Mapping[str, str] = MappingProxyType(
    {
        catalogue.SEQUENTIAL.name: "reused log",
        catalogue.APPEND.name: "append 4 KiB",
        catalogue.ETCD.name: "append 2300 B",
        catalogue.CREATE.name: "new files",
    }
)
_SYNCS: Mapping[str, str] = MappingProxyType(
    {
        catalogue.HEADLINE.name: "fdatasync",
        catalogue.FSYNC.name: "fsync",
        catalogue.ETCD.name: "append 2300 B",
        catalogue.FLUSH_CONTROL.name: "nothing to write",
    }
)
_PERCENT_TICKS = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A picture and its caption."""

    title: str
    caption: str
    svg: str


def latency_figures(result: Result) -> Iterator[Figure]:
    """Latencies by percentile: of commits, of syncs alone, of many jobs and of reads."""
    cells = {one.cell.name: one for one in result.cells if one.engine == "durability" and one.rounds}

    def chosen(wanted: Mapping[str, str]) -> list[Labelled]:
        return [(label, cells[name]) for name, label in wanted.items() if name in cells]

    commits = chosen(COMMITS)
    yield from _latency(
        "Latency of a commit",
        commits if len(commits) > 1 else _others(list(cells.values())),
        "commit",
        "Writes and their sync, by percentile; a paced commit counts from when it was due.",
    )
    yield from _latency(
        "Logs and new files",
        chosen(_LOGS),
        "commit",
        "A log that is reused, logs that grow, and new files with their directory entries.",
    )
    yield from _latency(
        "The sync alone", chosen(_SYNCS), "sync", "The sync call, without the write before it."
    )
    jobs = [
        (counted(one.cell.jobs, "job"), one)
        for one in cells.values()
        if one.cell.name == catalogue.HEADLINE.name
        or (one.cell.group == "jobs" and one.cell.jobs in (4, 16) and not one.cell.shared)
    ]
    if len(jobs) > 1:
        yield from _latency(
            "Many writers", jobs, "commit", "Latency of a commit with several concurrent writers."
        )
    mixes = [one for one in cells.values() if one.cell.workload == "mix"]
    yield from _latency(
        "Reads beside writes",
        _named(mixes),
        "read",
        "Latency of a read among writes, with and without a sync after each write.",
    )


def _others(measured: Sequence[CellRounds]) -> list[Labelled]:
    """The cells to show if there are no standard commits, as in a profile."""
    return _named([one for one in measured if one.cell.group not in _NOT_VARIED][:SERIES])


def _named(measured: Sequence[CellRounds]) -> list[Labelled]:
    labels = figures.distinct([one.cell.name for one in measured], "commit")
    return list(zip(labels, measured, strict=True))


def _latency(title: str, measured: Sequence[Labelled], of: Of, caption: str) -> Iterator[Figure]:
    found = [
        (label, merged(getattr(one, f"{of}_ns") for one in cell_rounds.rounds))
        for label, cell_rounds in measured
    ]
    if curves := [(label, histogram) for label, histogram in found if len(histogram)]:
        yield latency_figure(title, curves[:SERIES], caption)


def latency_figure(
    title: str,
    curves: Sequence[tuple[str, FineHistogram]],
    caption: str,
    numbers: Sequence[int] | None = None,
) -> Figure:
    """Latencies by percentile, of each labelled histogram. No histogram may be empty. `numbers`: styles of
    the curves, by default in order."""
    most = max(len(histogram) for _, histogram in curves)
    steps = [histogram.steps() for _, histogram in curves]
    low, high = log_bounds(max(1, one) for each in steps for one in (each[0][0], each[-1][0]))
    end = max(nines(0.99), math.log10(most) + 0.1)
    plot = Plot(
        title=title,
        description=f"{caption} " + " ".join(_percentile_words(*curve) for curve in curves),
        x=Axis(
            title="percentile, the tail widened",
            low=0.0,
            high=end,
            ticks=tuple(
                (nines(percent / 100), f"{percent:g}")
                for percent in _PERCENT_TICKS
                if nines(percent / 100) <= end
            ),
        ),
        y=_time_axis("latency", low, high),
        series=tuple(
            _curve(label, number, histogram)
            for number, (label, histogram) in zip(numbers or range(len(curves)), curves, strict=True)
        ),
    )
    return Figure(title=title, caption=caption, svg=plot.svg())


def _percentile_words(label: str, histogram: FineHistogram) -> str:
    latencies = ", ".join(
        f"p{percent:g} {figures.time(histogram.percentile(percent))}"
        for percent in PERCENTS
        if supported(len(histogram), percent)
    )
    return f"{label}: {latencies or 'too few samples'}, largest {figures.time(histogram.max_value)}."


def _curve(label: str, number: int, histogram: FineHistogram) -> Series:
    """A curve of steps: solid while at least `SAMPLES_BEYOND_MIN` samples lie beyond, then faint."""
    total = len(histogram)
    full: list[Point] = []
    faint: list[Point] = []
    before = 0
    for value, below in histogram.steps():
        bounded = min(below, total - 0.5)  # otherwise the largest sample's end would be at infinity
        for count in (before, bounded):
            point = Point(x=nines(count / total), y=max(1, value), marked=False)
            (full if total - count >= SAMPLES_BEYOND_MIN or not full else faint).append(point)
        before = below
    marks = [
        Point(x=nines(percent / 100), y=max(1, histogram.percentile(percent)))
        for percent in PERCENTS
        if supported(total, percent)
    ]
    points = sorted((*full, *marks), key=lambda point: (point.x, point.y))
    return Series(label=label, number=number, points=tuple(points), faint=tuple(faint))


def _time_axis(title: str, low: float, high: float) -> Axis:
    ticks = tuple((tick, figures.time(tick)) for tick in log_ticks(low, high))
    return Axis(title=title, low=low, high=high, ticks=ticks, log=True)


def curve_figures(summaries: Iterable[CellSummary]) -> Iterator[Figure]:
    """The rate by block size, by number of jobs, and by writes per sync."""
    measured = [
        one
        for one in summaries
        if one.rate is not None and one.engine == "durability" and one.cell.group not in _NOT_VARIED
    ]
    yield from _varied(
        measured,
        "block_bytes",
        "Block size",
        "Commits per second, with intervals. A step shows that a layer below uses larger blocks.",
    )
    yield from _varied(
        measured,
        "jobs",
        "Concurrency",
        "Commits per second of all jobs together. The rate rises if jobs share flushes, or if the drive "
        "serves several jobs at once.",
    )
    yield from _varied(
        measured,
        "writes_per_sync",
        "Group commit",
        "Writes per second if several writes share a sync.",
    )


def _varied(measured: Sequence[CellSummary], field: Varying, title: str, caption: str) -> Iterator[Figure]:
    families: dict[tuple[object, ...], list[CellSummary]] = {}
    for one in measured:
        if one.cell.writes_per_sync or field != "writes_per_sync":
            families.setdefault(_apart_from(field, one.cell), []).append(one)
    several = [
        sorted(family, key=lambda one: getattr(one.cell, field))
        for family in families.values()
        if len(family) >= _CURVE_MIN or (field == "jobs" and family[0].cell.shared)
    ]
    if any(len(family) >= _CURVE_MIN for family in several):
        yield _curves(several[:SERIES], field, title, caption)


def _apart_from(field: Varying, cell: Cell) -> tuple[object, ...]:
    """The parameters that cells of one family share, all except `field`."""
    others = (one.name for one in fields(Cell) if one.name != field)
    return tuple(getattr(cell, name) for name in others if name not in _NOT_OF_THE_FAMILY)


def _curves(families: Sequence[Sequence[CellSummary]], field: Varying, title: str, caption: str) -> Figure:
    every = [one for family in families for one in family]
    spreads = [_spread(one, field) for one in every]
    low, high = log_bounds(
        (bound for spread in spreads for bound in (spread.least, spread.most)), widest=1.35
    )
    values = sorted({getattr(one.cell, field) for one in every})
    axis_words = {"block_bytes": "block size", "jobs": "jobs", "writes_per_sync": "writes per sync"}
    unit = "writes per second" if field == "writes_per_sync" else "operations per second"
    labels = figures.distinct(
        [_family_name(family[0].cell, field) for family in families],
        "files of their own" if field == "jobs" else families[0][0].cell.sync,
    )
    plot = Plot(
        title=title,
        description=f"{caption} "
        + " ".join(
            f"{one.cell.name}: {figures.rate(spread)} ({figures.interval(spread)}) {unit}."
            for one, spread in zip(every, spreads, strict=True)
        ),
        x=Axis(
            title=axis_words[field],
            low=values[0] / 1.25,
            high=values[-1] * 1.25,
            ticks=tuple(
                (float(value), _bytes_word(value) if field == "block_bytes" else f"{value}")
                for value in values
            ),
            log=True,
        ),
        y=_rate_axis(unit, low, high),
        series=tuple(
            Series(
                label=label,
                number=number,
                points=tuple(_rate_point(one, field, word=not number) for one in family),
            )
            for number, (label, family) in enumerate(zip(labels, families, strict=True))
        ),
        references=tuple(_proportional(families[0], field, high)),
    )
    return Figure(title=title, caption=caption, svg=plot.svg())


def _family_name(cell: Cell, field: Varying) -> str:
    parts = cell.name.split("-")
    own = {"block_bytes": size_word(cell.block_bytes), "jobs": f"{cell.jobs}jobs"}
    return "-".join(part for part in parts if part not in (own.get(field), f"per{cell.writes_per_sync}"))


def _spread(summary: CellSummary, field: Varying) -> Spread:
    """The rate of a cell; for writes per sync, the rate of writes."""
    spread = summary.writes_per_s if field == "writes_per_sync" else None
    found = spread or summary.rate
    assert found is not None
    return found


def _rate_point(summary: CellSummary, field: Varying, *, word: bool) -> Point:
    spread = _spread(summary, field)
    low, high = (spread.least, spread.most) if spread.low is None else (spread.low, spread.high)
    return Point(
        x=float(getattr(summary.cell, field)),
        y=spread.median,
        low=low,
        high=high,
        word=figures.count(spread.median) if word else "",
    )


def _rate_axis(title: str, low: float, high: float) -> Axis:
    ticks = tuple((tick, figures.count(tick)) for tick in log_ticks(low, high))
    return Axis(title=title, low=low, high=high, ticks=ticks, log=True)


def _proportional(family: Sequence[CellSummary], field: Varying, high: float) -> Iterator[Reference]:
    """A reference line: the rate if it grew in proportion to the jobs or the writes per sync. It ends at the
    end of the axis."""
    first, last = (float(getattr(one.cell, field)) for one in (family[0], family[-1]))
    rate = _spread(family[0], field).median
    if field == "block_bytes" or not rate:
        return
    times = min(last / first, high / rate)
    yield Reference(label="in proportion", start=(first, rate), end=(first * times, rate * times))


def _bytes_word(size_bytes: int) -> str:
    if size_bytes >= MIB and size_bytes % MIB == 0:
        return f"{size_bytes // MIB} MiB"
    return f"{size_bytes // KIB} KiB" if size_bytes % KIB == 0 else f"{size_bytes} B"


def ladder_figures(result: Result) -> Iterator[Figure]:
    """The time of a flush by the bytes written before it, with the limit of the link and the controls."""
    controls = controls_of(result)
    if not controls.ladder:
        return
    link = controls.link_bytes_per_s or LINK_ASSUMED_BYTES_PER_S * max(1, len(result.facts.drives))
    first, last = controls.ladder[0][0], controls.ladder[-1][0]
    levels = [
        (label, level)
        for label, level in (
            ("F0, empty flush", controls.flush_ns),
            ("C, write + sync", controls.commit_ns),
            ("W, write", controls.write_ns),
        )
        if level
    ]
    steps = [
        Point(x=float(one.dirty_bytes), y=one.median_ns, low=one.least_ns, high=one.most_ns)
        for one in control_times(result)
        if one.dirty_bytes is not None
    ]
    bounds = [one for point in steps for one in (point.low or point.y, point.high or point.y)]
    low, high = log_bounds((*bounds, *(level for _, level in levels), last * 1e9 / link))
    carried = f"link, {link / 1e9:.3g} GB/s" + ("" if controls.link_bytes_per_s else "?")
    begin = max(first / 1.5, low * link / 1e9)
    references = [Reference(label=label, start=(first / 1.5, at), end=(last, at)) for label, at in levels]
    if begin < last:
        references.append(
            Reference(label=carried, start=(begin, begin * 1e9 / link), end=(last, last * 1e9 / link))
        )
    unknown = (
        "" if controls.link_bytes_per_s else " The link's bandwidth is unknown, so the fastest link is drawn."
    )
    caption = (
        "Median time of a sync by the bytes of direct writes before it, with the range of the rounds. A "
        "flush that moves data takes longer with more data. A flush far below the line of the link did "
        f"not move them: they were already moved, or protected, or the flush is ignored.{unknown}"
    )
    plot = Plot(
        title="Flush ladder",
        description=f"{caption} "
        + " ".join(f"{_bytes_word(int(point.x))}: {figures.time(point.y)}." for point in steps)
        + "".join(f" {label}: {figures.time(level)}." for label, level in levels),
        x=Axis(
            title="written before the flush",
            low=first / 1.5,
            high=last * 1.5,
            ticks=tuple((float(at), _bytes_word(at)) for at, _ in controls.ladder),
            log=True,
        ),
        y=_time_axis("time of the sync", low, high),
        series=(Series(label="flush, F(n)", number=0, points=tuple(steps)),),
        references=tuple(references),
    )
    yield Figure(title="Flush ladder", caption=caption, svg=plot.svg())
