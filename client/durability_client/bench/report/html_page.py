"""Pages: a result, or a comparison, as one self-contained HTML file.

A page loads no script, font, picture or style, and forbids the browser to load any. The templates escape all
text, because anyone can choose a drive's model, a path or a label. Figures are the same as in the terminal's
tables. The page says which properties only a cut can show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from jinja2 import Environment, Template

from durability.bench import catalogue, figures
from durability.bench.cells import GROUPS
from durability.bench.compare import Comparison, Row
from durability.bench.decision.block_size import best_sizes
from durability.bench.decision.bottom_line import bottom_line, megabytes
from durability.bench.decision.classic import classic_rows, classic_version, sync_cost
from durability.bench.filled import filled
from durability.bench.inflation import inflations
from durability.bench.intervals import Ratio
from durability.bench.plausibility import control_times, plausibility
from durability.bench.result import Result
from durability.bench.result_warnings import result_warnings
from durability.bench.summary import CellSummary, merged, summarise
from durability.units import ratio_text
from durability_client.bench.report import charts, circumstances
from durability_client.bench.report.charts import Figure
from durability_client.bench.report.small_charts import Dots, key_svg, spark_svg, standing_svg, time_figures
from durability_client.page_templates import page_templates

_OVER_TIME = "commit"  # group with large pictures of the rate over time; others have small ones in the table


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cells under one heading."""

    name: str
    rows: tuple[CellSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioRow:
    """A cell of a comparison as a row."""

    name: str
    rates: tuple[str, ...]  # or times, see `compare.Row.basis`
    intervals: tuple[str, ...]
    moved: tuple[str, ...]  # MB/s
    svg: str  # a dot for each result but the first
    texts: tuple[str, ...]  # the ratio of each result but the first


def result_page(result: Result) -> str:
    """The page of one result."""
    summaries = figures.side_by_side(map(summarise, result.cells))
    probe = inflations(result.cells)
    dots = Dots.over(ratio for one in probe for ratio in (one.rate, one.written))
    line = bottom_line(result)
    return _template("result.html").render(
        result=result,
        line=line,
        speeds=tuple(one for one in (line.one, line.many) if one is not None),
        standing="" if line.rate is None else standing_svg(line.rate, line.standing),
        classic=(classic := classic_rows(result)),
        classic_version=classic_version(result),
        sync_cost=sync_cost(classic),
        best_sizes=best_sizes(result),
        verdict=plausibility(result),
        warnings=(*result.facts.warnings, *result_warnings(result)),
        headline=_headline(summaries),
        memory=next((one for one in summaries if one.cell.place == "memory"), None),
        figures=(*charts.latency_figures(result), *charts.curve_figures(summaries)),
        ladder=tuple(charts.ladder_figures(result)),
        controls=control_times(result),
        fill=filled(result),
        held=tuple(
            replace(figure, caption=figures.held(one))
            for one, figure in zip(result.held(), time_figures(result.held()), strict=True)
        ),
        over_time=tuple(time_figures(one for one in result.cells if one.cell.group == _OVER_TIME)),
        probe=tuple((one, dots.row_svg((one.rate, one.written), one.text)) for one in probe),
        dots=dots,
        groups=_groups(summaries),
        against_fio=tuple(figures.against_fio(result)),
        sections=circumstances.sections(result),
        moments=circumstances.before_and_after(result),
        order=tuple(_order(result)),
    )


def comparison_page(comparison: Comparison, results: Sequence[Result]) -> str:
    """The page of a comparison of `results`, in the order of its labels."""
    dots = Dots.over(one.ratio for row in comparison.rows for one in row.against)
    return _template("comparison.html").render(
        comparison=comparison,
        dots=dots,
        tiles=figures.tiles(comparison),
        groups=tuple(
            (name, tuple(_against(row, dots) for row in comparison.rows if row.cell.group == name))
            for name in GROUPS
            if any(row.cell.group == name for row in comparison.rows)
        ),
        bases={row.basis for row in comparison.rows},
        figures=tuple(_overlaid(comparison, results)),
        results=tuple(zip(comparison.labels, results, comparison.plausibilities, strict=True)),
    )


def _headline(summaries: Sequence[CellSummary]) -> CellSummary | None:
    """The cell that represents the result: the headline cell, else the first cell with a rate."""
    measured = [one for one in summaries if one.rate is not None]
    named = (one for one in measured if one.cell.name == catalogue.HEADLINE.name)
    return next(named, measured[0] if measured else None)


def _groups(summaries: Sequence[CellSummary]) -> tuple[Group, ...]:
    groups = (
        Group(name=name, rows=tuple(one for one in summaries if one.cell.group == name)) for name in GROUPS
    )
    return tuple(group for group in groups if group.rows)


def _order(result: Result) -> Iterator[tuple[str, str]]:
    """The start time and cell of each round, in time order."""
    made = [iter(one.rounds) for one in result.cells]
    for index in result.order:
        yield f"{next(made[index]).started_s:.1f}", result.cells[index].cell.name


def _against(row: Row, dots: Dots) -> RatioRow:
    compared = [figures.compared(row, number) for number in range(len(row.summaries))]
    return RatioRow(
        name=figures.name_of(row.summaries[0]),
        rates=tuple(figure for figure, _ in compared),
        intervals=tuple(beside for _, beside in compared),
        moved=tuple(f"{figures.megabytes(one)} MB/s" for one in row.summaries),
        svg=dots.row_svg([one.ratio for one in row.against], "; ".join(one.text for one in row.against)),
        texts=tuple(_in_short(one.ratio, one.text) for one in row.against),
    )


def _in_short(ratio: Ratio | None, text: str) -> str:
    """The ratio with its interval, or a short reason if there is none. The page's head has the full
    reason."""
    if ratio is None:
        return text.partition(":")[0]
    if ratio.low is None or ratio.high is None:
        return f"{ratio_text(ratio.value)}, too few rounds"
    interval = f"({ratio_text(ratio.low)}{figures.DASH}{ratio_text(ratio.high)})"
    return f"{ratio_text(ratio.value)} {interval}" if ratio.shows_difference else f"no difference {interval}"


def _overlaid(comparison: Comparison, results: Sequence[Result]) -> Iterator[Figure]:
    """Latencies of the most important cells, with all results in one picture."""
    compared = {row.cell.name for row in comparison.rows if row.engine == "durability"}
    chosen = [name for name in charts.COMMITS if name in compared]
    chosen = chosen or [row.cell.name for row in comparison.rows if row.cell.name in compared][:4]
    for name in chosen:
        curves = [
            (label, merged(one.commit_ns for one in result.rounds_of(name)))
            for label, result in zip(comparison.labels, results, strict=True)
        ]
        if all(len(histogram) for _, histogram in curves):
            caption = "Latency of a commit, by percentile."
            yield charts.latency_figure(name, curves, caption, range(len(curves)))


@cache
def _templates() -> Environment:
    environment = page_templates("durability_client.bench.report")
    environment.filters["spark"] = spark_svg
    environment.globals.update(formatting=figures, megabytes=megabytes, key=key_svg)
    return environment


def _template(name: str) -> Template:
    return _templates().get_template(name)
