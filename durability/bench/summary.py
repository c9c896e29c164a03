"""Summaries: what is said of a cell, derived from its rounds each time that it is asked for.

Latencies of rounds are merged before a percentile is taken of them, and a percentile is given only where the
sample supports it. Refuses to fill a gap: what was not measured is None.
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
    """Latencies of `samples` in nanoseconds; None where fewer than 10 samples lie beyond the percentile."""

    samples: int
    p50: int | None
    p95: int | None
    p99: int | None
    p99_9: int | None
    most: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PerOperation:
    """What one operation took of the leaf drive `name`, None where not counted."""

    name: str
    flushes: float | None
    writes: float | None
    write_kib: float | None
    reads: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A published limit of the sync's p99, and whether it was kept: None where the sample is too small."""

    limit_ms: float
    kept: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """A cell in figures; `rate` in operations per second, `writes_per_s` where a commit is several writes.
    `bytes_per_s`: written and read by these operations, None where they move none.
    `commit`: of the whole commit, writes and sync; `sync`: of the sync call alone; `read`: of reads.
    `series`: operations per second in each bin of `bin_s`, all rounds in a row; `bin_s` 0 without bins."""

    cell: Cell
    engine: Engine
    note: str
    operations: int
    rate: Spread | None
    writes_per_s: Spread | None
    bytes_per_s: Spread | None
    commit: Percentiles
    sync: Percentiles
    read: Percentiles
    cpu_us: float | None
    disks: tuple[PerOperation, ...]
    steady: Steady
    rule: Rule | None
    bin_s: float
    series: tuple[float, ...]

    @property
    def series_s(self) -> float:
        """How long the series is in seconds."""
        return len(self.series) * self.bin_s

    @property
    def end_rate(self) -> float:
        """Operations per second in the last third of a long series, of a shorter one over all rounds."""
        if len(self.series) < BINS_MIN:
            return 0.0 if self.rate is None else self.rate.median
        return _at_end(self.series)

    def rate_before(self, length_s: float) -> float:
        """The rate at its end if the series had ended after so many seconds."""
        if length_s >= self.series_s:
            return self.end_rate
        return _at_end(self.series[: max(1, round(length_s / self.bin_s))])


def _at_end(series: Sequence[float]) -> float:
    """The mean of the last third of a long series, and of all of a shorter one."""
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
    """The median of each round's latencies in nanoseconds, of those that have any: every sample counts, since
    a median takes few."""
    return tuple(float(part.histogram().percentile(50)) for part in parts if len(part))


def written_bytes(result: Result) -> int:
    """What the rounds handed to the target in bytes: without their warm-up, and without filling the files."""
    return sum(
        one.cell.block_bytes * each.writes
        for one in result.cells
        if one.cell.place == "target"
        for each in one.rounds
    )


def disks_per_operation(rounds: Sequence[Round]) -> tuple[PerOperation, ...]:
    """What an operation took of each leaf drive, over all rounds in which it was counted."""
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
