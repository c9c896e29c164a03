"""Confidence intervals of a median over few rounds and of a ratio of two medians; which percentiles to print.

The interval of a median is a bootstrap interval: n of n rounds are drawn with replacement, and each draw has
a median. With few rounds all draws can be enumerated, so the interval is exact, the same on every machine,
and needs no random numbers. The interval covers chance among rounds that are alike and independent, but not
differences between two runs. Fewer than 5 rounds give no interval: even their whole range would miss the true
median too often (once in 2^(n-1) for n rounds).

With 5 rounds the 95 % bootstrap interval of a median is their whole range, which contains the true median in
94 % of such runs. Ratios use logarithms, so that the ratio of a to b, with its interval, is the inverse of
the ratio of b to a.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from durability.formats.histogram import FineHistogram, supported

CONFIDENCE = 0.95
ROUNDS_MIN = 5
# Two equal runs of 3 rounds each lie apart by chance in 1 of 10 cases; with 2 rounds each in 1 of 3 cases.
APART_ROUNDS_MIN = 3

# Slightly less than the tail, so that rounding does not decide between neighbouring values.
_TAIL = (1 - CONFIDENCE) / 2 - 1e-9
_WEIGHT_MIN = 1e-12  # medians of draws with a lower probability are dropped: they are many and do not matter
_PAIRS_MAX = 1 << 16  # up to so many pairs of medians, all are computed: two runs of 23 rounds have fewer
_ERROR = 1e-12  # with more pairs: error of the logarithm of an end of the interval
Floats = NDArray[np.float64]
_Weighted: TypeAlias = tuple[Floats, Floats]  # values, and the probability of each


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Summary of the values of some rounds."""

    median: float
    low: float | None  # low end of the median's interval, None with fewer than 5 rounds
    high: float | None  # high end, likewise
    least: float  # lowest value
    most: float  # highest value
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The ratio of two medians, with its interval."""

    value: float
    low: float | None  # low end of the interval, None with too few rounds
    high: float | None  # high end, likewise
    # Every round of one side is above every round of the other side. For pairs: above the other round of its
    # pair. False if a side has fewer than `APART_ROUNDS_MIN` rounds.
    apart: bool = False

    @property
    def has_interval(self) -> bool:
        """Whether there were enough rounds for an interval."""
        return self.low is not None and self.high is not None

    @property
    def shows_difference(self) -> bool:
        """Whether the interval exists and does not contain 1."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high

    @property
    def is_shown(self) -> bool:
        """Whether the rounds show a difference: the interval does not contain 1, or, with too few rounds for
        an interval, the two sides do not overlap."""
        return self.shows_difference if self.has_interval else self.apart

    def inverse(self) -> Ratio:
        """The ratio with its two sides exchanged."""
        return Ratio(
            value=1 / self.value,
            low=None if self.high is None else 1 / self.high,
            high=None if self.low is None else 1 / self.low,
            apart=self.apart,
        )


def percentile(histogram: FineHistogram, percent: float) -> int | None:
    """The percentile in the histogram's unit, None if the sample is too small for it."""
    return histogram.percentile(percent) if supported(len(histogram), percent) else None


def spread(values: Sequence[float]) -> Spread | None:
    """The summary of `values`, which has one value for each round. None if `values` is empty."""
    if not values:
        return None
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    low, high = _interval(*_medians(ordered)) if len(ordered) >= ROUNDS_MIN else (None, None)
    return Spread(
        rounds=len(ordered),
        median=float(np.median(ordered)),
        least=float(ordered[0]),
        most=float(ordered[-1]),
        low=low,
        high=high,
    )


def ratio(of: Sequence[float], to: Sequence[float]) -> Ratio | None:
    """The median of `of` divided by the median of `to`, for independent rounds. None if either has no round,
    or a value that is not positive."""
    if not _positive(of) or not _positive(to):
        return None
    above, below = (np.sort(np.asarray(values, dtype=np.float64)) for values in (of, to))
    value = float(np.median(above) / np.median(below))
    rounds = min(len(above), len(below))
    apart = rounds >= APART_ROUNDS_MIN and bool(above[0] > below[-1] or above[-1] < below[0])
    if rounds < ROUNDS_MIN:
        return Ratio(value=value, low=None, high=None, apart=apart)
    (medians, weights), (others, other_weights) = _medians(above), _medians(below)
    low, high = _difference((np.log(medians), weights), (np.log(others), other_weights))
    return Ratio(value=value, low=math.exp(low), high=math.exp(high), apart=apart)


def paired_ratio(of: Sequence[float], to: Sequence[float]) -> Ratio | None:
    """The median of the ratios of paired rounds. The rounds were interleaved, so that slow changes cancel
    out. None without a pair, or if a value is not positive. If the numbers of rounds differ, the last rounds
    of the longer series are left out."""
    pairs = list(zip(of, to, strict=False))
    if not pairs or not _positive(of) or not _positive(to):
        return None
    logs = np.sort(np.array([math.log(one / other) for one, other in pairs]))
    low, high = _interval(*_medians(logs)) if len(logs) >= ROUNDS_MIN else (None, None)
    return Ratio(
        value=math.exp(float(np.median(logs))),
        low=None if low is None else math.exp(low),
        high=None if high is None else math.exp(high),
        apart=len(logs) >= APART_ROUNDS_MIN and bool(logs[0] > 0 or logs[-1] < 0),
    )


def _positive(values: Sequence[float]) -> bool:
    return len(values) > 0 and min(values) > 0


def _medians(ordered: Floats) -> tuple[Floats, Floats]:
    """Each median that a bootstrap draw from `ordered` can have, and its probability."""
    lower, upper, weights = _draws(len(ordered))
    return (ordered[lower] + ordered[upper]) / 2, weights


@cache
def _draws(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """All draws of `count` from `count` values with replacement, grouped by their middle values: the ranks
    (from 0) of the two middle values, and the probability of such a draw. If `count` is odd, both ranks are
    the same."""
    half = count // 2
    # P(at least `need` of the draws are among the `rank` lowest values)
    need = half + count % 2
    reach = [_at_least(need, count, rank / count) for rank in range(count + 1)]
    middle = np.diff(reach)  # probability that the (lower) middle value has each rank
    if count % 2:
        table = np.diag(middle)
    else:
        ranks = np.arange(count + 1) / count
        down = np.diff(ranks**half)  # the lowest half of the draw ends at this rank
        up = np.diff(-((1 - ranks) ** half))  # the highest half of the draw begins at it
        table = np.triu(math.comb(count, half) * np.outer(down, up), 1)
        table += np.diag(middle - table.sum(axis=1))
    lower, upper = np.nonzero(table > _WEIGHT_MIN)
    weights = table[lower, upper]
    return lower, upper, weights / weights.sum()


def _at_least(least: int, count: int, probability: float) -> float:
    """P(at least `least` successes in `count` trials)."""
    return math.fsum(
        math.comb(count, k) * probability**k * (1 - probability) ** (count - k)
        for k in range(least, count + 1)
    )


def _difference(of: _Weighted, to: _Weighted) -> tuple[float, float]:
    """The interval of the difference between a value of `of` and an independent value of `to`. There may be a
    million pairs: above `_PAIRS_MAX` each end of the interval is found by a search, exact to `_ERROR`."""
    (values, weights), (others, other_weights) = of, to
    if len(values) * len(others) <= _PAIRS_MAX:
        differences = np.subtract.outer(values, others).ravel()
        return _interval(differences, np.multiply.outer(weights, other_weights).ravel())
    return _low_difference(of, to), -_low_difference(to, of)


def _low_difference(of: _Weighted, to: _Weighted) -> float:
    """The low end of the interval of the difference, by bisection."""
    (values, weights), (others, other_weights) = of, to
    order = np.argsort(values, kind="stable")
    ordered, reached = values[order], np.concatenate(([0.0], np.cumsum(weights[order])))
    low, high = float(ordered[0] - others.max()) - _ERROR, float(ordered[-1] - others.min())
    while high - low > _ERROR and low < (middle := (low + high) / 2) < high:
        below = reached[np.searchsorted(ordered, others + middle, side="right")]
        if float(below @ other_weights) >= _TAIL:
            high = middle
        else:
            low = middle
    return high


def _interval(values: Floats, weights: Floats) -> tuple[float, float]:
    """The middle `CONFIDENCE` of a distribution. Both ends are values of the distribution, rounded
    outwards."""
    return _tail(values, weights), -_tail(-values, weights)


def _tail(values: Floats, weights: Floats) -> float:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    rank = int(np.searchsorted(reached, _TAIL))
    return float(values[order][min(rank, len(order) - 1)])
