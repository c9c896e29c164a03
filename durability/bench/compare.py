"""Comparison of two or more results with the first, if they are comparable.

Results of different measurements are refused, and each difference is named: mode, size, profile or
definition of a cell. A quick run is too short to compare. The subject (drive, file system) and the
surroundings (kernel, load) may differ and are listed. A ratio has an interval; if the interval includes 1,
no difference is shown. In the flush ladder the times of the sync are compared, since the rest of such a
commit is writes. A paced cell has the rate of its pace, so only its latencies are shown. Results of
different plausibility are never ranked: a device that ignores flushes always wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Literal, TypeAlias

from durability.bench.cells import Cell
from durability.bench.intervals import ROUNDS_MIN, Ratio, Spread, ratio, spread
from durability.bench.measurement import Engine, Round
from durability.bench.plausibility import Plausibility, plausibility
from durability.bench.result import CellRounds, Result
from durability.bench.result_warnings import result_warnings
from durability.bench.serials import hash_serials
from durability.bench.summary import CellSummary, round_medians, summarise
from durability.errors import UsageError
from durability.units import counted, duration, format_size

Basis: TypeAlias = Literal["rate", "sync", "pace"]

KEEPS_UP = 0.95  # of the pace, in the median round: what is below cannot keep up
_NOT_OF_THE_MEASUREMENT = frozenset({"name", "about", "group", "fio"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that is not the same in all results: what, and how it is in each."""

    what: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One result's cell against the first's: `ratio` of what is compared, None where it is not given; `text`
    says it in words, or why not."""

    ratio: Ratio | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A cell that all results have: the figures of each, and each but the first against the first. `basis`:
    what is compared, and what `spreads` are of: "rate", in operations per second; "sync", the median of a
    round's syncs in nanoseconds; "pace", the rate, on which results cannot be compared."""

    cell: Cell
    engine: Engine
    basis: Basis
    summaries: tuple[CellSummary, ...]
    spreads: tuple[Spread | None, ...]
    against: tuple[Against, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`labels` of the results; the others are compared with the first.

    `refusals`: why they are not comparable, in sentences; then there are no `rows`. `subject`: differences of
    the target. `surroundings`: differences that may explain a ratio. `warnings`: what weakens the comparison.
    `left_out`: cells that some results lack.
    """

    labels: tuple[str, ...]
    plausibilities: tuple[Plausibility, ...]
    refusals: tuple[str, ...]
    subject: tuple[Difference, ...]
    surroundings: tuple[Difference, ...]
    warnings: tuple[str, ...]
    left_out: tuple[str, ...]
    rows: tuple[Row, ...]

    def classes(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each verdict on plausibility, in words, with the labels of the results that it was given."""
        headlines = dict.fromkeys(one.headline for one in self.plausibilities)
        pairs = tuple(zip(self.labels, self.plausibilities, strict=True))
        return tuple(
            (headline, tuple(label for label, one in pairs if one.headline == headline))
            for headline in headlines
        )


def compare(results: Sequence[tuple[str, Result]]) -> Comparison:
    """The comparison of `results`, each with its label. Raises UsageError for fewer than two."""
    if len(results) < 2:
        raise UsageError("compare needs two results or more")
    labels = tuple(label for label, _ in results)
    every = _alike_in_serials([result for _, result in results])
    tables = [{(one.cell.name, one.engine): one for one in result.cells if one.rounds} for result in every]
    names = list(dict.fromkeys(name for name, _ in tables[0]))  # so that engines stand beside each other
    shared = sorted(
        (key for key in tables[0] if all(key in table for table in tables)),
        key=lambda key: names.index(key[0]),
    )
    refusals = (*_refusals(labels, every), *_unlike_cells(labels, tables, shared))
    if not refusals and not shared:
        refusals = ("no cell was measured in all results",)
    verdicts = tuple(plausibility(result) for result in every)
    rows = (_row(labels, verdicts, [table[key] for table in tables]) for key in shared)
    return Comparison(
        labels=labels,
        plausibilities=verdicts,
        refusals=refusals,
        subject=tuple(_differences(_SUBJECT, every)),
        surroundings=tuple(_differences(_SURROUNDINGS, every)),
        warnings=tuple(_warnings(labels, every, verdicts)),
        left_out=tuple(_left_out(tables, shared)),
        rows=() if refusals else tuple(rows),
    )


def _alike_in_serials(results: Sequence[Result]) -> list[Result]:
    """The results with hashed serials if any has them so, so that one drive is seen to be one."""
    if {result.serials for result in results} == {"shown"}:
        return list(results)
    return [hash_serials(result) if result.serials == "shown" else result for result in results]


def _refusals(labels: Sequence[str], results: Sequence[Result]) -> Iterator[str]:
    for label, result in zip(labels, results, strict=True):
        if result.mode == "quick":
            yield f"{label} is a quick run, which is too short to compare: measure it without --quick"
    for what, of in _SAME.items():
        values = [of(result) for result in results]
        if len(set(values)) > 1:
            yield f"{what} differs: {_listed(labels, values)}"


def _unlike_cells(
    labels: Sequence[str],
    tables: Sequence[Mapping[tuple[str, Engine], CellRounds]],
    shared: Sequence[tuple[str, Engine]],
) -> Iterator[str]:
    for key in shared:
        cells = [table[key].cell for table in tables]
        for field in fields(Cell):
            values = [str(getattr(cell, field.name)) for cell in cells]
            if field.name not in _NOT_OF_THE_MEASUREMENT and len(set(values)) > 1:
                yield f"{field.name} of {key[0]} differs: {_listed(labels, values)}"


def _listed(labels: Sequence[str], values: Sequence[str]) -> str:
    return ", ".join(f"{value} in {label}" for label, value in zip(labels, values, strict=True))


def _left_out(
    tables: Sequence[Mapping[tuple[str, Engine], CellRounds]], shared: Sequence[tuple[str, Engine]]
) -> Iterator[str]:
    for name, engine in dict.fromkeys(key for table in tables for key in table):
        if (name, engine) not in shared:
            yield name if engine == "durability" else f"{name} ({engine})"


def _row(labels: Sequence[str], verdicts: Sequence[Plausibility], measured: Sequence[CellRounds]) -> Row:
    summaries = tuple(summarise(one) for one in measured)
    basis = _basis(summaries)
    values = [_values(basis, one.rounds) for one in measured]
    return Row(
        cell=measured[0].cell,
        engine=measured[0].engine,
        basis=basis,
        summaries=summaries,
        spreads=tuple(spread(one) for one in values),
        against=tuple(
            Against(ratio=None, text=f"not ranked: {verdict.headline}, {labels[0]}: {verdicts[0].headline}")
            if verdict.code != verdicts[0].code
            else _against_in_pace(summaries[0], summary)
            if basis == "pace"
            else _against(labels[0], basis, values[0], other)
            for verdict, summary, other in zip(verdicts[1:], summaries[1:], values[1:], strict=True)
        ),
    )


def _basis(summaries: Sequence[CellSummary]) -> Basis:
    cell = summaries[0].cell
    if cell.group == "flush ladder":
        return "sync"
    if cell.pace_us and all(_keeps_up(one) for one in summaries):
        return "pace"
    return "rate"


def _keeps_up(summary: CellSummary) -> bool:
    due_per_s = summary.cell.jobs * 1e6 / summary.cell.pace_us
    return summary.rate is not None and summary.rate.median >= KEEPS_UP * due_per_s


def _values(basis: Basis, rounds: Sequence[Round]) -> list[float]:
    """What is compared, of each round."""
    if basis == "sync":
        return list(round_medians(one.sync_ns for one in rounds))
    return [one.rate for one in rounds]


def _against_in_pace(first: CellSummary, other: CellSummary) -> Against:
    pairs = (("p50", first.commit.p50, other.commit.p50), ("p99", first.commit.p99, other.commit.p99))
    times = (f"{name} {_time(ours)} against {_time(theirs)}" for name, theirs, ours in pairs)
    return Against(ratio=None, text=f"the rate is the pace: {', '.join(times)}")


def _time(time_ns: int | None) -> str:
    return "unknown" if time_ns is None else duration(time_ns)


def _against(label: str, basis: Basis, baseline: Sequence[float], other: Sequence[float]) -> Against:
    found, what = ratio(other, baseline), "sync " if basis == "sync" else ""
    if found is None:
        return Against(ratio=None, text="a round had no operation: nothing to compare")
    if found.low is None or found.high is None:
        fewest = counted(min(len(baseline), len(other)), "round")
        return Against(
            ratio=found,
            text=f"{what}{found.value:.2f} of {label}, from {fewest}; an interval needs {ROUNDS_MIN}",
        )
    interval = f"{found.low:.2f} to {found.high:.2f}"
    if not found.shows_difference:
        return Against(ratio=found, text=f"no difference shown ({what}{interval} of {label})")
    return Against(ratio=found, text=f"{what}{found.value:.2f} of {label} ({interval})")


def _warnings(
    labels: Sequence[str], results: Sequence[Result], verdicts: Sequence[Plausibility]
) -> Iterator[str]:
    if len({verdict.code for verdict in verdicts}) > 1:
        headlines = [f"{verdict.headline!r}" for verdict in verdicts]
        yield f"results of different plausibility are not ranked: {_listed(labels, headlines)}"
    elif verdicts[0].code == "inconclusive":
        yield (
            "plausibility is inconclusive in all results, so a ratio may compare a drive that ignores flushes"
            " with a drive that honours them; if controls are missing, measure without --only"
        )
    for label, result in zip(labels, results, strict=True):
        for warning in result_warnings(result):
            yield f"{label}: {warning.text}"
    if len({tuple(one.cell.name for one in result.cells) for result in results}) > 1:
        yield "the results have different cells, so each cell was measured among other cells"


def _differences(
    table: Mapping[str, Callable[[Result], str]], results: Sequence[Result]
) -> Iterator[Difference]:
    for what, of in table.items():
        values = tuple(of(result) for result in results)
        if len(set(values)) > 1:
            yield Difference(what=what, values=values)


def _drives(result: Result) -> str:
    names = (f"{drive.model or drive.name} {drive.serial}".strip() for drive in result.facts.drives)
    return ", ".join(names) or "unknown"


def _file_system(result: Result) -> str:
    found = result.facts.file_system
    return f"{found.type} ({found.options}), blocks of {found.block_bytes}" if found else "none"


_SAME: Mapping[str, Callable[[Result], str]] = MappingProxyType(
    {
        "the mode": lambda result: result.mode,
        "the profile": lambda result: result.profile or "none",
        "the size of the files": lambda result: format_size(result.size_bytes),
    }
)
_SUBJECT: Mapping[str, Callable[[Result], str]] = MappingProxyType(
    {
        "path": lambda result: result.facts.path,
        "kind of target": lambda result: result.facts.kind,
        "file system": _file_system,
        "layers": lambda result: " > ".join(result.facts.layers) or "unknown",
        "drives": _drives,
        "firmware": lambda result: ", ".join(drive.firmware or "?" for drive in result.facts.drives),
        "write cache": lambda result: ", ".join(drive.write_cache or "?" for drive in result.facts.drives),
    }
)
_SURROUNDINGS: Mapping[str, Callable[[Result], str]] = MappingProxyType(
    {
        "machine": lambda result: result.facts.host.hostname,
        "kernel": lambda result: result.facts.host.kernel,
        "virtualisation": lambda result: result.facts.host.virtualisation,
        "processor": lambda result: f"{result.machine.cpus} x {result.machine.cpu_model or 'unknown'}",
        "governor": lambda result: result.machine.governor or "none",
        "version of this tool": lambda result: result.software,
    }
)
