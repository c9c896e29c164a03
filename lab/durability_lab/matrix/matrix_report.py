"""The report of a matrix's graded cuts: rows, the page for people, the JSON document, the exit code.

Pure: graded cuts in, values out. It does not grade; `graded_cut` says what each grade means. A row is of one
cell, or of all cells of a drive on a rig. The points of curves are scenarios made to be hard: they are counted,
and `detection_page` shows them, but they are in no drive's row.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from durability.errors import EXIT_INTERNAL, EXIT_OK
from durability.formats.documents import to_value
from durability.formats.packing import Value
from durability.units import counted
from durability_lab.matrix.graded_cut import Agreement, GradedCut
from durability_lab.matrix.matrix_cells import MatrixCell

SCHEMA = "durability.lab.matrix/1"
_MISSES_SHOWN = 5  # of each reason, where not all are asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Trials that belong together. `load`: of their cell, "" where they are of several."""

    rig: str
    drive: str
    load: str
    trials: tuple[GradedCut, ...]

    @property
    def honest(self) -> bool:
        """Whether the drive is honest."""
        return self.trials[0].honest

    def graded(self, grade: str) -> int:
        """How many trials have this grade."""
        return sum(trial.grade == grade for trial in self.trials)

    @property
    def broke(self) -> int | None:
        """In how many cuts the drive broke a promise, None without a drive log."""
        known = [trial.broken for trial in self.trials if trial.broken is not None]
        return sum(map(bool, known)) if known else None

    @property
    def caught_of_broke(self) -> int:
        """In how many of these the verdict was the one that the drive deserves."""
        return sum(trial.grade == "right" for trial in self.trials if trial.broken)

    @property
    def smallest_loss(self) -> int | None:
        """The fewest findings of a cut that was caught."""
        return min((trial.lost for trial in self.trials if trial.verdict == "loss"), default=None)

    @property
    def fewest_operations(self) -> int | None:
        """The fewest operations that a loss reached back."""
        windows = (trial.window_operations for trial in self.trials if trial.verdict == "loss")
        return min((count for count in windows if count is not None), default=None)

    @property
    def shortest_ms(self) -> float | None:
        """The shortest time, at least, that a loss reached back; often another cut's than
        `fewest_operations`."""
        windows = (trial.window_ms for trial in self.trials if trial.verdict == "loss")
        return min((ms for ms in windows if ms is not None), default=None)

    @property
    def agreement(self) -> Agreement:
        """Findings of all classes against the truth."""
        return sum(classes(self.trials).values(), Agreement())


def rows(cells: Sequence[MatrixCell], trials: Iterable[GradedCut], *, by_cell: bool) -> list[Row]:
    """One row for each cell, or for each drive on a rig without curves; in the order of `cells`."""
    keys = {
        cell.name: (cell.rig, cell.drive, cell.load_name if by_cell else "")
        for cell in cells
        if by_cell or cell.curve is None
    }
    grouped: dict[tuple[str, str, str], list[GradedCut]] = {key: [] for key in keys.values()}
    for trial in trials:
        if trial.cell in keys:
            grouped[keys[trial.cell]].append(trial)
    return [
        Row(rig=rig, drive=drive, load=load, trials=tuple(members))
        for (rig, drive, load), members in grouped.items()
        if members
    ]


def classes(trials: Iterable[GradedCut]) -> dict[str, Agreement]:
    """Findings against the truth, by class."""
    sums: dict[str, Agreement] = defaultdict(Agreement)
    for trial in trials:
        for name, agreement in trial.classes.items():
            sums[name] += agreement
    return dict(sorted(sums.items()))


def wrong(trials: Iterable[GradedCut]) -> list[GradedCut]:
    """The trials that must not be."""
    return [trial for trial in trials if trial.wrong]


def reasons(trials: Iterable[GradedCut]) -> dict[str, list[GradedCut]]:
    """The explained misses, by their reason; the most frequent first."""
    grouped: dict[str, list[GradedCut]] = defaultdict(list)
    for trial in trials:
        if trial.grade == "missed" and not trial.wrong:
            grouped[trial.reason].append(trial)
    return dict(sorted(grouped.items(), key=lambda one: -len(one[1])))


def exit_code(trials: Iterable[GradedCut]) -> int:
    """0 where nothing is wrong, else 1: a defect of this tool."""
    return EXIT_INTERNAL if wrong(trials) else EXIT_OK


def totals(trials: Sequence[GradedCut]) -> dict[str, int]:
    """The counts of all trials."""
    honest = [trial for trial in trials if trial.honest]
    liars = [trial for trial in trials if not trial.honest]
    return {
        "cuts": len(trials),
        "honest": len(honest),
        "false_alarms": sum(trial.grade == "false alarm" for trial in honest),
        "undecided": sum(trial.grade == "undecided" for trial in honest),
        "liars": len(liars),
        "caught": sum(trial.grade == "right" for trial in liars),
        "missed": sum(trial.grade == "missed" for trial in liars),
        "missed_kept": sum(trial.grade == "missed" and trial.broken == 0 for trial in liars),
        "failed": sum(trial.grade == "failed" for trial in trials),
        "wrong": len(wrong(trials)),
    }


def document(
    cells: Sequence[MatrixCell], trials: Sequence[GradedCut], *, seed: int, options: str
) -> dict[str, Value]:
    """What `--json` prints."""
    return {
        "schema": SCHEMA,
        "seed": seed,
        "options": options,
        "totals": dict(totals(trials)),
        "rows": [_row_value(row) for row in rows(cells, trials, by_cell=True)],
        "classes": {name: _agreement_value(one) for name, one in classes(trials).items()},
        "misses": [to_value(trial) for trial in trials if trial.grade == "missed" and not trial.wrong],
        "wrong": [to_value(trial) for trial in wrong(trials)],
    }


def _row_value(row: Row) -> Value:
    return {
        "rig": row.rig,
        "drive": row.drive,
        "load": row.load,
        "honest": row.honest,
        "cuts": len(row.trials),
        "right": row.graded("right"),
        "false_alarms": row.graded("false alarm"),
        "undecided": row.graded("undecided"),
        "missed": row.graded("missed"),
        "failed": row.graded("failed"),
        "broke": row.broke,
        "smallest_loss": row.smallest_loss,
        "shortest_window_operations": row.fewest_operations,
        "shortest_window_ms": row.shortest_ms,
        **_agreement_value(row.agreement),
    }


def _agreement_value(agreement: Agreement) -> dict[str, Value]:
    return {
        "agreed": agreement.agreed,
        "false": agreement.false,
        "missed_places": agreement.missed,
        "unjudged": agreement.unjudged,
        "precision": agreement.precision,
        "recall": agreement.recall,
    }


HEADINGS = (
    "rig",
    "drive",
    "cuts",
    "broke",
    "right",
    "false alarms",
    "smallest loss",
    "compared",
    "precision",
    "recall",
)


def texts(row: Row) -> tuple[str, ...]:
    """The cells of a table's line for a row, under HEADINGS."""
    cuts = len(row.trials)
    return (
        row.rig,
        f"{row.drive} {row.load}".strip(),
        str(cuts),
        "" if row.honest or row.broke is None else str(row.broke),
        f"{row.graded('right')}/{cuts}",
        f"{row.graded('false alarm')}/{cuts}" if row.honest else "",
        smallest(row),
        f"{row.agreement.compared:,}" if row.agreement.compared else "",
        share(row.agreement.precision),
        share(row.agreement.recall),
    )


def smallest(row: Row) -> str:
    """The least that the row's losses came to, in words; each number by itself, often of another cut."""
    parts = []
    if row.smallest_loss is not None:
        parts.append(counted(row.smallest_loss, "place"))
    if row.fewest_operations is not None:
        parts.append(counted(row.fewest_operations, "op"))
    if row.shortest_ms is not None:
        parts.append(f"{row.shortest_ms:.{0 if row.shortest_ms >= 10 else 1}f} ms")
    return ", ".join(parts)


def share(value: float | None) -> str:
    """A share as a percentage that never rounds up to all."""
    return "" if value is None else f"{math.floor(round(value * 1000, 6)) / 10:g} %"


def page(
    cells: Sequence[MatrixCell], trials: Sequence[GradedCut], *, seed: int, by_cell: bool
) -> RenderableType:
    """What people are shown: a line for each row, the classes, the misses and their reasons."""
    table = Table(*(Column(name, no_wrap=name != "drive") for name in HEADINGS), box=SIMPLE_HEAD)
    for row in rows(cells, trials, by_cell=by_cell):
        table.add_row(*texts(row))
    by_class = Table(
        "class", "claimed and true", "claimed only", "true only", "not compared", box=SIMPLE_HEAD
    )
    for finding, one in classes(trials).items():
        by_class.add_row(finding, str(one.agreed), str(one.false), str(one.missed), str(one.unjudged))
    shown = len(trials) if by_cell else _MISSES_SHOWN
    return Group(f"seed {seed}", table, by_class, Text("\n".join(_closing(trials, shown))))


def _closing(trials: Sequence[GradedCut], shown: int) -> Iterator[str]:
    unjudged = sum(one.unjudged for one in classes(trials).values())
    if unjudged:
        yield f"{counted(unjudged, 'claim')} not compared place by place; precision and recall exclude them"
    for reason, members in reasons(trials).items():
        examples = ", ".join(f"{name(trial)} (seed {trial.seed})" for trial in members[:shown])
        rest = ", … (-v shows all)" if len(members) > shown else ""
        yield f"not caught in {counted(len(members), 'cut')}, because {reason}: {examples}{rest}"
    for trial in wrong(trials):
        said = "; ".join(part for part in (trial.reason, *trial.defects[:3]) if part)
        yield f"WRONG ({trial.grade}): {name(trial)}, seed {trial.seed}: {said}"
    count = totals(trials)
    yield (
        f"{count['honest']} cuts of honest drives, {count['false_alarms']} false alarms;"
        f" {count['liars']} of lying drives, {count['caught']} caught, {count['missed']} not caught, of which"
        f" in {count['missed_kept']} the drive kept every promise; {count['wrong']} wrong"
    )


def name(trial: GradedCut) -> str:
    """The cut in words: its cell, and its number there."""
    return f"{trial.cell} #{trial.number}"
