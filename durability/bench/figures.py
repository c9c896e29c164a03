"""Figures as text, for the tables in the terminal, the reports and the live page.

A value that is unknown, or for which the sample is too small, is a dash. Text in a result file may come from
a stranger, so characters that could move a terminal's cursor are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from durability import plain_text
from durability.bench.compare import Comparison, Row, deciding_row
from durability.bench.decision.classic import ClassicRow
from durability.bench.decision.proof import PROOF_CLASSES, Proof
from durability.bench.intervals import Spread, paired_ratio
from durability.bench.plausibility import ControlTime
from durability.bench.result import CellRounds, Result
from durability.bench.steady_state import RANGE_MAX
from durability.bench.summary import CellSummary, Percentiles, PerOperation, summarise
from durability.units import duration, few_digits, table_percent

DASH = "\N{EN DASH}"
UNSURE = "?"  # follows a ratio whose interval includes 1 or is missing
PERCENTILES = ("p50", "p95", "p99", "p99.9", "max")
CLASSIC_HEADINGS = ("fio", "read MB/s", "IOPS", "write MB/s", "IOPS", "synced MB/s", "IOPS")
SPARK_BARS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A result of a comparison in four lines."""

    label: str
    rate: str
    beside: str
    word: str  # the style of `cuts`
    cuts: str


def name_of(summary: CellSummary) -> str:
    """The name of the cell, with the engine if that is not this tool."""
    return plain_text.as_line(summary.cell.name) + (" (fio)" if summary.engine == "fio" else "")


def rate(spread: Spread | None) -> str:
    """The median as text."""
    return DASH if spread is None else count(spread.median)


def megabytes(summary: CellSummary) -> str:
    """The bandwidth in 10^6 bytes per second."""
    moved = summary.bytes_per_s
    return DASH if moved is None else count(moved.median / 1e6)


def classic(row: ClassicRow) -> tuple[str, ...]:
    """MB/s and IOPS of reads, of writes, and of writes with a sync each."""
    return tuple(
        word
        for one in (row.read, row.write, row.synced)
        for word in ((DASH, DASH) if one is None else (megabytes(one), rate(one.rate)))
    )


def share(part: float | None) -> str:
    """A share in per cent."""
    return DASH if part is None else table_percent(part)


def interval(spread: Spread | None) -> str:
    """The interval of the median. With too few rounds for an interval: their range, in brackets."""
    if spread is None or spread.rounds == 1:
        return DASH
    if spread.low is None or spread.high is None:
        return f"[{count(spread.least)}{DASH}{count(spread.most)}]"
    return f"{count(spread.low)}{DASH}{count(spread.high)}"


def compared(row: Row, number: int) -> tuple[str, str]:
    """The compared figure of result `number` (from 0), and its interval. For a paced cell: p50 and p99."""
    if row.basis == "pace":
        commit = row.summaries[number].commit
        return time(commit.p50), f"p99 {time(commit.p99)}"
    spread = row.spreads[number]
    if row.basis == "rate":
        return rate(spread), interval(spread)
    if spread is None:
        return DASH, DASH
    low, high = (spread.least if spread.low is None else spread.low), (spread.high or spread.most)
    return time(spread.median), f"{time(low)}{DASH}{time(high)}"


def decided(row: Row | None, number: int) -> tuple[str, str, str, str]:
    """Rate, MB/s, p99 and ratio to the first, of result `number` (from 0) in the row that decides."""
    if row is None:
        return (DASH,) * 4
    summary = row.summaries[number]
    ratio = row.against[number - 1].ratio if number else None
    times = "1" if not number else DASH if ratio is None else count(ratio.value)
    if ratio is not None and not ratio.shows_difference:
        times += UNSURE
    return rate(summary.rate), megabytes(summary), time(summary.commit.p99), times


def cuts_in_words(proof: Proof | None) -> str:
    """The proof from cuts of a drive, in words."""
    return "no known power cut" if proof is None else proof.text


def tiles(comparison: Comparison) -> tuple[Tile, ...]:
    """A tile for each result: the figures of the cell that decides, and the proof from cuts."""
    row = deciding_row(comparison.rows)
    made = []
    for number, (label, proof) in enumerate(zip(comparison.labels, comparison.proofs, strict=True)):
        per_second, moved, p99, times = decided(row, number)
        against = f", ratio {times}" if number else ""
        against += f" ({plain_text.as_line(comparison.other_cell)})" if comparison.other_cell else ""
        made.append(
            Tile(
                label=label,
                rate=f"{per_second} commits/s",
                beside=f"{moved} MB/s, p99 {p99}{against}",
                word="open" if proof is None else PROOF_CLASSES[proof.word],
                cuts=cuts_in_words(proof),
            )
        )
    return tuple(made)


def side_by_side(summaries: Iterable[CellSummary]) -> tuple[CellSummary, ...]:
    """The summaries, reordered so that the figures of all engines for a cell are next to each other."""
    given = tuple(summaries)
    first = {one.cell.name: number for number, one in reversed(list(enumerate(given)))}
    return tuple(sorted(given, key=lambda one: first[one.cell.name]))


def count(number: float) -> str:
    """A rate as text: a whole number, or three digits for a small rate."""
    return few_digits(number)


def time(time_ns: float | None) -> str:
    """A latency with its unit."""
    return DASH if time_ns is None else duration(time_ns)


def times(percentiles: Percentiles) -> tuple[str, str, str, str, str]:
    """p50, p95, p99, p99.9 and the largest."""
    p50, p95, p99 = time(percentiles.p50), time(percentiles.p95), time(percentiles.p99)
    return p50, p95, p99, time(percentiles.p99_9), time(percentiles.most)


def amount(number: float | None) -> str:
    """A count per operation as text, with two decimals if it is small."""
    if number is None:
        return DASH
    if number < 10:
        return f"{number:.2f}"
    return f"{number:.1f}" if number < 100 else f"{number:,.0f}"


def drives_sum(disks: Sequence[PerOperation], of: Callable[[PerOperation], float | None]) -> float | None:
    """The sum of a count over all drives. None if no drive counts it."""
    known = [one for disk in disks if (one := of(disk)) is not None]
    return sum(known) if known else None


def work(summary: CellSummary) -> tuple[str, str, str, str]:
    """Flushes, writes, KiB written and microseconds of processor time per operation."""
    disks = summary.disks
    return (
        amount(drives_sum(disks, lambda disk: disk.flushes)),
        amount(drives_sum(disks, lambda disk: disk.writes)),
        amount(drives_sum(disks, lambda disk: disk.write_kib)),
        amount(summary.cpu_us),
    )


def binned(series: Sequence[float], bars: int = SPARK_BARS) -> tuple[float, ...]:
    """`series` in at most `bars` pieces, the mean of each."""
    if not series:
        return ()
    return tuple(float(part.mean()) for part in np.array_split(np.array(series), min(bars, len(series))))


def state(summary: CellSummary) -> str:
    """Whether the rate was steady, in short. "" if that is unknown. For short rounds that were not steady,
    the text has their range, or, if only the slope is too large, their signed rise or fall."""
    found = summary.steady
    if found.word == "NOT STEADY" and not alarming(summary):
        apart, rising = found.range_share or 0.0, found.slope_share or 0.0
        return f"{found.word} {apart:.0%}" if apart > RANGE_MAX else f"{found.word} {rising:+.0%}"
    return found.word if found.word in ("steady", "NOT STEADY") else ""


def alarming(summary: CellSummary) -> bool:
    """Whether the rate of a sustained load did not last. Short rounds do not count, since they vary on most
    machines."""
    return summary.steady.word == "NOT STEADY" and summary.cell.group == "sustained"


def beside_the_rate(summary: CellSummary) -> Iterator[str]:
    """Texts on figures besides the rate: writes per second if a commit has several, and the latency of reads.
    The writes of the flush ladder are left out, since its figure is the time of the sync."""
    writes = summary.writes_per_s
    if writes is not None and summary.cell.group != "flush ladder":
        within = interval(writes)
        yield f"{rate(writes)} writes per second" + ("" if within == DASH else f" ({within})")
    if summary.read.samples:
        named = zip(PERCENTILES, times(summary.read), strict=True)
        yield "reads: " + ", ".join(f"{name} {value}" for name, value in named if value != DASH)


def control(one: ControlTime) -> tuple[str, str]:
    """The median of a control, and the range of the rounds' medians."""
    return time(one.median_ns), f"{time(one.least_ns)}{DASH}{time(one.most_ns)}"


def rule(summary: CellSummary) -> str:
    """A published rule and whether it was kept. "" without a rule."""
    if summary.rule is None:
        return ""
    kept = {True: "kept", False: "NOT KEPT", None: "too few samples to say"}[summary.rule.kept]
    return f"rule of p99 of the sync below {summary.rule.limit_ms:g} ms: {kept}"


def against_fio(result: Result) -> Iterator[str]:
    """For each cell that fio measured too, the rate of this tool divided by the rate of fio."""
    for one in result.cells:
        if one.engine == "fio" and one.rounds:
            ours = [each.rate for each in result.rounds_of(one.cell.name)]
            ratio = paired_ratio(ours, [each.rate for each in one.rounds])
            if ratio is not None:
                within = "" if ratio.low is None else f" ({ratio.low:.3f} to {ratio.high:.3f})"
                yield f"{one.cell.name}: {ratio.value:.3f}{within} of {one.engine_version}, round by round"


def held(measured: CellRounds) -> str:
    """The rate of a sustained load, and whether it lasted."""
    found, seconds = summarise(measured), sum(one.seconds for one in measured.rounds)
    moved = f", {megabytes(found)} MB/s," if found.bytes_per_s is not None else ""
    held_for = f"{rate(found.rate)} per second{moved} over {seconds:,.0f} s"
    return f"{held_for}, {found.steady.word}: {found.steady.reason}"


def distinct(names: Sequence[str], alone: str) -> tuple[str, ...]:
    """`names` without the words that all of them share. `alone` replaces a name without other words."""
    parts = [name.split("-") for name in names]
    common = set.intersection(*map(set, parts)) if parts else set()
    return tuple(" ".join(word for word in words if word not in common) or alone for words in parts)
