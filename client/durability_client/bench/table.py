"""A result as a page for people: one row per cell, then what the rows mean. Rendering only.

Figures come from the summaries of the core. A percentile that the sample does not support is a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rich.console import Console
from rich.table import Table

from durability.bench.cautions import cautions
from durability.bench.cells import GROUPS
from durability.bench.compare import Comparison
from durability.bench.inflation import inflations
from durability.bench.intervals import Ratio, Spread, paired_ratio
from durability.bench.plausibility import Plausibility, plausibility
from durability.bench.result import Result
from durability.bench.summary import CellSummary, PerOperation, summarise
from durability.units import duration

_HEADINGS = ("per second", "range", "p50", "p99", "p99.9", "sync p50", "flushes", "KiB", "CPU us", "")


def show_result(result: Result, console: Console) -> None:
    """The figures of all cells, fio's beside, then the verdict and the warnings."""
    table = Table(box=None, pad_edge=False)
    table.add_column("cell", no_wrap=True)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    summaries = [summarise(one) for one in result.cells]
    for group in GROUPS:
        rows = [one for one in summaries if one.cell.group == group]
        if rows:
            table.add_row(f"[{group}]", *[""] * len(_HEADINGS), style="bold")
            for one in rows:
                table.add_row(_name(one), *_figures(one))
    console.print(table, markup=False, highlight=False)
    for line in (*_against_fio(result), *_verdict(plausibility(result)), *_rest(result)):
        console.print(line, markup=False, highlight=False)


def show_comparison(comparison: Comparison, console: Console) -> None:
    """Why the results cannot be compared, or cell by cell how they do."""
    for refusal in comparison.refusals:
        console.print(f"cannot be compared: {refusal}", markup=False, highlight=False)
    for difference in (*comparison.subject, *comparison.surroundings):
        values = ", ".join(map(str, difference.values))
        console.print(f"{difference.what}: {values}", markup=False, highlight=False)
    if comparison.rows:
        table = Table(box=None, pad_edge=False)
        for heading in ("cell", *comparison.labels, "against the first"):
            table.add_column(heading)
        for row in comparison.rows:
            rates = [_median(summary.rate) for summary in row.summaries]
            table.add_row(row.cell.name, *rates, "; ".join(one.text for one in row.against))
        console.print(table, markup=False, highlight=False)
    for warning in comparison.warnings:
        console.print(f"warning: {warning}", markup=False, highlight=False)


def _name(one: CellSummary) -> str:
    return f"  {one.cell.name}" + (" (fio)" if one.engine == "fio" else "")


def _figures(one: CellSummary) -> Iterator[str]:
    if one.rate is None:
        yield from ("-",) * (len(_HEADINGS) - 1)
        yield one.note
        return
    yield _median(one.rate)
    yield f"{one.rate.least:,.0f}-{one.rate.most:,.0f}"
    for time_ns in (one.commit.p50, one.commit.p99, one.commit.p99_9, one.sync.p50):
        yield "-" if time_ns is None else duration(time_ns)
    yield _sum(one.disks, lambda disk: disk.flushes)
    yield _sum(one.disks, lambda disk: disk.write_kib)
    yield "-" if one.cpu_us is None else f"{one.cpu_us:.1f}"
    yield one.note or (one.steady.word if one.steady.word == "NOT STEADY" else "")


def _median(rate: Spread | None) -> str:
    return "-" if rate is None else f"{rate.median:,.0f}"


def _sum(disks: Iterable[PerOperation], of: Callable[[PerOperation], float | None]) -> str:
    known = [count for disk in disks if (count := of(disk)) is not None]
    return f"{sum(known):.2f}" if known else "-"


def _against_fio(result: Result) -> Iterator[str]:
    for one in result.cells:
        if one.engine == "fio" and one.rounds:
            ours = [each.rate for each in result.rounds_of(one.cell.name)]
            ratio = paired_ratio(ours, [each.rate for each in one.rounds])
            if ratio is not None:
                yield f"{one.cell.name}: {_ratio(ratio)} of {one.engine_version}, round by round"


def _ratio(ratio: Ratio) -> str:
    interval = "" if ratio.low is None else f" ({ratio.low:.3f} to {ratio.high:.3f})"
    return f"{ratio.value:.3f}{interval}"


def _verdict(verdict: Plausibility) -> Iterator[str]:
    yield ""
    yield f"plausibility: {verdict.headline}"
    for line in (*verdict.seen, *verdict.means, verdict.only_a_cut):
        yield f"  {line}"
    yield from (f"  next: {command}" for command in verdict.commands)


def _rest(result: Result) -> Iterator[str]:
    yield from (f"data: {one.text}" for one in inflations(result.cells) if one.inflated)
    for warning in (*result.facts.warnings, *cautions(result)):
        yield f"warning: {warning.text} [{warning.code}]"
