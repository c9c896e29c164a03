"""Summaries: the figures of a cell, computed from its rounds on each call.

Percentiles are taken after the latencies of all rounds are merged. A percentile is given only if the sample
is large enough. A value that was not measured is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from durability.bench.cells import Cell
from durability.bench.intervals import Spread, percentile, spread
from durability.bench.measurement import DiskWork, Engine, Latencies, Round
from durability.bench.result import CellRounds, Result
from durability.bench.steady_state import BINS_MIN, Steady, steady
from durability.formats.histogram import FineHistogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Percentiles of latencies in nanoseconds. None if fewer than 10 samples lie beyond the percentile."""

    samples: int  # number of latencies
    p50: int | None
    p95: int | None
    p99: int | None
    p99_9: int | None
    most: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PerOperation:
    """Requests of one operation to a leaf drive. A count is None if the system does not count it."""

    name: str  # name of the drive
    flushes: float | None
    writes: float | None
    write_kib: float | None
    reads: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A published limit for the p99 of the sync."""

    limit_ms: float
    kept: bool | None  # whether the limit was kept, None if the sample is too small


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """The figures of a cell."""

    cell: Cell
    engine: Engine
    note: str
    operations: int
    rate: Spread | None  # operations per second
    writes_per_s: Spread | None  # None unless a commit has several writes
    bytes_per_s: Spread | None  # bytes written and read, None if the operations move none
    commit: Percentiles  # latency of the whole commit: writes and sync
    sync: Percentiles  # latency of the sync call alone
    read: Percentiles  # latency of reads
    cpu_us: float | None  # processor time per operation
    disks: tuple[PerOperation, ...]
    steady: Steady
    rule: Rule | None
    bin_s: float  # length of a bin of `series`, 0 without bins
    series: tuple[float, ...]  # operations per second in each bin, all rounds in a row

    @property
    def series_s(self) -> float:
        """The length of the series in seconds."""
        return len(self.series) * self.bin_s

    @property
    def end_rate(self) -> float:
        """Operations per second in the last third of a long series. For a shorter series: the median over the
        rounds."""
        if len(self.series) < BINS_MIN:
            return 0.0 if self.rate is None else self.rate.median
        return _at_end(self.series)

    def rate_before(self, length_s: float) -> float:
        """The end rate that the series would have if it had ended after `length_s` seconds."""
        if length_s >= self.series_s:
            return self.end_rate
        return _at_end(self.series[: max(1, round(length_s / self.bin_s))])


def _at_end(series: Sequence[float]) -> float:
    """The mean of the last third of a long series, or of a whole shorter series."""
    last = series[-(len(series) // 3) :] if len(series) >= BINS_MIN else series
    return sum(last) / len(last)


def summarise(measured: CellRounds) -> CellSummary:
    """The figures of one cell."""
    cell, rounds = measured.cell, measured.rounds
    several = cell.writes_per_sync > 1
    sync = percentiles(one.sync_ns for one in rounds)
    return CellSummary(
        cell=cell,
        engine=measured.engine,
        note=measured.note,
        operations=sum(one.operations for one in rounds),
        rate=spread([one.rate for one in rounds]),
        writes_per_s=spread([one.writes / one.seconds for one in rounds]) if several else None,
        bytes_per_s=_bytes_per_s(cell, rounds),
        commit=percentiles(one.commit_ns for one in rounds),
        sync=sync,
        read=percentiles(one.read_ns for one in rounds),
        cpu_us=_cpu_us(rounds),
        disks=disks_per_operation(rounds),
        steady=steady(cell, rounds),
        rule=_rule(cell, sync),
        bin_s=rounds[0].bin_s if rounds else 0.0,
        series=tuple(count / one.bin_s for one in rounds for count in one.bins),
    )


def _bytes_per_s(cell: Cell, rounds: Sequence[Round]) -> Spread | None:
    moved = [cell.block_bytes * (one.writes + one.reads) / one.seconds for one in rounds]
    return spread(moved) if any(moved) else None


def merged(parts: Iterable[Latencies]) -> FineHistogram:
    """The latencies of several rounds as one histogram."""
    whole = FineHistogram()
    for part in parts:
        whole.merge(part.histogram())
    return whole


def percentiles(parts: Iterable[Latencies]) -> Percentiles:
    """The percentiles of several rounds together."""
    whole = merged(parts)
    return Percentiles(
        samples=len(whole),
        p50=percentile(whole, 50),
        p95=percentile(whole, 95),
        p99=percentile(whole, 99),
        p99_9=percentile(whole, 99.9),
        most=whole.max_value if len(whole) else None,
    )


def round_medians(parts: Iterable[Latencies]) -> tuple[float, ...]:
    """The median latency in nanoseconds of each round that has latencies. A median needs few samples, so
    their number is not checked."""
    return tuple(float(part.histogram().percentile(50)) for part in parts if len(part))


def written_bytes(result: Result) -> int:
    """Bytes that the rounds wrote to the target, without warm-up and without filling the files."""
    return sum(
        one.cell.block_bytes * each.writes
        for one in result.cells
        if one.cell.place == "target"
        for each in one.rounds
    )


def disks_per_operation(rounds: Sequence[Round]) -> tuple[PerOperation, ...]:
    """Requests per operation to each leaf drive, over all rounds in which they were counted."""
    works = [one.work for one in rounds if one.work is not None and one.work.operations]
    names = dict.fromkeys(disk.name for work in works for disk in work.disks)
    counted = {
        name: [(disk, work.operations) for work in works for disk in work.disks if disk.name == name]
        for name in names
    }
    return tuple(
        PerOperation(
            name=name,
            flushes=_per_operation(disks, lambda disk: disk.flushes),
            writes=_per_operation(disks, lambda disk: disk.writes),
            write_kib=_per_operation(disks, lambda disk: disk.write_kib),
            reads=_per_operation(disks, lambda disk: disk.reads),
        )
        for name, disks in counted.items()
    )


def _per_operation(
    disks: Sequence[tuple[DiskWork, int]], counter: Callable[[DiskWork], float | None]
) -> float | None:
    known = [(count, operations) for disk, operations in disks if (count := counter(disk)) is not None]
    return sum(count for count, _ in known) / sum(operations for _, operations in known) if known else None


def _cpu_us(rounds: Sequence[Round]) -> float | None:
    known = [
        (cpu_us, one.work.operations)
        for one in rounds
        if one.work is not None and one.work.operations and (cpu_us := one.work.cpu_us) is not None
    ]
    return sum(cpu_us for cpu_us, _ in known) / sum(operations for _, operations in known) if known else None


def _rule(cell: Cell, sync: Percentiles) -> Rule | None:
    if cell.p99_limit_ms is None:
        return None
    kept = None if sync.p99 is None else sync.p99 < cell.p99_limit_ms * 1e6
    return Rule(limit_ms=cell.p99_limit_ms, kept=kept)
