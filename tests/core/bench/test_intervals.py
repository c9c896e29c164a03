"""Intervals: exact where draws can be counted, covering what they promise, symmetrical, silent in time."""

from __future__ import annotations

import itertools
import statistics
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.bench.intervals import CONFIDENCE, ROUNDS_MIN, paired_ratio, percentile, ratio, spread
from durability.formats.histogram import PERCENTS, FineHistogram, supported

RATES = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=12)
SIMULATIONS = 600


def drawn(values: list[float]) -> tuple[float, float]:
    """The bootstrap interval of the median by making every draw there is."""
    medians = Counter(statistics.median(draw) for draw in itertools.product(values, repeat=len(values)))
    tail = (1 - CONFIDENCE) / 2 * len(values) ** len(values)
    ends = []
    for ordered in (sorted(medians), sorted(medians, reverse=True)):
        reached = itertools.accumulate(medians[median] for median in ordered)
        ends.append(next(median for median, count in zip(ordered, reached, strict=True) if count >= tail))
    return ends[0], ends[1]


@pytest.mark.parametrize(
    "values",
    [[3.0, 1.0, 4.0, 1.5, 9.0], [1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [5.0] * 5, [7.0, 1.0, 1.0, 1.0, 9.0, 9.0]],
)
def test_the_interval_is_that_of_all_draws(values: list[float]) -> None:
    """Counting the draws by formula gives what making each of them gives."""
    found = spread(values)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(drawn(values))
    assert (found.least, found.median, found.most) == (min(values), statistics.median(values), max(values))


def test_with_five_rounds_the_interval_is_their_range() -> None:
    """So little do five rounds tell, and the documentation says so."""
    found = spread([9.0, 10.0, 11.0, 10.5, 9.5])
    assert found is not None and (found.low, found.high) == (9.0, 11.0)


@pytest.mark.parametrize(("rounds", "share"), [(5, 0.94), (7, 0.88), (10, 0.94)])
def test_the_interval_of_a_median_covers_it(rounds: int, share: float) -> None:
    """The documented share of simulated runs has the true median in its interval, for different shapes of
    noise."""
    rng = np.random.default_rng(7)
    for draw, true in (
        (lambda: np.exp(rng.normal(0, 0.1, rounds)), 1.0),
        (lambda: 1 / (1 + rng.exponential(0.1, rounds)), 1 / (1 + 0.1 * np.log(2))),
    ):
        found = [spread(draw().tolist()) for _ in range(SIMULATIONS)]
        hits = sum(one is not None and (one.low or 9) <= true <= (one.high or 0) for one in found)
        assert share - 0.03 <= hits / SIMULATIONS <= share + 0.04


def test_no_difference_is_shown_where_there_is_none() -> None:
    """Two runs of like rounds are told apart in at most 6 % of simulations, paired ones in at most 9 %."""
    rng = np.random.default_rng(8)
    pairs = [
        (np.exp(rng.normal(0, 0.1, 5)).tolist(), np.exp(rng.normal(0, 0.1, 5)).tolist())
        for _ in range(SIMULATIONS)
    ]
    for take, share in ((ratio, 0.06), (paired_ratio, 0.09)):
        found = [take(one, other) for one, other in pairs]
        assert sum(each is not None and each.shows_difference for each in found) <= share * SIMULATIONS


def test_a_difference_is_shown_where_there_is_one() -> None:
    """Rounds that scatter by 10 % and differ by half are told apart nearly always, with the right ratio."""
    rng = np.random.default_rng(9)
    found = [
        ratio((1.5 * np.exp(rng.normal(0, 0.1, 5))).tolist(), np.exp(rng.normal(0, 0.1, 5)).tolist())
        for _ in range(SIMULATIONS)
    ]
    assert sum(each is not None and each.shows_difference for each in found) >= 0.98 * SIMULATIONS
    values = [each.value for each in found if each is not None]
    assert statistics.median(values) == pytest.approx(1.5, rel=0.02)


@pytest.mark.slow
@given(RATES, RATES)
def test_the_inverse_of_a_ratio_is_the_ratio_the_other_way_round(of: list[float], to: list[float]) -> None:
    """It does not matter which result is named first."""
    for take in (ratio, paired_ratio):
        one, other = take(of, to), take(to, of)
        assert one is not None and other is not None
        assert one.inverse().value == pytest.approx(other.value)
        assert (one.low is None) == (other.low is None)
        if one.low is not None and one.high is not None:
            assert (1 / one.high, 1 / one.low) == pytest.approx((other.low, other.high))
            assert one.low <= one.value * (1 + 1e-9) and one.value <= one.high * (1 + 1e-9)


@pytest.mark.slow
@given(RATES, st.floats(0.01, 100))
def test_other_units_do_not_change_a_ratio(rates: list[float], factor: float) -> None:
    """A spread scales with its values, and their ratio is the factor."""
    scaled = [rate * factor for rate in rates]
    before, after = spread(rates), spread(scaled)
    assert before is not None and after is not None
    assert after.median == pytest.approx(before.median * factor)
    found = paired_ratio(scaled, rates)
    assert found is not None and found.value == pytest.approx(factor)


def test_pairs_cancel_what_drifts() -> None:
    """Rounds that halve over the run tell interleaved cells apart by a tenth, which unpaired ones do not."""
    slow = [1000.0 * 0.85**number for number in range(5)]
    fast = [rate * factor for rate, factor in zip(slow, (1.09, 1.11, 1.1, 1.12, 1.1), strict=True)]
    paired, unpaired = paired_ratio(fast, slow), ratio(fast, slow)
    assert paired is not None and paired.shows_difference and paired.value == pytest.approx(1.1)
    assert unpaired is not None and not unpaired.shows_difference


@pytest.mark.parametrize("rounds", range(1, ROUNDS_MIN))
def test_too_few_rounds_have_no_interval(rounds: int) -> None:
    """A median and a ratio stand alone then, and show no difference."""
    values = [float(number) for number in range(1, rounds + 1)]
    found, against = spread(values), ratio([9 * value for value in values], values)
    assert found is not None and found.low is None and found.high is None
    assert against is not None and not against.shows_difference and not against.has_interval
    assert (against.value, against.low, against.high) == (9.0, None, None)


@pytest.mark.parametrize(
    ("of", "to", "apart"),
    [
        ([4.0, 5.0, 6.0], [1.0, 2.0, 3.0], True),
        ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], True),
        ([3.0, 5.0, 6.0], [1.0, 2.0, 3.0], False),
        ([5.0, 6.0], [1.0, 2.0, 3.0], False),
        ([4.0] * 5, [1.0] * 5, True),
    ],
)
def test_rounds_lie_apart_if_none_is_among_the_others(
    of: list[float], to: list[float], *, apart: bool
) -> None:
    """Three of each are needed: of fewer, chance alone does so too often."""
    found = ratio(of, to)
    assert found is not None and found.apart == found.inverse().apart == apart
    pairs = paired_ratio([2.0, 3.0, 4.0], [1.0, 2.0, 3.0])
    mixed = paired_ratio([2.0, 1.0, 4.0], [1.0, 2.0, 3.0])
    assert pairs is not None and mixed is not None and (pairs.apart, mixed.apart) == (True, False)


def test_many_rounds_take_little_memory() -> None:
    """A result may have 100 rounds of each of 512 cells: no ratio makes all of a million pairs of medians."""
    rng = np.random.default_rng(11)
    of, to = (np.exp(rng.normal(0, 0.1, 100)).tolist() for _ in range(2))
    ratio(of, to)  # what is kept of the number of rounds
    tracemalloc.start()
    try:
        assert ratio(of, to) is not None
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20


@pytest.mark.parametrize("rounds", [10, 22, 24, 50, 99, 100])
def test_the_interval_of_a_ratio_is_that_of_many_draws(rounds: int) -> None:
    """However many rounds there are: drawn at random, ratios of medians have it too, but for the chance of
    the draws. Against rounds that are all alike it is the interval of the median, exactly."""
    rng = np.random.default_rng(rounds)
    of, to = (np.exp(rng.normal(0, 0.1, rounds)) for _ in range(2))
    found = ratio(of.tolist(), to.tolist())
    draws = [np.median(rng.choice(values, (20_000, rounds)), axis=1) for values in (of, to)]
    low, high = np.quantile(draws[0] / draws[1], [0.025, 0.975])
    assert found is not None and (found.low, found.high) == pytest.approx((low, high), rel=0.01)
    alone, alike = spread(of.tolist()), ratio(of.tolist(), [1.0] * rounds)
    assert alone is not None and alike is not None
    assert (alike.low, alike.high) == pytest.approx((alone.low, alone.high), rel=1e-11)
    inverse = ratio([1.0] * rounds, of.tolist())
    assert inverse is not None and inverse.low == pytest.approx(1 / (alone.high or 0), rel=1e-11)


def test_nothing_comes_of_nothing() -> None:
    """No rounds, or one in which nothing was done: there is no ratio, and no error."""
    assert spread([]) is None
    for take in (ratio, paired_ratio):
        assert take([], [1.0]) is None and take([1.0], []) is None and take([0.0], [1.0]) is None


@pytest.mark.parametrize(("percent", "samples"), [(50.0, 20), (95.0, 200), (99.0, 1000), (99.9, 10_000)])
def test_a_percentile_takes_ten_samples_beyond_it(percent: float, samples: int) -> None:
    """One sample fewer and it is not given."""
    assert percent in PERCENTS
    assert supported(samples, percent) and not supported(samples - 1, percent)
    histogram = FineHistogram()
    histogram.record(np.arange(1, samples, dtype=np.uint64))
    assert percentile(histogram, percent) is None
    histogram.record(np.array([samples], dtype=np.uint64))
    exact = samples * percent / 100
    found = percentile(histogram, percent)
    assert found is not None and exact <= found <= exact * (1 + 1 / 128) + 1
