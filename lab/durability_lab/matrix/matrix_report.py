"""The report of a matrix's graded cuts: rows, the page for people, the JSON document, the exit code.

All functions are pure. This module does not grade; `graded_cut` defines the grades. A row covers one cell, or
all cells of a drive on a rig. The points of curves are hard scenarios on purpose. They are counted and shown
by `detection_page`, but they are not in a drive's row.
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
from durability_lab.matrix.graded_cut import Agreement, Grade, GradedCut
from durability_lab.matrix.matrix_cells import MatrixCell

SCHEMA = "durability.lab.matrix/1"
_MISSES_SHOWN = 5  # misses shown per reason, without -v


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    """Graded cuts that belong together. `load`: load of their cell, "" if the row covers several cells."""

    rig: str
    drive: str
    load: str
    graded_cuts: tuple[GradedCut, ...]

    @property
    def honest(self) -> bool:
        """Whether the drive is honest."""
        return self.graded_cuts[0].honest

    def graded(self, grade: Grade) -> int:
        """Number of graded cuts with this grade."""
        return graded(self.graded_cuts, grade)

    @property
    def broke(self) -> int | None:
        """Number of cuts in which the drive broke a promise; None without a drive log."""
        known = [graded_cut.broken for graded_cut in self.graded_cuts if graded_cut.broken is not None]
        return sum(map(bool, known)) if known else None

    @property
    def caught_of_broke(self) -> int:
        """Number of cuts with a broken promise and the expected verdict."""
        return sum(graded_cut.grade == "right" for graded_cut in self.graded_cuts if graded_cut.broken)

    @property
    def smallest_loss(self) -> int | None:
        """The smallest number of findings of a cut with a loss verdict."""
        return min((one.lost for one in self._losses), default=None)

    @property
    def fewest_operations(self) -> int | None:
        """The smallest number of operations that a loss reached back."""
        windows = (one.window_operations for one in self._losses)
        return min((count for count in windows if count is not None), default=None)

    @property
    def shortest_ms(self) -> float | None:
        """The shortest time that a loss reached back; often of another cut than `fewest_operations`."""
        windows = (one.window_ms for one in self._losses)
        return min((ms for ms in windows if ms is not None), default=None)

    @property
    def _losses(self) -> Iterator[GradedCut]:
        return (one for one in self.graded_cuts if one.verdict == "loss")

    @property
    def agreement(self) -> Agreement:
        """Findings of all classes together, compared with the truth."""
        return sum(classes(self.graded_cuts).values(), Agreement())


def graded(graded_cuts: Iterable[GradedCut], grade: Grade) -> int:
    """Number of graded cuts with this grade."""
    return sum(graded_cut.grade == grade for graded_cut in graded_cuts)


def rows(cells: Sequence[MatrixCell], graded_cuts: Iterable[GradedCut], *, by_cell: bool) -> list[MatrixRow]:
    """One row per cell, or, without the cells of curves, per drive and rig; in the order of `cells`."""
    keys = {
        cell.name: (cell.rig, cell.drive, cell.load_name if by_cell else "")
        for cell in cells
        if by_cell or cell.curve is None
    }
    grouped: dict[tuple[str, str, str], list[GradedCut]] = {key: [] for key in keys.values()}
    for graded_cut in graded_cuts:
        if graded_cut.cell in keys:
            grouped[keys[graded_cut.cell]].append(graded_cut)
    return [
        MatrixRow(rig=rig, drive=drive, load=load, graded_cuts=tuple(members))
        for (rig, drive, load), members in grouped.items()
        if members
    ]


def classes(graded_cuts: Iterable[GradedCut]) -> dict[str, Agreement]:
    """Findings compared with the truth, by class."""
    sums: dict[str, Agreement] = defaultdict(Agreement)
    for graded_cut in graded_cuts:
        for name, agreement in graded_cut.classes.items():
            sums[name] += agreement
    return dict(sorted(sums.items()))


def wrong(graded_cuts: Iterable[GradedCut]) -> list[GradedCut]:
    """The graded cuts that show an error of the tester."""
    return [graded_cut for graded_cut in graded_cuts if graded_cut.wrong]


def reasons(graded_cuts: Iterable[GradedCut]) -> dict[str, list[GradedCut]]:
    """The explained misses by reason, the most frequent reason first."""
    grouped: dict[str, list[GradedCut]] = defaultdict(list)
    for graded_cut in graded_cuts:
        if graded_cut.grade == "missed" and not graded_cut.wrong:
            grouped[graded_cut.reason].append(graded_cut)
    return dict(sorted(grouped.items(), key=lambda one: -len(one[1])))


def exit_code(graded_cuts: Iterable[GradedCut]) -> int:
    """0 if no cut is wrong, otherwise 1: a defect of this tool."""
    return EXIT_INTERNAL if wrong(graded_cuts) else EXIT_OK


def totals(graded_cuts: Sequence[GradedCut]) -> dict[str, int]:
    """The counts of all graded cuts."""
    honest = [graded_cut for graded_cut in graded_cuts if graded_cut.honest]
    liars = [graded_cut for graded_cut in graded_cuts if not graded_cut.honest]
    return {
        "cuts": len(graded_cuts),
        "honest": len(honest),
        "false_alarms": graded(honest, "false alarm"),
        "undecided": graded(honest, "undecided"),
        "liars": len(liars),
        "caught": graded(liars, "right"),
        "missed": graded(liars, "missed"),
        "missed_kept": sum(graded_cut.grade == "missed" and graded_cut.broken == 0 for graded_cut in liars),
        "failed": graded(graded_cuts, "failed"),
        "wrong": len(wrong(graded_cuts)),
    }


def document(
    cells: Sequence[MatrixCell], graded_cuts: Sequence[GradedCut], *, seed: int, options: str
) -> dict[str, Value]:
    """The document that `--json` prints."""
    return {
        "schema": SCHEMA,
        "seed": seed,
        "options": options,
        "totals": dict(totals(graded_cuts)),
        "rows": [_row_value(row) for row in rows(cells, graded_cuts, by_cell=True)],
        "classes": {name: _agreement_value(one) for name, one in classes(graded_cuts).items()},
        "misses": [to_value(one) for one in graded_cuts if one.grade == "missed" and not one.wrong],
        "wrong": [to_value(graded_cut) for graded_cut in wrong(graded_cuts)],
    }


def _row_value(row: MatrixRow) -> Value:
    return {
        "rig": row.rig,
        "drive": row.drive,
        "load": row.load,
        "honest": row.honest,
        "cuts": len(row.graded_cuts),
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
    *("rig", "drive", "cuts", "broke", "right", "false alarms"),
    *("smallest loss", "compared", "precision", "recall"),
)


def texts(row: MatrixRow) -> tuple[str, ...]:
    """The cells of a table line for a row, in the order of HEADINGS."""
    cuts = len(row.graded_cuts)
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


def smallest(row: MatrixRow) -> str:
    """The smallest figures of the row's losses, as text; each minimum may come from another cut."""
    parts = []
    if row.smallest_loss is not None:
        parts.append(counted(row.smallest_loss, "place"))
    if row.fewest_operations is not None:
        parts.append(counted(row.fewest_operations, "op"))
    if row.shortest_ms is not None:
        parts.append(f"{row.shortest_ms:.{0 if row.shortest_ms >= 10 else 1}f} ms")
    return ", ".join(parts)


def share(value: float | None) -> str:
    """A share as a percentage, rounded down, so that a smaller share never shows as 100 %."""
    return "" if value is None else f"{math.floor(round(value * 1000, 6)) / 10:g} %"


def page(
    cells: Sequence[MatrixCell], graded_cuts: Sequence[GradedCut], *, seed: int, by_cell: bool
) -> RenderableType:
    """The report for people: a line per row, the classes, the misses and their reasons."""
    table = Table(*(Column(name, no_wrap=name != "drive") for name in HEADINGS), box=SIMPLE_HEAD)
    for row in rows(cells, graded_cuts, by_cell=by_cell):
        table.add_row(*texts(row))
    by_class = Table(
        "class", "claimed and true", "claimed only", "true only", "not compared", box=SIMPLE_HEAD
    )
    for finding, one in classes(graded_cuts).items():
        by_class.add_row(finding, str(one.agreed), str(one.false), str(one.missed), str(one.unjudged))
    shown = len(graded_cuts) if by_cell else _MISSES_SHOWN
    return Group(f"seed {seed}", table, by_class, Text("\n".join(_closing(graded_cuts, shown))))


def _closing(graded_cuts: Sequence[GradedCut], shown: int) -> Iterator[str]:
    unjudged = sum(one.unjudged for one in classes(graded_cuts).values())
    if unjudged:
        yield f"{counted(unjudged, 'claim')} not compared place by place; precision and recall exclude them"
    for reason, members in reasons(graded_cuts).items():
        examples = ", ".join(f"{name(graded_cut)} (seed {graded_cut.seed})" for graded_cut in members[:shown])
        rest = ", … (-v shows all)" if len(members) > shown else ""
        yield f"not caught in {counted(len(members), 'cut')}, because {reason}: {examples}{rest}"
    for graded_cut in wrong(graded_cuts):
        said = "; ".join(part for part in (graded_cut.reason, *graded_cut.defects[:3]) if part)
        yield f"WRONG ({graded_cut.grade}): {name(graded_cut)}, seed {graded_cut.seed}: {said}"
    count = totals(graded_cuts)
    yield (
        f"{counted(count['honest'], 'cut')} of honest drives,"
        f" {counted(count['false_alarms'], 'false alarm')};"
        f" {count['liars']} of lying drives, {count['caught']} caught, {count['missed']} not caught, of which"
        f" in {count['missed_kept']} the drive kept every promise; {count['wrong']} wrong"
    )


def name(graded_cut: GradedCut) -> str:
    """The name of a cut: its cell, and its number in the cell."""
    return f"{graded_cut.cell} #{graded_cut.number}"
