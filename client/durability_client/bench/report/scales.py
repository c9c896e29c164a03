"""Scales: convert quantities to places on an axis, and choose the ticks of an axis.

The module is pure arithmetic, so that tests can check a picture's geometry. A scale moves quantities beyond
its ends to the end, so that a picture never draws outside its frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TICKS_MIN = 3  # a logarithmic axis with fewer decades gets ticks between them


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Quantities `low` to `high` on places `start` to `end` (which may run backwards), linear or `log`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for an axis without length, or a logarithmic axis that does not start above 0."""
        if not self.low < self.high or (self.log and not self.low > 0):
            raise ValueError(f"a scale from {self.low} to {self.high}")

    def at(self, quantity: float) -> float:
        """The place of `quantity`, to a tenth."""
        inside = min(max(quantity, self.low), self.high)
        if self.log:
            share = math.log(inside / self.low) / math.log(self.high / self.low)
        else:
            share = (inside - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def log_bounds(quantities: Iterable[float], *, widest: float = 1.15) -> tuple[float, float]:
    """Ends of a logarithmic axis that holds the positive ones of `quantities` with a margin of `widest`.

    The ends differ at least by a factor of 4, so that noise does not look like a difference.
    """
    positive = [one for one in quantities if one > 0] or [1.0]
    low, high = min(positive) / widest, max(positive) * widest
    lacking = math.sqrt(max(1.0, 4 * low / high))
    return low / lacking, high * lacking


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Round numbers from `low` to `high`: decades, or if these are few, further numbers of each decade."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5, 7)):
        found = [digit * 10.0**decade for decade in decades for digit in digits]
        inside = tuple(tick for tick in found if low <= tick <= high)
        if len(inside) >= TICKS_MIN:
            return inside
    return inside


def linear_ticks(high: float, *, most: int = 4) -> tuple[float, ...]:
    """Round numbers from 0 to `high`, at most `most` beside the 0."""
    rough = high / most
    decade: float = 10.0 ** math.floor(math.log10(rough))
    step = next(digit * decade for digit in (1, 2, 5, 10) if digit * decade >= rough * (1 - 1e-9))
    return tuple(step * number for number in range(int(high / step + 1e-9) + 1))


def nines(share: float) -> float:
    """A percentile's place on an axis that widens the tail: 0.9 is 1, 0.99 is 2, 0.999 is 3."""
    return -math.log10(1 - share)


def set_apart(wanted: Sequence[float], *, gap: float, low: float, high: float) -> tuple[float, ...]:
    """Places for labels from `low` to `high`, at least `gap` apart, and as near to `wanted` as possible.

    If not all fit, the places continue beyond `high`.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    places: list[float] = []
    for index in order:
        places.append(max(wanted[index], low, places[-1] + gap if places else low))
    limit = max(high, low + gap * (len(wanted) - 1))
    for position in reversed(range(len(places))):
        places[position] = min(places[position], limit)
        limit = places[position] - gap
    result = [0.0] * len(wanted)
    for index, place in zip(order, places, strict=True):
        result[index] = round(place, 1)
    return tuple(result)
