"""Comparison of results with the first one: ratios of the cells that all results have, and the answer.

Ratios are always given, with one caveat above them: a device that ignores flushes looks fast, so without
proof from cuts no ratio is a ranking. Results of different modes, sizes or profiles are compared in the cells
that they share, and each difference is named once. A cell whose definition differs is left out. The subject
(drive, file system) and the surroundings (kernel, load) may differ and are listed. A ratio has an interval;
if the interval includes 1, no difference is shown. In the flush ladder the times of the sync are compared,
since the rest of such a commit is writes. The rate of a paced cell is its pace, so only its latencies are
shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal, TypeAlias

from durability.bench.catalogue import COMMIT_CONTROL, HEADLINE, WRITE_CONTROL
from durability.bench.cells import Cell, differing
from durability.bench.decision.answer import SUSPICIONS, Candidate, answer, caveat, choice
from durability.bench.decision.bottom_line import fallen, has_rate_of_commits, held_commits, suspected
from durability.bench.decision.cause import cause
from durability.bench.decision.pair_speeds import Key, pair_speeds
from durability.bench.decision.proof import Proof, outweighs
from durability.bench.decision.speeds import Speeds, fading
from durability.bench.hashed_serials import are_of_one_drive, hash_serials, in_lasting_order
from durability.bench.intervals import ROUNDS_MIN, Ratio, Spread, ratio, spread
from durability.bench.measurement import Engine, Round
from durability.bench.plausibility import Plausibility, plausibility
from durability.bench.result import CellRounds, Result
from durability.bench.result_warnings import broken_off, result_warnings
from durability.bench.summary import CellSummary, round_medians, summarise
from durability.errors import UsageError
from durability.formats.facts import Drive
from durability.units import counted, duration, format_size, ratio_text

Basis: TypeAlias = Literal["rate", "sync", "pace"]

KEEPS_UP = 0.95  # a paced cell keeps up if its median round reaches this share of the pace
LENGTH_ALIKE = 1.5  # a larger ratio between measured times of the shared cells gives a warning


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A property that differs between results."""

    what: str
    values: tuple[str, ...]  # one value for each result


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """A cell of one result compared with the same cell of the first result."""

    ratio: Ratio | None  # None if there is no ratio
    text: str  # the ratio in words, or the reason why there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A cell that all results have, with the figures of each result."""

    cell: Cell
    engine: Engine
    # The figure that is compared. "rate": operations per second. "sync": median of a round's syncs in
    # nanoseconds. "pace": operations per second, but the cell is paced, so its rates cannot be compared.
    basis: Basis
    summaries: tuple[CellSummary, ...]  # one for each result
    spreads: tuple[Spread | None, ...]  # the compared figure of each result
    against: tuple[Against, ...]  # each result but the first, compared with the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The comparison of results with the first one. Fields without a comment have one item for each result,
    in the same order."""

    labels: tuple[str, ...]
    plausibilities: tuple[Plausibility, ...]
    proofs: tuple[Proof | None, ...]  # the proof from cuts for each result's drive, None without cuts
    answers: tuple[str, ...]  # one for each result but the first
    choice: str  # the answer over three or more results, "" for two, and without `rows`
    causes: tuple[str, ...]  # one for each result but the first, "" if the controls show no cause
    steadiness: tuple[str, ...]  # sentences on rates, and on leads, that did not last
    caveat: str  # why the ratios are not a ranking, "" if they are
    short_caveat: str  # the caveat without the plausibility verdicts
    refusals: tuple[str, ...]  # why the results are not comparable, in sentences; then `rows` is empty
    subject: tuple[Difference, ...]  # differences between the targets
    surroundings: tuple[Difference, ...]  # differences that may explain a ratio
    warnings: tuple[str, ...]  # facts that weaken the comparison, in sentences
    left_out: tuple[str, ...]  # cells that some results lack or define differently
    rows: tuple[Row, ...]  # one for each cell that is compared

    @property
    def conditions(self) -> tuple[str, ...]:
        """Names of the conditions that differ besides the drives: the surroundings and the file system."""
        file_system = (one.what for one in self.subject if one.what == "file system")
        return (*(one.what for one in self.surroundings), *file_system)

    @property
    def other_cell(self) -> str:
        """The name of the cell that decides. "" if this is the headline, or if there is none."""
        row = deciding_row(self.rows)
        return "" if row is None or row.cell.name == HEADLINE.name else row.cell.name

    def classes(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each plausibility verdict in words, with the labels of the results that have it."""
        headlines = dict.fromkeys(one.headline for one in self.plausibilities)
        pairs = tuple(zip(self.labels, self.plausibilities, strict=True))
        return tuple(
            (headline, tuple(label for label, one in pairs if one.headline == headline))
            for headline in headlines
        )


def compare(results: Sequence[tuple[str, Result]], proofs: Sequence[Proof | None] = ()) -> Comparison:
    """Compare `results`, each with its label. `proofs`: the proof from cuts for each result, () if no cuts
    were searched. Raises UsageError for fewer than two results."""
    if len(results) < 2:
        raise UsageError("compare needs two results or more")
    labels = tuple(label for label, _ in results)
    proofs = tuple(proofs) or (None,) * len(results)
    every = _alike_in_serials([result for _, result in results])
    tables = [{(one.cell.name, one.engine): one for one in result.cells if one.rounds} for result in every]
    names = list(dict.fromkeys(name for name, _ in tables[0]))  # keeps the engines of a cell together
    both = [key for key in tables[0] if all(key in table for table in tables)]
    unlike = _unlike_fields(tables, both)
    shared = sorted((key for key in both if key not in unlike), key=lambda key: names.index(key[0]))
    verdicts = tuple(plausibility(result) for result in every)
    rows = tuple(_row(labels, [table[key] for table in tables]) for key in shared)
    named = list(zip(labels, every, proofs, strict=True))
    row = deciding_row(rows)

    @cache
    def between(one: int, other: int) -> Speeds:
        """How fast the result number `other` commits compared with the result number `one`."""
        return pair_speeds(tables[one], tables[other])

    candidates = _candidates(named)
    first, *others = candidates
    speeds = [between(0, number) for number, _ in enumerate(others, 1)]
    refusals = () if rows else (_no_row(unlike),)
    has_controls = {WRITE_CONTROL.name, COMMIT_CONTROL.name} <= {one.cell.name for one in rows}
    return Comparison(
        labels=labels,
        plausibilities=verdicts,
        proofs=proofs,
        answers=tuple(
            (f"{first.label} or {one.label}? " if len(others) > 1 else "")
            + (f"Not compared: {refusals[0]}." if refusals else answer(first, one, found))
            for one, found in zip(others, speeds, strict=True)
        ),
        choice=choice(candidates, between) if rows else "",
        causes=tuple(
            cause(named[0], one, found.short) if has_controls and found.short is not None else ""
            for one, found in zip(named[1:], speeds, strict=True)
        ),
        steadiness=(
            *_unsteady(labels, every, row),
            *filter(
                None,
                (fading(first.label, one.label, found) for one, found in zip(others, speeds, strict=True)),
            ),
        ),
        caveat=caveat(candidates, [one.headline for one in verdicts]),
        short_caveat=caveat(candidates, ()),
        refusals=refusals,
        subject=tuple(_differences(_SUBJECT, every)),
        surroundings=tuple(_differences(_SURROUNDINGS, every)),
        warnings=tuple(_warnings(labels, every, tables, shared, unlike)),
        left_out=tuple(_left_out(tables, shared)),
        rows=rows,
    )


def _candidates(named: Sequence[tuple[str, Result, Proof | None]]) -> list[Candidate]:
    """The candidates for the answer, one for each result."""
    of_drive = _drive_numbers([result for _, result, _ in named])
    return [
        Candidate(
            label=label,
            proof=proof,
            suspicion=_suspicion(result, proof),
            broken_off=broken_off(result),
            drive=number,
            serials=tuple(one.serial for one in in_lasting_order(result.facts.drives)),
        )
        for (label, result, proof), number in zip(named, of_drive, strict=True)
    ]


def _drive_numbers(results: Sequence[Result]) -> list[int | None]:
    """For each result, a number for its drive: the index of the first result of that drive. None if the drive
    has no serial of its own."""
    return [
        next((at for at, one in enumerate(results) if are_of_one_drive(one.facts, result.facts)), None)
        for result in results
    ]


def _suspicion(result: Result, proof: Proof | None) -> str:
    """Why the commits of `result` are suspicious. "" if they are not, or if its cuts outweigh the times."""
    code = suspected(result, plausibility(result))
    return "" if code is None or outweighs(proof, code) else SUSPICIONS[code]


def deciding_row(rows: Sequence[Row]) -> Row | None:
    """The row that decides: the headline, else the first cell in short rounds that only commits, else the
    first sustained load of commits. None if there is none."""
    commits, held = _commit_rows(rows), _held_rows(rows)
    short = [row for row in commits if row not in held]
    return next((row for row in short if row.cell.name == HEADLINE.name), next(iter(short or commits), None))


def _commit_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows of cells that only commit."""
    return [
        row
        for row in rows
        if (row.basis, row.engine) == ("rate", "durability") and has_rate_of_commits(row.cell)
    ]


def _held_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows of sustained loads of commits that all results held."""
    return [
        row
        for row in _commit_rows(rows)
        if row.cell.group == "sustained" and all(one.series for one in row.summaries)
    ]


def _unsteady(labels: Sequence[str], results: Sequence[Result], row: Row | None) -> Iterator[str]:
    """A sentence on each result whose rate did not last in its sustained loads. For a result without such
    loads: in the short rounds that decide."""
    loads = [held_commits(result) for result in results]
    unheld = [label for label, held in zip(labels, loads, strict=True) if not held]
    for number, (label, held) in enumerate(zip(labels, loads, strict=True)):
        if said := fallen(label, held):
            yield said + (f"; {' and '.join(unheld)} held no such load" if unheld else "")
        elif not held and row is not None and row.summaries[number].steady.word == "NOT STEADY":
            yield f"{label}: {row.summaries[number].steady.reason}"


def _alike_in_serials(results: Sequence[Result]) -> list[Result]:
    """The results, all with hashed serials if any result has hashed serials, so that results of one drive
    are recognised."""
    if {result.serials for result in results} == {"shown"}:
        return list(results)
    return [hash_serials(result) if result.serials == "shown" else result for result in results]


def _unlike_fields(
    tables: Sequence[Mapping[Key, CellRounds]], both: Sequence[Key]
) -> dict[Key, tuple[str, ...]]:
    """Cells with one name that are not the same measurement, with the fields in which they differ."""
    found = {}
    for key in both:
        cells = [table[key].cell for table in tables]
        names = differing(cells)
        # The duration of a sustained load is part of the test: ten minutes are another load than thirty.
        if cells[0].group == "sustained" and len({cell.seconds for cell in cells}) > 1:
            names |= {"seconds"}
        if names:
            found[key] = tuple(sorted(names))
    return found


def _no_row(unlike: Mapping[Key, tuple[str, ...]]) -> str:
    if not unlike:
        return "no cell was measured in all results"
    return f"no cell is the same measurement in all results: {_unlike_text(unlike)}"


def _unlike_text(unlike: Mapping[Key, tuple[str, ...]]) -> str:
    what = ", ".join(dict.fromkeys(name for names in unlike.values() for name in names))
    name, _ = next(iter(unlike))
    others = f" and of {counted(len(unlike) - 1, 'other cell')}" if len(unlike) > 1 else ""
    return f"the definition of {name}{others} differs ({what})"


def _listed(labels: Sequence[str], values: Sequence[str]) -> str:
    return ", ".join(f"{value} in {label}" for label, value in zip(labels, values, strict=True))


def _left_out(tables: Sequence[Mapping[Key, CellRounds]], shared: Sequence[Key]) -> Iterator[str]:
    for name, engine in dict.fromkeys(key for table in tables for key in table):
        if (name, engine) not in shared:
            yield name if engine == "durability" else f"{name} ({engine})"


def _row(labels: Sequence[str], measured: Sequence[CellRounds]) -> Row:
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
            _against_in_pace(summaries[0], summary)
            if basis == "pace"
            else _against(labels[0], basis, values[0], other)
            for summary, other in zip(summaries[1:], values[1:], strict=True)
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
    """The figure of each round that is compared."""
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
            text=f"{what}{ratio_text(found.value)} of {label}, from {fewest}; an interval needs {ROUNDS_MIN}",
        )
    interval = f"{ratio_text(found.low)} to {ratio_text(found.high)}"
    if not found.shows_difference:
        return Against(ratio=found, text=f"no difference shown ({what}{interval} of {label})")
    return Against(ratio=found, text=f"{what}{ratio_text(found.value)} of {label} ({interval})")


def _warnings(
    labels: Sequence[str],
    results: Sequence[Result],
    tables: Sequence[Mapping[Key, CellRounds]],
    shared: Sequence[Key],
    unlike: Mapping[Key, tuple[str, ...]],
) -> Iterator[str]:
    for what, of in _ALIKE.items():
        values = [of(result) for result in results]
        if len(set(values)) > 1:
            yield f"{what} differs: {_listed(labels, values)}; cells that all have are compared"
    spans_s = [sum(table[key].cell.seconds * table[key].cell.rounds for key in shared) for table in tables]
    if max(spans_s) > LENGTH_ALIKE * min(spans_s):
        yield f"the same cells were measured for {_listed(labels, [f'{span_s:.0f} s' for span_s in spans_s])}"
    if unlike and shared:
        yield f"left out: {_unlike_text(unlike)}"
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
    return _of_each(result, lambda drive: f"{drive.model or drive.name} {drive.serial}".strip()) or "unknown"


def _of_each(result: Result, figure: Callable[[Drive], str | None]) -> str:
    return ", ".join(figure(drive) or "?" for drive in in_lasting_order(result.facts.drives))


def _file_system(result: Result) -> str:
    found = result.facts.file_system
    return f"{found.type} ({found.options}), blocks of {found.block_bytes}" if found else "none"


_ALIKE: Mapping[str, Callable[[Result], str]] = MappingProxyType(
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
        "firmware": lambda result: _of_each(result, lambda drive: drive.firmware),
        "write cache": lambda result: _of_each(result, lambda drive: drive.write_cache),
    }
)
_SURROUNDINGS: Mapping[str, Callable[[Result], str]] = MappingProxyType(
    {
        "machine": lambda result: result.facts.host.hostname,
        "kernel": lambda result: result.facts.host.kernel,
        "virtualisation": lambda result: result.facts.host.virtualisation,
        "processor": lambda result: f"{result.machine.cpus} x {result.machine.cpu_model or 'unknown'}",
        "governor": lambda result: result.machine.governor or "none",
        "size of the files": lambda result: format_size(result.size_bytes),
        "version of this tool": lambda result: result.software,
    }
)
