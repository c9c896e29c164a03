"""Intervals: how sure a median of a few rounds is, and a ratio of two of them; which percentiles to print.

The interval of a median is the bootstrap's: rounds are drawn with replacement, as many as there are, and the
median is taken of each draw. With few rounds every draw can be counted, so this is exact, the same on every
machine, and needs no random numbers. It covers chance among rounds that are alike and independent, not what
differs between one run and the next. Fewer than 5 rounds give no interval: even
their whole range would miss the true median too often (n rounds: once in 2^(n-1)).

With 5 rounds the 95 % bootstrap interval of a median is their whole range, and holds the true median in 94 %
of such runs. Ratios are taken of logarithms, so that a to b is the inverse of b to a, interval and all.
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
APART_ROUNDS_MIN = 3  # of two runs that are alike, chance puts one in 10 apart: of fewer rounds one in 3

# A hair less than the tail, so that rounding does not decide between neighbours.
_TAIL = (1 - CONFIDENCE) / 2 - 1e-9
_WEIGHT_MIN = 1e-12  # of a draw's median: rarer ones are of no consequence, and many
_PAIRS_MAX = 1 << 16  # of two medians, that are all made: two runs of 23 rounds have fewer
_ERROR = 1e-12  # of the logarithm of an end of the interval, where they are not
Floats = NDArray[np.float64]
_Weighted: TypeAlias = tuple[Floats, Floats]  # values, and the probability of each


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Rounds in short: their `median` and range, and the `low` to `high` that the median's interval is; these
    are None with fewer than 5 rounds."""

    median: float
    low: float | None
    high: float | None
    least: float
    most: float
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One median as a share of another, and the interval of that; `low` and `high` None: too few rounds.
    `apart`: every round of the one is above every round of the other, or, of pairs, above its own, in
    `APART_ROUNDS_MIN` rounds of each or more."""

    value: float
    low: float | None
    high: float | None
    apart: bool = False

    @property
    def has_interval(self) -> bool:
        """Whether there were rounds enough for one."""
        return self.low is not None and self.high is not None

    @property
    def shows_difference(self) -> bool:
        """Whether the interval leaves out 1."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high

    @property
    def is_shown(self) -> bool:
        """Whether the rounds show a difference: by the interval, or if there are too few for one, by none of
        the one lying among those of the other."""
        return self.shows_difference if self.has_interval else self.apart

    def inverse(self) -> Ratio:
        """The other as a share of this."""
        return Ratio(
            value=1 / self.value,
            low=None if self.high is None else 1 / self.high,
            high=None if self.low is None else 1 / self.low,
            apart=self.apart,
        )


def percentile(histogram: FineHistogram, percent: float) -> int | None:
    """The percentile in the histogram's unit, None where the sample does not support it."""
    return histogram.percentile(percent) if supported(len(histogram), percent) else None


def spread(values: Sequence[float]) -> Spread | None:
    """A summary of `values`, one of each round; None if `values` is empty."""
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
    """The median of `of` as a share of that of `to`, of rounds that have nothing to do with each other. None
    where either has no round, or one that is not positive."""
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
    """The median of the ratios round by round, of rounds that were interleaved, so that what changes slowly
    cancels out. None without a pair, or if a round is not positive. If the numbers of rounds differ, the last
    rounds of the longer series are left out."""
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
    """Each median that drawing as many of `ordered` with replacement can give, and its probability."""
    lower, upper, weights = _draws(len(ordered))
    return (ordered[lower] + ordered[upper]) / 2, weights


@cache
def _draws(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """Of draws of `count` of `count` values with replacement: the ranks (from 0) of the two middle values,
    the same twice where `count` is odd, and the probability of such a draw."""
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
    """The interval of a value of `of` less an independent one of `to`. Of many values the pairs are not made,
    of which there may be a million: each end is then searched for, and exact to `_ERROR`."""
    (values, weights), (others, other_weights) = of, to
    if len(values) * len(others) <= _PAIRS_MAX:
        differences = np.subtract.outer(values, others).ravel()
        return _interval(differences, np.multiply.outer(weights, other_weights).ravel())
    return _low_difference(of, to), -_low_difference(to, of)


def _low_difference(of: _Weighted, to: _Weighted) -> float:
    """The low end of that interval, by halving the range in which it lies."""
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
    """The middle `CONFIDENCE` of a distribution, outwards to values that it has."""
    return _tail(values, weights), -_tail(-values, weights)


def _tail(values: Floats, weights: Floats) -> float:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    rank = int(np.searchsorted(reached, _TAIL))
    return float(values[order][min(rank, len(order) - 1)])
