"""Small pictures: a line of values over time or over cycles, as SVG inside a page.

The scale begins at 0, so that noise does not look large. An unknown value is a gap. The SVG has no styles,
because the page's policy forbids them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from durability.bench.decision.bottom_line import megabytes
from durability.campaign.health import HealthRow
from durability.units import duration

_WIDTH, _HEIGHT, _EDGE = 300.0, 48.0, 2.0
_POINTS_MAX = 180  # points of a line


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureLine:
    """A picture and the texts beside it."""

    name: str
    newest: str  # the newest value, "" if no more will follow
    range: str  # lowest and highest value
    svg: Markup


def line_of(
    name: str, values: Sequence[float | None], shown: Callable[[float], str], *, over: bool = False
) -> PictureLine | None:
    """The picture of `values`, oldest first. None if no value is known. With `over` no more values follow, so
    the last one is not shown as the present value."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high, last = shown(min(known)), shown(max(known)), values[-1]
    newest = "" if over else "\u2013" if last is None else shown(last)
    between = low if low == high else f"{low} to {high}"
    return PictureLine(
        name=name, newest=newest, range=between, svg=_svg(_thinned(values), max(known), f"{name}: {between}")
    )


def _thinned(values: Sequence[float | None]) -> list[float | None]:
    """At most `_POINTS_MAX` values. A value that replaces several is their maximum, so that no peak is
    hidden."""
    count = min(_POINTS_MAX, len(values))
    edges = [number * len(values) // count for number in range(count + 1)]
    parts = ([one for one in values[a:b] if one is not None] for a, b in pairwise(edges))
    return [max(part) if part else None for part in parts]


def _svg(values: Sequence[float | None], most: float, text: str) -> Markup:
    step = (_WIDTH - 2 * _EDGE) / max(1, len(values) - 1)
    tall = _HEIGHT - 2 * _EDGE
    lines: list[list[str]] = [[]]
    for number, value in enumerate(values):
        if value is None:
            lines.append([])
            continue
        height = tall * value / most if most else 0.0
        lines[-1].append(f"{_EDGE + number * step:.1f},{_HEIGHT - _EDGE - height:.1f}")
    drawn = Markup("").join(_drawn(line) for line in lines if line)
    return Markup(
        '<svg class="line" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(_WIDTH, _HEIGHT, text, drawn)


def _drawn(points: list[str]) -> Markup:
    if len(points) == 1:
        x, _, y = points[0].partition(",")
        return Markup('<circle cx="{}" cy="{}" r="2"/>').format(x, y)
    return Markup('<polyline points="{}"/>').format(" ".join(points))


def health_lines(rows: Sequence[HealthRow]) -> tuple[PictureLine, ...]:
    """What a drive reported about itself, and measured durations, by cycle."""
    lines = (line_of(name, [of(row) for row in rows], shown) for name, of, shown in _HEALTH)
    return tuple(line for line in lines if line is not None)


def rate_text(value: float, *, record_bytes: int = 0) -> str:
    """Operations per second. If each of them writes `record_bytes`: with MB/s."""
    moved = f", {megabytes(value * record_bytes)}" if record_bytes else ""
    return f"{value:,.0f}/s{moved}"


def micros_text(value: float) -> str:
    """Microseconds in a suitable unit."""
    return duration(value * 1000)


def seconds_text(value: float) -> str:
    """Seconds in a suitable unit."""
    return duration(value * 1e9)


def _percent_text(value: float) -> str:
    return f"{value:.0f} %"


def _count_text(value: float) -> str:
    return f"{value:,.0f}"


_HEALTH: tuple[tuple[str, Callable[[HealthRow], float | None], Callable[[float], str]], ...] = (
    ("time to ready", lambda row: row.ready_s, seconds_text),
    ("mount with replay", lambda row: row.mount_s, seconds_text),
    ("commit p50", lambda row: row.commit_p50_us, micros_text),
    ("commit p99", lambda row: row.commit_p99_us, micros_text),
    ("unsafe shutdowns", lambda row: row.unsafe_shutdowns, _count_text),
    ("media errors", lambda row: row.media_errors, _count_text),
    ("spare blocks", lambda row: row.spare_percent, _percent_text),
    ("wear", lambda row: row.used_percent, _percent_text),
    ("capacitor health", lambda row: row.capacitor_percent, _percent_text),
)
