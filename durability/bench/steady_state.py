"""Steady or not: whether the measured rate is a rate that lasts.

The rule is SNIA's (Solid State Storage Performance Test Specification). The range of five consecutive windows
is at most 20 % of their mean. A line fitted through them rises or falls by at most 10 % of that mean. A long
round is cut into five windows; otherwise five or more rounds, spread over the run, are the windows. In a
long round the last third is also compared with the first: this shows a fast cache that filled, burst credits
that ran out, and throttling. A short measurement, or a rate that this tool paced, is not judged. A rate that
collapsed is judged even if it left few operations. A steady rate may still change after the measurement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from durability.bench.cells import Cell
from durability.bench.measurement import Round
from durability.units import counted

WINDOWS = 5
RANGE_MAX = 0.2
SLOPE_MAX = 0.1
THIRD_MIN = 0.9  # least ratio of the last third to the first third of a steady rate
BINS_MIN = 3 * WINDOWS  # with fewer bins, the thirds of a round are too short to compare
OPERATIONS_MIN = 400 * WINDOWS  # with fewer operations, chance alone changes a window by more than 5 %
_COLLAPSED = 0.5  # a ratio of the last third to the first below this is more than normal variation
_BEYOND_CHANCE = 4.0  # standard deviations of the difference of two counts that chance does not explain

Steadiness: TypeAlias = Literal["steady", "NOT STEADY", "too short to say", "not judged"]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Whether a rate was steady, and why."""

    word: Steadiness
    reason: str
    windows: tuple[float, ...]  # operations per second of each window, () if not judged
    range_share: float | None  # range of the windows divided by their mean
    slope_share: float | None  # rise of the fitted line from first to last window, divided by the mean
    last_third: float | None  # ratio of the last third to the first third, None without a long round


def steady(cell: Cell, rounds: Sequence[Round]) -> Steady:
    """Whether the rate of `cell` over `rounds` was steady. `rounds`: in the order of time."""
    if cell.pace_us:
        return _silent("not judged", "the rate is the pace; see the latencies")
    operations = sum(one.operations for one in rounds)
    is_long = len(rounds) == 1 and len(rounds[0].bins) >= BINS_MIN and any(rounds[0].bins)
    if operations < OPERATIONS_MIN and not (is_long and _has_collapsed(rounds[0].bins)):
        return _too_short(f"{operations:,} operations, {OPERATIONS_MIN:,} are needed")
    if is_long:
        return _judge_long(np.array(rounds[0].bins) / rounds[0].bin_s, rounds[0].bin_s)
    if len(rounds) >= WINDOWS:
        return _judge(np.array([one.rate for one in rounds]), "rounds", None, _no_step)
    return _too_short(f"{counted(len(rounds), 'round')}; {WINDOWS}, or a long one, are needed")


def _has_collapsed(bins: Sequence[int]) -> bool:
    """Whether the last third has far fewer operations than the first third, beyond chance. Works even with
    few operations."""
    third = len(bins) // 3
    first, last = sum(bins[:third]), sum(bins[-third:])
    return last < _COLLAPSED * first and first - last > _BEYOND_CHANCE * math.sqrt(first + last)


def _too_short(reason: str) -> Steady:
    return _silent("too short to say", reason)


def _silent(word: Steadiness, reason: str) -> Steady:
    return Steady(word=word, reason=reason, windows=(), range_share=None, slope_share=None, last_third=None)


def _judge_long(rates: Floats, bin_s: float) -> Steady:
    """Judge one long round. `rates`: the rate in each of its bins."""
    third = len(rates) // 3
    first, last = float(rates[:third].mean()), float(rates[-third:].mean())
    return _judge(rates, "windows", last / first if first else None, lambda: _step(rates, bin_s))


def _judge(rates: Floats, what: str, last_third: float | None, step: Callable[[], str]) -> Steady:
    windows = np.array([part.mean() for part in np.array_split(rates, WINDOWS)])
    mean = float(windows.mean())
    range_share = float(np.ptp(windows)) / mean
    slope = float(np.polyfit(np.arange(WINDOWS), windows, 1)[0])
    slope_share = slope * (WINDOWS - 1) / mean
    reasons = list(_reasons(what, range_share, slope_share, last_third))
    return Steady(
        word="NOT STEADY" if reasons else "steady",
        reason="; ".join(filter(None, (*reasons, step())))
        if reasons
        else f"{what} differ by {range_share:.0%} of their mean{_thirds(last_third)}",
        windows=tuple(windows.tolist()),
        range_share=range_share,
        slope_share=slope_share,
        last_third=last_third,
    )


def _reasons(what: str, range_share: float, slope_share: float, last_third: float | None) -> Iterator[str]:
    if range_share > RANGE_MAX:
        yield f"{what} differ by {beyond(range_share, RANGE_MAX)} of their mean, above {RANGE_MAX:.0%}"
    if abs(slope_share) > SLOPE_MAX:
        way, share = "rises" if slope_share > 0 else "falls", beyond(abs(slope_share), SLOPE_MAX)
        yield f"the rate {way} by {share} over the {what}, above {SLOPE_MAX:.0%}"
    if last_third is not None and last_third < THIRD_MIN:
        yield (
            f"the last third ran at {beyond(last_third, THIRD_MIN)} of the first: a fast cache may have"
            " filled, burst credits run out, or heat throttled the drive"
        )


def beyond(share: float, limit: float) -> str:
    """`share` as text, with enough digits to show that it differs from `limit`."""
    return next(
        (text for digits in range(3) if (text := f"{share:.{digits}%}") != f"{limit:.{digits}%}"),
        f"{share:.3%}",
    )


def _thirds(last_third: float | None) -> str:
    return "" if last_third is None else f", the last third at {last_third:.0%} of the first"


def _no_step() -> str:
    """No text: rounds lie too far apart to tell when the rate changed."""
    return ""


def _step(rates: Floats, bin_s: float) -> str:
    """The time and size of the single step that fits `rates` best (least squares), in words."""
    count = len(rates)
    total = np.cumsum(rates)
    before = np.arange(1, count)
    first, second = total[:-1] / before, (total[-1] - total[:-1]) / (count - before)
    at = int(np.argmax(before * (count - before) * (first - second) ** 2))
    return (
        f"about {before[at] * bin_s:,.0f} s in it went from {first[at]:,.0f} to {second[at]:,.0f} per second"
    )
