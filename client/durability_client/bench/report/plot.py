"""Plots: series of points between two axes, each labelled at its end. Independent of benchmarks.

With labels beside the lines, no legend and no colours are needed. If lines end at the same place, labels are
moved apart, and a thin line connects each with its series. Series without points are not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from durability.plain_text import shortened
from durability_client.bench.report.scales import Scale, set_apart
from durability_client.bench.report.svg import CHARACTER, SERIES, Drawing, Place

WIDTH, HEIGHT = 520.0, 330.0
_LEFT, _TOP, _BOTTOM, _RIGHT_MIN = 72.0, 14.0, 48.0, 24.0
_LABEL_GAP = 14.0  # distance of base lines
_LEADER = 12.0  # distance from the frame to a label
_LABEL_CHARACTERS_MAX = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis from `low` to `high`, with its title, and its ticks with their labels."""

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def scale(self, start: float, end: float) -> Scale:
        """The scale of the axis between two places."""
        return Scale(low=self.low, high=self.high, start=start, end=end, log=self.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point. `low` to `high`: its interval. `word`: text above it. `marked`: draw the series' mark."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    word: str = ""
    marked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points to be connected and labelled at their end, in style `number`. `faint`: further points that are
    too uncertain for a solid line."""

    label: str
    number: int
    points: tuple[Point, ...]
    faint: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A thin reference line from one point to another."""

    label: str
    start: Place
    end: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A whole picture. `description`: its content in words and figures, for people who cannot see it."""

    title: str
    description: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    references: tuple[Reference, ...] = ()

    def svg(self) -> str:
        """The picture as SVG."""
        drawing = Drawing(WIDTH, HEIGHT)
        right = WIDTH - self._label_room()
        x, y = self.x.scale(_LEFT, right), self.y.scale(HEIGHT - _BOTTOM, _TOP)
        self._draw_axes(drawing, x, y)
        ends: list[tuple[str, str, Place]] = []
        for reference in self.references:
            start, end = ((x.at(at), y.at(value)) for at, value in (reference.start, reference.end))
            drawing.line(start, end, "reference")
            ends.append((reference.label, "label", end))
        for series in self.series:
            end = _draw_series(drawing, series, x, y)
            ends.append((series.label, f"label series s{series.number % SERIES}", end))
        _draw_labels(drawing, ends, right)
        return drawing.finish(self.title, self.description)

    def _label_room(self) -> float:
        labels = [*(one.label for one in self.series), *(one.label for one in self.references)]
        longest = max((len(shortened(label, _LABEL_CHARACTERS_MAX)) for label in labels), default=0)
        return _RIGHT_MIN if not longest else _LEADER + 4 + longest * CHARACTER

    def _draw_axes(self, drawing: Drawing, x: Scale, y: Scale) -> None:
        bottom, left, right = y.start, x.start, x.end
        for value, word in self.y.ticks:
            drawing.line((left, y.at(value)), (right, y.at(value)), "grid")
            drawing.text((left - 6, y.at(value) + 4), word, "tick", "end")
        for value, word in self.x.ticks:
            drawing.line((x.at(value), _TOP), (x.at(value), bottom), "grid")
            drawing.text((x.at(value), bottom + 16), word, "tick", "middle")
        drawing.line((left, bottom), (right, bottom), "frame")
        drawing.line((left, _TOP), (left, bottom), "frame")
        drawing.text(((left + right) / 2, bottom + 36), self.x.title, "axis", "middle")
        drawing.turned_text((11, (_TOP + bottom) / 2), self.y.title, "axis")


def _draw_series(drawing: Drawing, series: Series, x: Scale, y: Scale) -> Place:
    """Draw the series, and return the place of its end."""
    places = [(x.at(point.x), y.at(point.y)) for point in series.points]
    faint = [(x.at(point.x), y.at(point.y)) for point in series.faint]
    drawing.path(_thinned([*places[-1:], *faint]), f"faint s{series.number % SERIES}")
    drawing.path(_thinned(places), f"line s{series.number % SERIES}")
    for point, (left, height) in zip(series.points, places, strict=True):
        if point.low is not None and point.high is not None:
            low, high = y.at(point.low), y.at(point.high)
            drawing.line((left, low), (left, high), f"whisker s{series.number % SERIES}")
            for end in (low, high):
                drawing.line((left - 4, end), (left + 4, end), f"whisker s{series.number % SERIES}")
        if point.marked:
            drawing.mark((left, height), series.number)
        if point.word:
            top = min(height, height if point.high is None else y.at(point.high))
            drawing.text((left, top - 7), point.word, "value", "middle")
    for point, place in zip(series.faint, faint, strict=True):
        if point.marked:
            drawing.mark(place, series.number, "mark hollow")
    return (faint or places)[-1]


def _draw_labels(drawing: Drawing, ends: Sequence[tuple[str, str, Place]], right: float) -> None:
    heights = set_apart([y for _, _, (_, y) in ends], gap=_LABEL_GAP, low=_TOP + 4, high=HEIGHT - _BOTTOM)
    for (label, style, end), height in zip(ends, heights, strict=True):
        drawing.path([end, (right + 2, end[1]), (right + _LEADER, height)], "leader")
        drawing.text((right + _LEADER + 3, height + 4), shortened(label, _LABEL_CHARACTERS_MAX), style)


def _thinned(places: Sequence[Place], nearest: float = 0.6) -> list[Place]:
    """`places` without those that are too close to the previous one. The last one is always kept."""
    kept: list[Place] = []
    for place in places[:-1]:
        if not kept or max(abs(place[0] - kept[-1][0]), abs(place[1] - kept[-1][1])) >= nearest:
            kept.append(place)
    return [*kept, *places[-1:]]
