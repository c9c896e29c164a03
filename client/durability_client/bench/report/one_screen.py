"""A result on one screen of 80 by 24: the four lines of the bottom line, with small pictures.

The tables have all figures (`--full`); the screen has those that decide. Colours are used only on a terminal.
This module only renders.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from durability import plain_text
from durability.bench import figures
from durability.bench.catalogue import HEADLINE
from durability.bench.cells import differing
from durability.bench.decision.block_size import best_sizes
from durability.bench.decision.bottom_line import BottomLine, Speed, bottom_line, megabytes
from durability.bench.decision.classic import classic_rows, sync_cost
from durability.bench.decision.published_drives import KINDS
from durability.bench.result import Result
from durability.bench.result_warnings import result_warnings
from durability.bench.summary import CellSummary, summarise
from durability.units import counted, format_size
from durability_client.bench.report import small_charts
from durability_client.system.terminal import SCREEN_HEIGHT_MAX, SCREEN_WIDTH_MAX, cut_to

LABEL = 8  # width of the labels on the left
_EMPTY = 3  # empty lines between parts of the screen, which are removed first if the screen is full
_SPARK_BARS = 24
_SPARK_BARS_MIN = 8  # on a narrow screen, which has less room for them
STYLES = {
    "yes": "green",
    "NOT STEADY": "bold red",
    "looks honest": "green",
    "suspicious": "bold red",
    "not shown": "bold yellow",
}
Point: TypeAlias = tuple[str, float, str]  # of a curve: name, value, and value as text
_DECADES = (10.0, 1e5)  # commits per second on the axis of published drives


def show_screen(result: Result, console: Console, *, joined: bool = True) -> None:
    """Print title, four lines, classic rates, pictures, warnings, and how to see all figures.

    The output has at most `SCREEN_HEIGHT_MAX` lines, but always the four lines and the table of classic
    rates. `joined`: this machine has a server, so that the proposed command works.
    """
    found, width = bottom_line(result), min(console.width, SCREEN_WIDTH_MAX)
    title = Text(cut_to(_title(result), width), style="bold")
    four, rates = list(_four_lines(found, width, joined=joined)), list(_classic_table(result))
    room = SCREEN_HEIGHT_MAX - len([title, *four, *rates]) - 1  # 1: the last line
    cost = list(_cost(result, width))
    cost = cost if len(cost) <= room else []  # can be left out, since the table has both rates
    classic, room = [*rates, *cost], room - len(cost)
    # Disturbances in the line `steady` are not repeated.
    warnings = [
        one.text
        for one in (*result_warnings(result), *result.facts.warnings)
        if one.text not in found.disturbances
    ]
    written = [[*said("warning", "", text, width)] for text in warnings]
    first = written[0] if written and len(written[0]) <= room else []
    below = _below(result, found, width, room - _EMPTY - len(first))
    told = _whole(written, max(len(first), room - _EMPTY - len(below.lines)))
    missing = len(written) - len(told)
    left_out = [counted(missing, "more warning" if told else "warning")] if missing else []
    left_out += ["a best size"] if below.lacks_size else []
    hidden = f"; {', '.join(left_out)}" if left_out else ""
    last = Text(f"All tables: durability bench --show FILE --full{hidden}", style="dim")
    pictures = [*classic, *below.lines]
    gap = [Text()] if pictures else []
    lines = [line for warning in told for line in warning]
    for line in _fitted([title, Text(), *four, Text(), *pictures, *gap, *lines, last]):
        console.print(line, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class _Below:
    """The pictures that fit, and whether a sentence about the best size was left out."""

    lines: tuple[Text, ...]
    lacks_size: bool


def _below(result: Result, found: BottomLine, width: int, room: int) -> _Below:
    """The parts that fit in `room` lines. Sentences about the best size have priority over curves, and curves
    over the published kinds of drives, which are in the line `place`, too. A sentence is never cut."""
    curves, standing = _curves(result, width), list(_standing(found, width))
    sizes = [list(said("", "", best.text, width)) for best in best_sizes(result)]
    fitting = [line for sentence in _whole(sizes, room) for line in sentence]
    kept = curves.kept(max(0, room - len(fitting)))
    if len(standing) <= room - len(fitting) - len(kept.all):
        kept = replace(kept, before=(*standing, *kept.before))
    lines = (*kept.before, *fitting, *kept.after)
    return _Below(lines=lines, lacks_size=len(fitting) < sum(map(len, sizes)))


def _whole(sentences: Sequence[list[Text]], room: int) -> list[list[Text]]:
    """The sentences that fit in `room` lines together, each in full, in their order. A sentence that does not
    fit is left out, and a shorter one after it may fit."""
    kept: list[list[Text]] = []
    for sentence in sentences:
        if len(sentence) <= room:
            kept.append(sentence)
            room -= len(sentence)
    return kept


def _fitted(lines: list[Text]) -> list[Text]:
    """The lines, without as many empty ones as necessary to fit the screen; the last are removed first."""
    while len(lines) > SCREEN_HEIGHT_MAX and (empty := [at for at, line in enumerate(lines) if not line]):
        lines = [line for at, line in enumerate(lines) if at != empty[-1]]
    return lines


def show_lines(result: Result, console: Console, *, joined: bool = True) -> None:
    """Print only the four lines of the bottom line."""
    for line in _four_lines(bottom_line(result), min(console.width, SCREEN_WIDTH_MAX), joined=joined):
        console.print(line, soft_wrap=True)


def _four_lines(found: BottomLine, width: int, *, joined: bool) -> Iterator[Text]:
    for number, line in enumerate(_speeds(found, width)):
        yield labelled("speed" if not number else "", line)
    yield from said("steady", found.steady_word, found.steady_reason, width)
    yield from said("honest?", found.honesty, found.honesty_reason, width)
    # Always on one line, so that it can be copied.
    for words in next_lines(found.command, joined=joined):
        yield labelled("", Text(words))
    yield from said("place", "", found.standing, width)


def next_lines(command: str, *, joined: bool) -> Iterator[str]:
    """The next commands, one per line. Without a server, the first command sets one up."""
    if not joined:
        yield "next: durability serve  # on a machine that stays up; type its line here"
    yield plain_text.as_line(f"{'next' if joined else 'then'}: {command}")


def _title(result: Result) -> str:
    drives = ", ".join(
        f"{drive.model or drive.name} {format_size(drive.size_bytes)}" for drive in result.facts.drives
    )
    where = result.facts.file_system.type if result.facts.file_system else result.facts.kind
    mode = result.mode + (f" {result.profile}" if result.profile else "")
    parts = (drives or "unknown drive", f"{where} at {result.facts.path}", mode)
    partial = () if result.complete else ("partial result",)
    return plain_text.as_line(" · ".join((*partial, *parts, result.created[:10])))


def _speeds(found: BottomLine, width: int) -> Iterator[Text]:
    speeds = [one for one in (found.one, found.many) if one is not None]
    if not speeds:
        yield Text("no cell that commits was measured")
        return
    rows = [_speed_words(one) for one in speeds]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    highest = max(one.rate for one in speeds)
    room = width - LABEL - sum(widths) - 2 * len(widths) - 1
    for one, row in zip(speeds, rows, strict=True):
        line = Text("  ".join(word.rjust(size) for word, size in zip(row, widths, strict=True)))
        drawn = bar(one.rate / highest, max(0, min(room, 24))) if highest else ""  # no commits
        line.append("  " + drawn, style="cyan")
        yield line
        if one.other_cell:  # on a separate line, since most names do not fit in the row
            yield Text(cut_to(f"({one.other_cell})", width - LABEL))


def _speed_words(one: Speed) -> tuple[str, str, str, str]:
    p99 = figures.time(one.p99_ns)
    return (
        counted(one.summary.cell.jobs, "writer"),
        f"{figures.count(one.rate)} commits/s",
        megabytes(one.bytes_per_s),
        f"p99 {p99}",
    )


def said(label: str, word: str, reason: str, width: int) -> Iterator[Text]:
    """A sentence in lines beside its label. `word`: a first word, styled by its meaning."""
    text = plain_text.as_line(f"{word}: {reason}" if word else reason)
    for number, row in enumerate(wrapped(text, width - LABEL)):
        line = Text(row)
        if number == 0 and word:
            line.stylize(STYLES.get(word, ""), 0, len(word))
        yield labelled(label if not number else "", line)


def wrapped(text: str, width: int, *, first: str = "", then: str = "") -> Iterator[str]:
    """`text` in lines of `width` columns, broken between words. A word that is longer than a line, such as a
    path, is broken, too. The first line begins with `first`, the others with `then`."""
    start, line = first, ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and cell_len(start + longer) > width:
            yield start + line.rstrip()
            start, longer = then, word
        if cell_len(start + longer) > width:
            *whole, longer = chop_cells(longer, max(1, width - cell_len(start)))
            for piece in whole:
                yield start + piece
                start = then
        line = longer
    if line:
        yield start + line.rstrip()


def labelled(label: str, line: Text) -> Text:
    """A line with its label on the left."""
    return Text.assemble((f"{label:<{LABEL}}", "bold"), line)


def _standing(found: BottomLine, width: int) -> Iterator[Text]:
    """The published kinds of drives on one axis of commits per second, and this target below them."""
    if found.rate is None:
        return
    names, ranges = [kind.short for kind in KINDS], [f"{kind.low:,.0f}-{kind.high:,.0f}" for kind in KINDS]
    left = LABEL + max(map(len, names)) + 1
    room = width - left - max(map(len, ranges)) - 2
    for kind, name, written in zip(KINDS, names, ranges, strict=True):
        start, end = _at(kind.low, room), _at(kind.high, room)
        inside = kind.holds(found.rate)
        line = Text(" " * LABEL + f"{name:<{left - LABEL}}" + " " * start)
        line.append("█" * max(1, end - start + 1), style="cyan" if inside else "dim")
        line.append(" " * (room - max(end, start) - 1) + "  " + written, style="dim")
        yield line
    at = _at(found.rate, room)
    words = f" {figures.count(found.rate)}"
    line = Text(" " * LABEL + f"{'this target':<{left - LABEL}}" + " " * at)
    line.append("▲" + words if at + len(words) < room else "▲", style="bold")
    yield line


def _at(rate: float, room: int) -> int:
    """The column of `rate` on a logarithmic axis with `room` columns."""
    low, high = (math.log10(end) for end in _DECADES)
    share = (math.log10(max(rate, 1e-3)) - low) / (high - low)
    return round(min(1.0, max(0.0, share)) * (room - 1))


@dataclass(frozen=True, slots=True)
class _Curves:
    """Curves around the sentences about the best size: `before` them by writers and by block size, `after`
    them over time."""

    before: tuple[Text, ...]
    after: tuple[Text, ...]

    @property
    def all(self) -> tuple[Text, ...]:
        """All curves."""
        return (*self.before, *self.after)

    def kept(self, room: int) -> _Curves:
        """The first curves, as many as fit in `room` lines."""
        return _Curves(self.before[:room], self.after[: max(0, room - len(self.before))])


def _curves(result: Result, width: int) -> _Curves:
    """Rate by writers, bandwidth by block size, and rate over time, each as a spark line. A curve has the
    headline cell and cells that differ from it in one parameter."""
    cells = [summarise(one) for one in result.cells if one.engine == "durability" and one.rounds]
    headline = [one for one in cells if one.cell.name == HEADLINE.name]
    held = [one for one in cells if one.cell.group == "sustained"][:1]
    jobs = [one for one in cells if differing((one.cell, HEADLINE)) == {"jobs"}]
    jobs.sort(key=lambda one: one.cell.jobs)
    blocks = [one for one in cells if differing((one.cell, HEADLINE)) == {"block_bytes"}]
    blocks.sort(key=lambda one: one.cell.block_bytes)
    before, after = [], []
    if jobs and headline:
        writers = (*headline, *jobs)
        ends = f"commits/s, {figures.megabytes(writers[0])} to {figures.megabytes(writers[-1])} MB/s"
        points = [_by_writers(one) for one in writers]
        before.append(_curve("writers", points, ends, width))
    if blocks and headline:
        points = [_by_block(one) for one in (*headline, *blocks)]
        before.append(_curve("block", points, "by size of a commit", width))
    commits = [one for one in cells if one.cell.group == "commit"]
    for one in held or headline or commits[:1]:
        words = _over_time(one)
        bars = min(_SPARK_BARS, max(_SPARK_BARS_MIN, width - LABEL - len(f"  {words}")))
        if spark := small_charts.spark(one.series, bars):
            after.append(labelled("time", Text.assemble((spark, "cyan"), f"  {words}")))
    return _Curves(tuple(before), tuple(after))


def _over_time(one: CellSummary) -> str:
    """The description of the rate over time, with MB/s."""
    cell, seconds = one.cell, len(one.series) * one.bin_s
    what = "commits" if cell.sync != "none" else "writes"
    size = "" if cell.block_bytes == HEADLINE.block_bytes else f" of {format_size(cell.block_bytes)}"
    moved = "" if one.bytes_per_s is None else f", {megabytes(one.bytes_per_s.median)}"
    return f"{what}/s of {counted(cell.jobs, 'writer')}{size} over {seconds:,.0f} s{moved}"


def classic_lines(result: Result, width: int) -> Iterator[Text]:
    """The classic rates, each beside the rate with syncs, and the cost of a sync. Empty without such
    rates."""
    yield from _classic_table(result)
    yield from _cost(result, width)


def _classic_table(result: Result) -> Iterator[Text]:
    rows = classic_rows(result)
    if not rows:
        return
    table: list[tuple[str, ...]] = [figures.CLASSIC_HEADINGS]
    table += [(row.label, *figures.classic(row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for number, (label, *words) in enumerate(table):
        line = f"{label:<{widths[0]}}"
        for word, size in zip(words, widths[1:], strict=True):
            line += "  " + word.rjust(size)
        yield Text(line, style="" if number else "dim")


def _cost(result: Result, width: int) -> Iterator[Text]:
    if cost := sync_cost(classic_rows(result)):
        yield from said("cost", "", cost, width)


def _by_writers(one: CellSummary) -> Point:
    rate = 0.0 if one.rate is None else one.rate.median
    return f"{one.cell.jobs}", rate, figures.rate(one.rate)


def _by_block(one: CellSummary) -> Point:
    moved = 0.0 if one.bytes_per_s is None else one.bytes_per_s.median
    return format_size(one.cell.block_bytes), moved, megabytes(moved)


def _curve(label: str, points: Sequence[Point], unit: str, width: int) -> Text:
    """The line of a curve, with the text of its ends only if there is no room for all points."""
    spark = small_charts.spark([value for _, value, _ in points], len(points))
    words = "  ".join(f"{key}: {written}" for key, _, written in points)
    room = width - LABEL - len(spark) - 2
    if len(f"{words}  {unit}") > room:
        (first, _, low), (last, _, high) = points[0], points[-1]
        words = f"{first}: {low} … {last}: {high}"
    return labelled(label, Text.assemble((spark, "cyan"), f"  {words}  {unit}"))


def bar(share: float, room: int) -> str:
    """A bar of `share` of `room` columns, at least one column."""
    return "█" * max(1, round(share * room)) if room else ""
