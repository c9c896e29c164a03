"""A comparison on one screen of 80 by 24: the answer, its caveat and cause, then each result with its proof.

The tables have all cells (`--full`); the screen has those that decide. This module only renders.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from durability import plain_text
from durability.bench import figures
from durability.bench.catalogue import (
    CLASSIC,
    COMMIT_CONTROL,
    FSYNC,
    HEADLINE,
    HELD_COMMIT,
    HELD_WRITERS,
    WRITE_CONTROL,
)
from durability.bench.compare import Comparison, Row, deciding_row
from durability.bench.decision.proof import ProofWord
from durability.units import counted
from durability_client.bench.report.one_screen import bar, said, wrapped
from durability_client.system.terminal import SCREEN_HEIGHT_MAX, SCREEN_WIDTH_MAX, cut_to

_STYLES: dict[ProofWord, str] = {"proven": "green", "too few cuts": "bold yellow", "lost data": "bold red"}
_LABEL_MAX = 24  # longest name of a result in a table
_NAMES = {  # the cells that decide, in plain words
    HEADLINE.name: "1 writer",
    HELD_COMMIT.name: "1 writer, at the end of the held load",
    "4k-random-fdatasync-16jobs-overwritten": "16 writers",
    FSYNC.name: "1 writer, fsync",
    "64k-random-fsync-16jobs-overwritten": "16 writers of 64 KiB",
    HELD_WRITERS.name: "16 writers of 64 KiB, at the end of the held load",
    WRITE_CONTROL.name: "writes without a sync (W)",
    COMMIT_CONTROL.name: "write and sync (C)",
}


def show_comparison_screen(comparison: Comparison, console: Console) -> None:
    """Print the answer, different conditions, refusals, a row for each result, the deciding cells with bars,
    and how to see the rest.

    Parts without room are left out and named: first the cause, then the plausibilities, then the complete
    texts about cuts.
    """
    width = min(console.width, SCREEN_WIDTH_MAX)
    above, left_out, below = _fitted(comparison, width)
    for line in above:
        console.print(line, soft_wrap=True)
    warnings = [cut_to(f"warning {one}", width) for one in comparison.warnings]
    room = SCREEN_HEIGHT_MAX - len(above) - len(below) - 2
    lines_each = 1 + len(comparison.labels)
    cells = [*_cells(comparison, width)][: max(0, room - bool(warnings)) // lines_each * lines_each]
    told = warnings[: max(0, room + 1 if not cells else room - len(cells))]
    more = len(warnings) - len(told)
    hidden = f"; {counted(more, 'more warning' if told else 'warning')}" if more else ""
    whole = ", ".join((f"Whole table ({counted(len(comparison.rows), 'cell')})", *left_out))
    for line in (*below, *([Text(), *cells] if cells else [])):
        console.print(line, soft_wrap=True)
    for warning in told:
        console.print(Text(warning, style="yellow"), soft_wrap=True)
    console.print(Text(f"{whole}: add --full{hidden}", style="dim"), soft_wrap=True)


def _fitted(comparison: Comparison, width: int) -> tuple[list[Text], list[str], list[Text]]:
    """The lines above the results' rows, the names of parts that were left out, and the lines from the rows
    on. Uses the first variant that leaves room for a warning and a last line, else the shortest."""
    refused = [
        line for refusal in comparison.refusals for line in said("", "", f"not comparable: {refusal}", width)
    ]
    shown, left_out, whole = comparison, list[str](), True
    while True:
        above = [*_answer(shown, width, conditions=True), *refused]
        below = [Text(), *_results(comparison, width, whole=whole)]
        if len(above) + len(below) + 1 + bool(comparison.warnings) <= SCREEN_HEIGHT_MAX:
            break
        if any(shown.causes):
            shown, left_out = replace(shown, causes=()), ["cause"]
        elif shown.caveat != shown.short_caveat:
            shown, left_out = replace(shown, caveat=shown.short_caveat), [*left_out, "plausibilities"]
        elif whole:
            whole = False
        else:
            break
    return above, left_out, below


def show_answer(comparison: Comparison, console: Console) -> None:
    """Print the answer, results whose rate did not last, the caveat and the cause."""
    for line in _answer(comparison, min(console.width, SCREEN_WIDTH_MAX)):
        console.print(line, soft_wrap=True)


def _answer(comparison: Comparison, width: int, *, conditions: bool = False) -> Iterator[Text]:
    if not comparison.rows:
        return
    for text in filter(None, (*comparison.answers, comparison.choice)):
        for line in said("answer", "", text, width):
            line.stylize("bold", 8)
            yield line
    if conditions and comparison.conditions:
        unlike = f"measured under different conditions: {', '.join(comparison.conditions)}"
        for line in said("but", "", unlike, width):
            line.stylize("yellow", 8)
            yield line
    for text in comparison.steadiness:
        for line in said("steady?", "", text, width):
            line.stylize("yellow", 8)
            yield line
    if comparison.caveat:
        for line in said("caveat", "", comparison.caveat, width):
            line.stylize("yellow", 8)
            yield line
    for text in filter(None, comparison.causes):
        yield from said("cause", "", text, width)


def _results(comparison: Comparison, width: int, *, whole: bool) -> Iterator[Text]:
    """Each result with the figures of the deciding cell, and the verdicts of cuts on its drive. If the row
    has no room for these, they get lines of their own with `whole`, else they are cut."""
    row = deciding_row(comparison.rows)
    head = ("", "commits/s", "MB/s", "p99", "ratio", "cuts")
    table = [head]
    for number, label in enumerate(comparison.labels):
        cuts = figures.cuts_in_words(comparison.proofs[number])
        table.append((cut_to(label, _LABEL_MAX), *figures.decided(row, number), plain_text.as_line(cuts)))
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    for number, words in enumerate(table):
        *cells, cuts = words
        start = "  ".join(
            set_cell_size(word, size) if not place else word.rjust(size)
            for place, (word, size) in enumerate(zip(cells, widths, strict=False))
        )
        proof = comparison.proofs[number - 1] if number else None
        style = "dim" if not number else _STYLES[proof.word] if proof is not None else "bold yellow"
        has_room = cell_len(f"{start}  {cuts}") <= width
        line = Text(start if whole and not has_room else cut_to(f"{start}  {cuts}", width))
        line.stylize(style, len(start) + 2 if number else 0)
        yield line
        if whole and not has_room:
            for part in wrapped(cuts, width, first="  ", then="  "):
                yield Text(part, style=style)
    if comparison.other_cell:
        yield Text(cut_to(f"({comparison.other_cell})", width))


def _classic(comparison: Comparison) -> Iterator[tuple[str, Row]]:
    """The classic rows that all results have, with their usual labels."""
    rows = {row.cell.name: row for row in comparison.rows if row.engine == "fio"}
    for one in CLASSIC:
        for cell, doing in ((one.read, "read"), (one.write, "write without a sync")):
            if cell.name in rows:
                yield f"{one.label} {doing} (fio)", rows[cell.name]


def _cells(comparison: Comparison, width: int) -> Iterator[Text]:
    """The deciding cells, with a bar for each result."""
    known = [
        row for name in _NAMES for row in comparison.rows if row.cell.name == name and row.basis == "rate"
    ]
    named = [(_NAMES[row.cell.name], row) for row in known if row.engine == "durability"]
    named[1:1] = _classic(comparison)
    shown = [cut_to(label, _LABEL_MAX) for label in comparison.labels]
    label_width = max(map(cell_len, shown), default=0)
    for name, row in named:
        held = row.cell.name in (HELD_COMMIT.name, HELD_WRITERS.name)
        rates = [one.end_rate if held else one.rate.median if one.rate else 0.0 for one in row.summaries]
        yield Text(name, style="bold")
        for label, rate, summary in zip(shown, rates, row.summaries, strict=True):
            moved = figures.count(rate * row.cell.block_bytes / 1e6) if held else figures.megabytes(summary)
            words = f"{figures.count(rate)}/s, {moved} MB/s"
            room = width - label_width - len(words) - 6
            drawn = bar(rate / max(rates), min(room, 30)) if max(rates) else ""
            start = f"  {set_cell_size(label, label_width)}  "
            yield Text.assemble(start, (drawn, "cyan"), f" {words}")
