"""Comparison: two results or more, held against the first, where they can be.

Unlike runs are refused with each difference named: another mode, size, profile or definition of a cell makes
another measurement, and a quick run is too short for any. What may differ is the subject (drive, file system)
and the surroundings (kernel, load), which are listed. A ratio comes with its interval, and where that holds 1
no difference is shown. Results of different plausibility are never ranked: a device that ignores flushes
always wins against one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from durability.bench.cautions import cautions
from durability.bench.cells import Cell
from durability.bench.intervals import ROUNDS_MIN, Ratio, ratio
from durability.bench.measurement import Engine
from durability.bench.plausibility import Plausibility, plausibility
from durability.bench.result import CellRounds, Result
from durability.bench.serials import hash_serials
from durability.bench.summary import CellSummary, summarise
from durability.errors import UsageError
from durability.units import format_size

_NOT_OF_THE_MEASUREMENT = frozenset({"name", "about", "group", "fio"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that is not the same in all results: what, and how it is in each."""

    what: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One result's cell against the first's: `ratio` of the rates, None where it is not given; `text` says
    it in words, or why not."""

    ratio: Ratio | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A cell that all results have: the figures of each, and each but the first against the first."""

    cell: Cell
    engine: Engine
    summaries: tuple[CellSummary, ...]
    against: tuple[Against, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`labels` of the results, the first being the one that others are held against.

    `refusals`: why they cannot be compared, in sentences; then there are no `rows`. `subject`: what differs
    of what was measured. `surroundings`: what differs and may explain a difference. `warnings`: what else
    to mind. `left_out`: cells that not all results have.
    """

    labels: tuple[str, ...]
    plausibilities: tuple[Plausibility, ...]
    refusals: tuple[str, ...]
    subject: tuple[Difference, ...]
    surroundings: tuple[Difference, ...]
    warnings: tuple[str, ...]
    left_out: tuple[str, ...]
    rows: tuple[Row, ...]


def compare(results: Sequence[tuple[str, Result]]) -> Comparison:
    """The comparison of `results`, each with its label. Raises UsageError for fewer than two."""
    if len(results) < 2:
        raise UsageError("a comparison takes two results or more")
    labels = tuple(label for label, _ in results)
    every = _alike_in_serials([result for _, result in results])
    tables = [{(one.cell.name, one.engine): one for one in result.cells if one.rounds} for result in every]
    shared = [key for key in tables[0] if all(key in table for table in tables)]
    refusals = (*_refusals(labels, every), *_unlike_cells(labels, tables, shared))
    if not refusals and not shared:
        refusals = ("there is no cell that all of them measured",)
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
    return [
        replace(result, facts=hash_serials(result.facts)) if result.serials == "shown" else result
        for result in results
    ]


def _refusals(labels: Sequence[str], results: Sequence[Result]) -> Iterator[str]:
    for label, result in zip(labels, results, strict=True):
        if result.mode == "quick":
            yield f"{label} is a quick run, which is too short to compare: run it without --quick"
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
    return Row(
        cell=measured[0].cell,
        engine=measured[0].engine,
        summaries=summaries,
        against=tuple(
            _against(labels[0], verdicts[0], verdict, measured[0], other)
            for verdict, other in zip(verdicts[1:], measured[1:], strict=True)
        ),
    )


def _against(
    label: str, first: Plausibility, verdict: Plausibility, baseline: CellRounds, other: CellRounds
) -> Against:
    if verdict.code != first.code:
        return Against(ratio=None, text=f"not ranked: {verdict.headline}, {label}: {first.headline}")
    found = ratio([one.rate for one in other.rounds], [one.rate for one in baseline.rounds])
    if found is None:
        return Against(ratio=None, text="a round without any operation: nothing to compare")
    if found.low is None or found.high is None:
        fewest = min(len(baseline.rounds), len(other.rounds))
        return Against(
            ratio=found,
            text=f"{found.value:.2f} of {label}, of {fewest} rounds where an interval takes {ROUNDS_MIN}",
        )
    interval = f"{found.low:.2f} to {found.high:.2f}"
    if not found.shows_difference:
        return Against(ratio=found, text=f"no difference shown ({interval} of {label})")
    return Against(ratio=found, text=f"{found.value:.2f} of {label} ({interval})")


def _warnings(
    labels: Sequence[str], results: Sequence[Result], verdicts: Sequence[Plausibility]
) -> Iterator[str]:
    if len({verdict.code for verdict in verdicts}) > 1:
        headlines = [f"{verdict.headline!r}" for verdict in verdicts]
        yield f"not ranked where plausibility differs: {_listed(labels, headlines)}"
    for label, result in zip(labels, results, strict=True):
        for caution in cautions(result):
            yield f"{label}: {caution.text}"
    if len({tuple(one.cell.name for one in result.cells) for result in results}) > 1:
        yield "they measured different cells, so each cell's rounds lay among others"


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
