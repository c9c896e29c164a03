"""Drawing: a picture's parts as SVG, with a title and a description for people who cannot see it.

This module escapes all text. Colours are CSS classes; the page's style sheet defines them for light mode,
dark mode and paper. Series differ in colour, dashes and the shape of their marks, so that each of these alone
distinguishes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal, TypeAlias

from durability import plain_text

Anchor: TypeAlias = Literal["start", "middle", "end"]
Place: TypeAlias = tuple[float, float]

SERIES = 6  # number of styles
CHARACTER = 8.0  # width of a character of the labels, in wide fonts, in the picture's units
_MARK = 3.6  # half of a mark's width


class Drawing:
    """An SVG of `width` times `height` units that is being drawn."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._parts: list[str] = []

    def line(self, start: Place, end: Place, style: str) -> None:
        """A straight line."""
        (x1, y1), (x2, y2) = start, end
        self._parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{escape(style)}"/>')

    def path(self, places: Sequence[Place], style: str) -> None:
        """A line through all of `places`."""
        if len(places) > 1:
            steps = " ".join(f"{x:g},{y:g}" for x, y in places)
            self._parts.append(f'<polyline points="{steps}" class="{escape(style)}"/>')

    def box(self, corner: Place, width: float, height: float, style: str) -> None:
        """A rectangle from its upper left corner."""
        x, y = corner
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" class="{escape(style)}"/>'
        )

    def text(self, place: Place, text: str, style: str = "label", anchor: Anchor = "start") -> None:
        """A line of text whose base line is at `place`."""
        x, y = place
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{escape(style)}">'
            f"{_escaped(text)}</text>"
        )

    def turned_text(self, place: Place, text: str, style: str = "label") -> None:
        """A line of text that runs upwards, with its middle at `place`."""
        x, y = place
        self._parts.append(
            f'<text transform="translate({x:g} {y:g}) rotate(-90)" text-anchor="middle" '
            f'class="{escape(style)}">{_escaped(text)}</text>'
        )

    def mark(self, place: Place, series: int, style: str = "mark") -> None:
        """A mark in the shape and colour of the series."""
        x, y = place
        near, far = f"{x - _MARK:g}", f"{x + _MARK:g}"
        above, below = f"{y - _MARK:g}", f"{y + _MARK:g}"
        shapes = (
            f'<circle cx="{x:g}" cy="{y:g}" r="{_MARK:g}"',
            f'<rect x="{near}" y="{above}" width="{2 * _MARK:g}" height="{2 * _MARK:g}"',
            f'<polygon points="{x:g},{above} {far},{below} {near},{below}"',
            f'<polygon points="{x:g},{y - 1.4 * _MARK:g} {x + 1.4 * _MARK:g},{y:g} '
            f'{x:g},{y + 1.4 * _MARK:g} {x - 1.4 * _MARK:g},{y:g}"',
            f'<polygon points="{x:g},{below} {far},{above} {near},{above}"',
            f'<path d="M{near},{above}L{far},{below}M{far},{above}L{near},{below}"',
        )
        self._parts.append(f'{shapes[series % SERIES]} class="{escape(style)} s{series % SERIES}"/>')

    def finish(self, title: str, description: str, style: str = "chart") -> str:
        """The complete SVG element."""
        return (
            f'<svg class="{escape(style)}" role="img" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" xmlns="http://www.w3.org/2000/svg">'
            f"<title>{_escaped(title)}</title><desc>{_escaped(description)}</desc>{''.join(self._parts)}</svg>"
        )


def _escaped(text: str) -> str:
    return escape(plain_text.as_line(text))
