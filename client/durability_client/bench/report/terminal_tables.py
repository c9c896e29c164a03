"""A result, or a comparison, as tables for a terminal: the figures of each cell, then their meaning.

A cell's name is never shortened, since it describes the measurement. If a terminal has no room for it beside
the figures, it gets a line above them. This module only renders; figures come from the core's summaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from durability import plain_text
from durability.bench import figures
from durability.bench.cells import GROUPS, Group
from durability.bench.compare import Comparison, Row
from durability.bench.decision.block_size import best_sizes
from durability.bench.filled import filled
from durability.bench.inflation import inflations
from durability.bench.plausibility import ControlTime, Plausibility, control_times, plausibility
from durability.bench.result import Result
from durability.bench.result_warnings import result_warnings
from durability.bench.summary import CellSummary, summarise
from durability.units import counted
from durability_client.bench.report import circumstances, small_charts
from durability_client.bench.report.comparison_screen import show_answer
from durability_client.bench.report.one_screen import classic_lines, show_lines, wrapped

_NAMES = len("before/after")  # longest name of a fact
_SPARK_BARS = 10
_GAP = 1  # blanks between columns
_PROSE_WIDTH_MAX = 100  # longer lines are harder to read
_STYLES = {"NOT STEADY": "bold red", "steady": "green"}  # short rounds have a figure without style


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLine:
    """A cell: its name and figures. `beside`: texts beside the name. `notes`: lines below."""

    group: Group
    name: str
    figures: tuple[str, ...]
    beside: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A table: its title, the headings of its figures (in one or two lines), and its lines."""

    title: str
    headings: tuple[str, ...]
    lines: tuple[CellLine, ...]

    def widths(self) -> tuple[int, ...]:
        """The width of each column of figures."""
        columns = zip(*(line.figures for line in self.lines), strict=True)
        return tuple(
            max(*map(cell_len, heading.split("\n")), *map(cell_len, column))
            for heading, column in zip(self.headings, columns, strict=True)
        )

    def names_width(self) -> int:
        """The width of the names, with their indent."""
        return 2 + max(cell_len(line.name) for line in self.lines)

    def beside_widths(self) -> tuple[int, ...]:
        """The widths of the texts beside the names."""
        return tuple(
            max(map(cell_len, column)) for column in zip(*(line.beside for line in self.lines), strict=True)
        )

    def width(self) -> int:
        """The width of the table with each cell on one line."""
        return self.names_width() + sum(_GAP + width for width in (*self.widths(), *self.beside_widths()))


def show_result(result: Result, console: Console, *, joined: bool = True) -> None:
    """Print the bottom line, the facts, the figures of all cells (with fio's beside), the verdict and the
    warnings. Then print the bottom line again, where it is visible without scrolling."""
    show_lines(result, console, joined=joined)
    console.print()
    if classic := list(classic_lines(result, min(console.width, _PROSE_WIDTH_MAX))):
        for row in (*classic, Text()):
            console.print(row, soft_wrap=True)
    for name, text in circumstances.in_brief(result):
        _show_fact(name, text, console)
    console.print()
    for sheet in _sheets(figures.side_by_side(map(summarise, result.cells)), console.width):
        _show_sheet(sheet, console)
    if lines := tuple(map(_control, control_times(result))):
        title = "Medians that the verdict depends on, and the range of the rounds' medians"
        _show_sheet(Sheet(title=title, headings=("median", "range"), lines=lines), console)
    for line in figures.against_fio(result):
        _say(console, line)
    for one in result.held():
        _say(console, f"sustained load: {one.cell.name}: {figures.held(one)}", "bold")
    if (fill := filled(result)) is not None:
        _say(console, f"sustained load: {fill.text}")
    for best in best_sizes(result):
        _say(console, best.text)
    _show_verdict(plausibility(result), console)
    for probe in inflations(result.cells):
        if probe.inflated:
            _say(console, f"data: {probe.text}")
    for warning in (*result.facts.warnings, *result_warnings(result)):
        _say(console, f"warning: {warning.text} [{warning.code}]", "yellow")
    console.print()
    show_lines(result, console, joined=joined)


def _show_fact(name: str, text: str, console: Console) -> None:
    """Print a fact, wrapped as needed: mount options can be as long as a page."""
    width, first, then = min(console.width, _PROSE_WIDTH_MAX), f"{name:<{_NAMES}} ", " " * (_NAMES + 1)
    for line in wrapped(plain_text.as_line(text), width, first=first, then=then):
        console.print(Text(line), soft_wrap=True)


def show_comparison(comparison: Comparison, console: Console) -> None:
    """Print the answer, the reasons if the results are not comparable, or else all cells; then the answer
    again."""
    show_answer(comparison, console)
    for refusal in comparison.refusals:
        _say(console, f"not comparable: {refusal}", "bold red")
    for difference in (*comparison.subject, *comparison.surroundings):
        _say(console, f"{difference.what}: {', '.join(map(str, difference.values))}")
    for headline, labels in comparison.classes():
        _say(console, f"plausibility of {', '.join(labels)}: {headline}", "bold")
    if comparison.rows:
        console.print()
        sheet = Sheet(
            title="Operations per second with MB/s, and how they compare with the first",
            headings=tuple(
                word for label in comparison.labels for word in (plain_text.as_line(label), "MB/s")
            ),
            lines=tuple(_compared(row) for row in comparison.rows),
        )
        if any(row.basis != "rate" for row in comparison.rows):
            _say(console, "Times: the sync of the flush ladder, p50 of a commit of a paced cell.")
        _show_sheet(sheet, console)
        if comparison.left_out:
            _say(console, f"left out: {counted(len(comparison.left_out), 'cell')} that some results lack")
    for warning in comparison.warnings:
        _say(console, f"warning: {warning}", "yellow")
    if comparison.rows:
        console.print()
        show_answer(comparison, console)


def _compared(row: Row) -> CellLine:
    return CellLine(
        group=row.cell.group,
        name=figures.name_of(row.summaries[0]),
        figures=tuple(
            word
            for number, summary in enumerate(row.summaries)
            for word in (figures.compared(row, number)[0], figures.megabytes(summary))
        ),
        notes=tuple(plain_text.as_line(one.text) for one in row.against),
    )


def _sheets(summaries: Sequence[CellSummary], width: int) -> tuple[Sheet, ...]:
    """One table if there is room for all columns, else two tables."""
    rates = Sheet(
        title="Rates with intervals, and latency of a commit: writes and their sync",
        headings=("per\nsecond", "\nMB/s", "\ninterval", *(f"\n{word}" for word in figures.PERCENTILES)),
        lines=tuple(_rates(one) for one in summaries),
    )
    costs = Sheet(
        title="Latency of the sync alone, and the work of drives and processors per operation",
        headings=(
            *(f"sync\n{word}" for word in figures.PERCENTILES),
            "\nflushes",
            "\nwrites",
            "\nKiB",
            "CPU\nµs",
        ),
        lines=tuple(_costs(one) for one in summaries),
    )
    whole = Sheet(
        title=f"{rates.title}; of the sync alone; and the work per operation",
        headings=(*rates.headings, *costs.headings),
        lines=tuple(_joined(one, other) for one, other in zip(rates.lines, costs.lines, strict=True)),
    )
    return (whole,) if whole.width() <= width else (rates, costs)


def _rates(one: CellSummary) -> CellLine:
    return CellLine(
        group=one.cell.group,
        name=figures.name_of(one),
        figures=(
            figures.rate(one.rate),
            figures.megabytes(one),
            figures.interval(one.rate),
            *figures.times(one.commit),
        ),
        beside=(small_charts.spark(one.series, _SPARK_BARS), figures.state(one)),
        notes=(*figures.beside_the_rate(one), *filter(None, [plain_text.as_line(one.note)])),
    )


def _costs(one: CellSummary) -> CellLine:
    rule = figures.rule(one)
    return CellLine(
        group=one.cell.group,
        name=figures.name_of(one),
        figures=(*figures.times(one.sync), *figures.work(one)),
        notes=(rule,) if rule else (),
    )


def _control(one: ControlTime) -> CellLine:
    return CellLine(
        group="controls" if one.dirty_bytes is None else "flush ladder",
        name=f"{one.symbol}: {one.about}",
        figures=figures.control(one),
    )


def _joined(one: CellLine, other: CellLine) -> CellLine:
    return CellLine(
        group=one.group,
        name=one.name,
        figures=(*one.figures, *other.figures),
        beside=one.beside,
        notes=(*one.notes, *other.notes),
    )


def _show_sheet(sheet: Sheet, console: Console) -> None:
    beside = sheet.width() <= console.width
    table = _columns(sheet, names=beside)
    title = Text(sheet.title, style="bold")
    console.print(title, soft_wrap=True)
    table.add_row("", *(Text(word, style="dim") for word in sheet.headings))
    for group in GROUPS:
        lines = [line for line in sheet.lines if line.group == group]
        if not lines:
            continue
        if beside:
            table.add_row(Text(group, style="bold"))
        else:
            console.print(table)
            console.print(Text(group, style="bold"))
        for line in lines:
            table = _add_line(line, table, sheet, console, beside=beside)
    console.print(table)
    console.print()


def _add_line(line: CellLine, table: Table, sheet: Sheet, console: Console, *, beside: bool) -> Table:
    """Add the cell to the table, or print it with its name above. Returns the table for the next cells."""
    asides = [Text(word, style=_STYLES.get(word, "")) for word in line.beside]
    if beside:
        table.add_row(Text(f"  {line.name}"), *line.figures, *asides)
        if line.notes:
            console.print(table)
            _say_all(console, line.notes)
            return _columns(sheet, names=True)
        return table
    head = Table.grid(padding=(0, _GAP, 0, 0))
    head.add_column(no_wrap=True, width=min(sheet.names_width(), console.width))
    for width in sheet.beside_widths():
        head.add_column(no_wrap=True, width=width)
    head.add_row(Text(f"  {line.name}"), *asides)
    columns = _columns(sheet, names=False)
    columns.add_row("", *line.figures)
    console.print(head)
    console.print(columns)
    _say_all(console, line.notes)
    return _columns(sheet, names=False)


def _columns(sheet: Sheet, *, names: bool) -> Table:
    """An empty table with the sheet's columns. All parts of the sheet have the same column widths."""
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(no_wrap=True, width=sheet.names_width() if names else 2)
    for width in sheet.widths():
        table.add_column(no_wrap=True, justify="right", width=width)
    if names:
        for width in sheet.beside_widths():
            table.add_column(no_wrap=True, width=width)
    return table


def _say_all(console: Console, notes: Iterable[str]) -> None:
    for note in notes:
        _say(console, note, indent=4)


def _show_verdict(verdict: Plausibility, console: Console) -> None:
    _say(console, f"plausibility: {verdict.headline}", "bold")
    for line in _prose(verdict):
        _say(console, line, indent=2)
    for command in verdict.commands:  # always on one line, so that it can be copied
        console.print(Text(plain_text.as_line(f"  next: {command}")), soft_wrap=True)


def _prose(verdict: Plausibility) -> Iterator[str]:
    yield from (*verdict.seen, *verdict.means)
    yield f"only a cut shows {verdict.only_a_cut}"


def _say(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    """Print a wrapped sentence. Further lines are indented by two more columns."""
    width, first, then = min(console.width, _PROSE_WIDTH_MAX), " " * indent, " " * (indent + 2)
    for line in wrapped(plain_text.as_line(text), width, first=first, then=then):
        console.print(Text(line, style=style), soft_wrap=True)
