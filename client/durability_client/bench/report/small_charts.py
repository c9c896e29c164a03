"""Small pictures for the rows of a table, or one below the other: choice of data, and drawing.

They show the rate over time, round after round, and ratios as dots with intervals on a common axis with a
mark at 1. Ratios that the comparison does not give are not drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from durability import plain_text
from durability.bench import figures
from durability.bench.decision.published_drives import KINDS
from durability.bench.intervals import Ratio
from durability.bench.measurement import Round
from durability.bench.result import CellRounds
from durability.bench.steady_state import steady
from durability.bench.summary import CellSummary
from durability.units import ratio_text
from durability_client.bench.report.charts import Figure
from durability_client.bench.report.scales import Scale, linear_ticks
from durability_client.bench.report.svg import SERIES, Anchor, Drawing, Place
from durability_client.text_tables import bar

_WIDTH, _HEIGHT = 520.0, 150.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 8.0, 12.0, 36.0
_SPARK_WIDTH, _SPARK_HEIGHT = 80.0, 18.0
_DOTS_WIDTH, _DOTS_ROW, _DOTS_SIDE = 220.0, 18.0, 16.0
_RATIO_TICKS = (1.0, 0.5, 2.0, 0.1, 10.0, 0.2, 5.0, 0.8, 1.25, 0.01, 100.0, 0.001, 1000.0)
_TICK_GAP = 30.0
_KIND_ROW, _KIND_LEFT = 22.0, 108.0  # in the picture of published drives
_COMMITS = (20.0, 100_000.0)  # range of its axis, in commits per second
_COMMIT_TICKS = (100, 1_000, 10_000, 100_000)
_LANES_MAX = 6  # most rounds whose time is written below
_GAP, _GAPS_MAX = 0.02, 0.3  # share of the width for one gap between rounds, and for all gaps


def spark(series: Sequence[float], bars: int = figures.SPARK_BARS) -> str:
    """`series` as text bars, on a scale from 0 to its maximum."""
    means = figures.binned(series, bars)
    highest = max(means, default=0.0)
    return "".join(bar(mean / highest) for mean in means) if highest else ""


def spark_svg(summary: CellSummary) -> str:
    """The rate over time for a table's cell; "" if there is none."""
    means = figures.binned(summary.series)
    highest = max(means, default=0.0)
    if not highest:
        return ""
    drawing = Drawing(_SPARK_WIDTH, _SPARK_HEIGHT)
    step = _SPARK_WIDTH / len(means)
    for number, mean in enumerate(means):
        height = round(max(1.0, mean / highest * _SPARK_HEIGHT), 1)
        drawing.box((round(number * step, 1), _SPARK_HEIGHT - height), round(step - 1, 1), height, "bar")
    lowest = min(means)
    return drawing.finish(
        "rate over time", f"{figures.count(lowest)} to {figures.count(highest)} per second", "spark"
    )


def key_svg(number: int, label: str) -> str:
    """The mark of series `number` (from 0), for a key."""
    drawing = Drawing(14, 12)
    drawing.mark((7, 6), number)
    return drawing.finish("mark", label, "key")


def standing_svg(rate: float, standing: str) -> str:
    """The published kinds of drives on one axis of commits per second, with `rate` marked across them."""
    low, high = _COMMITS
    drawing = Drawing(_WIDTH, _KIND_ROW * (len(KINDS) + 1) + 14)
    x = Scale(low=low, high=high, start=_KIND_LEFT, end=_WIDTH - 30, log=True)
    bottom = _KIND_ROW * len(KINDS) + 4
    for tick in _COMMIT_TICKS:
        drawing.line((x.at(tick), 0), (x.at(tick), bottom), "grid")
        drawing.text((x.at(tick), bottom + 14), f"{tick:,}", "tick", "middle")
    for number, kind in enumerate(KINDS):
        top, start = number * _KIND_ROW + 4, x.at(kind.low)
        drawing.text((_KIND_LEFT - 8, top + 12), kind.short, "label", "end")
        inside = kind.holds(rate)
        drawing.box((start, top), x.at(kind.high) - start, _KIND_ROW - 8, "bar" if inside else "band")
    at = x.at(min(high, max(low, rate)))
    drawing.line((at, 0), (at, bottom), "window")
    anchor: Anchor = "end" if at > _WIDTH * 0.7 else "start"
    drawing.text((at, bottom + 30), f"this target: {figures.count(rate)} commits/s", "series s1", anchor)
    return drawing.finish("Where it stands among published drives", standing)


def time_figures(measured: Iterable[CellRounds]) -> Iterator[Figure]:
    """The rate over time of each cell that has bins."""
    for one in measured:
        if any(each.bins for each in one.rounds):
            yield _over_time(one)


def _over_time(measured: CellRounds) -> Figure:
    rounds = [one for one in measured.rounds if one.bins]
    judged = steady(measured.cell, measured.rounds)
    rates = [count / one.bin_s for one in rounds for count in one.bins]
    high = max(max(rates) * 1.08, 1.0)
    drawing = Drawing(_WIDTH, _HEIGHT)
    y = Scale(low=0, high=high, start=_HEIGHT - _BOTTOM, end=_TOP)
    for tick in linear_ticks(high, most=3):
        drawing.line((_LEFT, y.at(tick)), (_WIDTH - _RIGHT, y.at(tick)), "grid")
        drawing.text((_LEFT - 6, y.at(tick) + 4), figures.count(tick) if tick else "0", "tick", "end")
    for lane, one in zip(_lanes(rounds), rounds, strict=True):
        _draw_round(drawing, one, lane, y, named=1 < len(rounds) <= _LANES_MAX)
    if len(rounds) == 1:
        _draw_seconds(drawing, rounds[0])
        _draw_windows(drawing, judged.windows, y)
    drawing.line((_LEFT, y.start), (_WIDTH - _RIGHT, y.start), "frame")
    under = "seconds" if len(rounds) == 1 else "when each round began"
    drawing.text(((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 4), under, "axis", "middle")
    title = plain_text.as_line(measured.cell.name)
    caption = f"{judged.word}: {judged.reason}"
    extremes = f"{figures.count(min(rates))} to {figures.count(max(rates))}"
    description = f"Operations per second over time: {extremes}. {caption}."
    return Figure(title=title, caption=caption, svg=drawing.finish(f"Rate of {title}", description))


def _lanes(rounds: Sequence[Round]) -> list[tuple[float, float]]:
    """Start and end of each round on the axis, in proportion to its duration, with gaps between rounds."""
    share = min(_GAP, _GAPS_MAX / len(rounds))
    room = (_WIDTH - _LEFT - _RIGHT) * (1 - share * (len(rounds) - 1))
    gap = (_WIDTH - _LEFT - _RIGHT) * share
    spans = [len(one.bins) * one.bin_s for one in rounds]
    widths = [span / sum(spans) * room for span in spans]
    starts = [_LEFT, *(_LEFT + at for at in accumulate(width + gap for width in widths))]
    return [(start, start + width) for start, width in zip(starts, widths, strict=False)]


def _draw_round(drawing: Drawing, one: Round, lane: tuple[float, float], y: Scale, *, named: bool) -> None:
    start, end = lane
    drawing.box((start, _TOP), end - start, y.start - _TOP, "lane")
    step = (end - start) / len(one.bins)
    places: list[Place] = []
    for number, count in enumerate(one.bins):
        height = y.at(count / one.bin_s)
        places += [
            (round(start + number * step, 1), height),
            (round(start + (number + 1) * step, 1), height),
        ]
    drawing.path(places, "line s0")
    if named:
        drawing.text(((start + end) / 2, y.start + 15), f"{one.started_s:,.0f} s", "tick", "middle")


def _draw_seconds(drawing: Drawing, one: Round) -> None:
    seconds = len(one.bins) * one.bin_s
    x = Scale(low=0, high=seconds, start=_LEFT, end=_WIDTH - _RIGHT)
    for tick in linear_ticks(seconds, most=6)[1:]:
        drawing.text((x.at(tick), _HEIGHT - _BOTTOM + 15), f"{tick:,g}", "tick", "middle")


def _draw_windows(drawing: Drawing, windows: Sequence[float], y: Scale) -> None:
    """Draw the means by which steadiness is judged."""
    width = (_WIDTH - _LEFT - _RIGHT) / max(1, len(windows))
    for number, mean in enumerate(windows):
        start = _LEFT + number * width
        drawing.line((start + 2, y.at(mean)), (start + width - 2, y.at(mean)), "window")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """A common axis of ratios, with rows of dots and intervals."""

    low: float
    high: float

    @classmethod
    def over(cls, ratios: Iterable[Ratio | None]) -> Dots:
        """An axis that contains all `ratios` and 1."""
        known = [one for one in ratios if one is not None]
        ends = [end for one in known for end in (one.value, one.low, one.high) if end is not None]
        return cls(low=min([0.8, *ends]) / 1.1, high=max([1.25, *ends]) * 1.1)

    def axis_svg(self) -> str:
        """The axis, as a heading of the rows."""
        drawing = Drawing(_DOTS_WIDTH, 20)
        x = self._scale()
        shown: list[float] = []
        for tick in _RATIO_TICKS:  # the most important first
            at = x.at(tick)
            if self.low <= tick <= self.high and all(abs(at - other) > _TICK_GAP for other in shown):
                shown.append(at)
                drawing.text((at, 15), f"{tick:g}", "tick one" if tick == 1 else "tick", "middle")
        return drawing.finish(
            "axis of ratios", f"from {ratio_text(self.low)} to {ratio_text(self.high)}", "dots"
        )

    def row_svg(self, ratios: Sequence[Ratio | None], text: str) -> str:
        """Dots with intervals, one below the other; no dot for a missing ratio."""
        drawing = Drawing(_DOTS_WIDTH, _DOTS_ROW * len(ratios))
        x = self._scale()
        if any(ratio is not None for ratio in ratios):
            drawing.line((x.at(1), 0), (x.at(1), drawing.height), "one")
        for number, ratio in enumerate(ratios):
            if ratio is not None:
                self._draw_dot(drawing, x, ratio, number)
        return drawing.finish("ratio", text, "dots")

    def _scale(self) -> Scale:
        return Scale(low=self.low, high=self.high, start=_DOTS_SIDE, end=_DOTS_WIDTH - _DOTS_SIDE, log=True)

    def _draw_dot(self, drawing: Drawing, x: Scale, ratio: Ratio, number: int) -> None:
        height = (number + 0.5) * _DOTS_ROW
        style = f"s{(number + 1) % SERIES}"
        if ratio.low is not None and ratio.high is not None:
            low, high = x.at(ratio.low), x.at(ratio.high)
            drawing.line((low, height), (high, height), f"whisker {style}")
            for end in (low, high):
                drawing.line((end, height - 4), (end, height + 4), f"whisker {style}")
        drawing.mark(
            (x.at(ratio.value), height), number + 1, "mark" if ratio.shows_difference else "mark hollow"
        )
