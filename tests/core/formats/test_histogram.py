"""Latency histograms: percentiles within their error, merging, and the form in which they travel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.errors import FormatError
from durability.formats.histogram import FineHistogram, Histogram

VALUES = st.lists(st.integers(0, 1 << 52), min_size=1, max_size=200)


def histogram_of(values: list[int]) -> Histogram:
    histogram = Histogram()
    histogram.record(np.array(values, dtype=np.uint64))
    return histogram


@pytest.mark.slow
@given(VALUES, st.floats(0, 100))
def test_a_percentile_is_never_too_low_and_at_most_a_32nd_too_high(values: list[int], percent: float) -> None:
    """The percentile brackets the value of that rank among all values, sorted."""
    exact = sorted(values)[max(1, int(np.ceil(len(values) * percent / 100))) - 1]
    assert exact <= histogram_of(values).percentile(percent) <= exact + exact // 32


@pytest.mark.slow
@given(VALUES, VALUES)
def test_merged_histograms_are_the_histogram_of_all_values(first: list[int], second: list[int]) -> None:
    """Counting apart and adding is the same as counting together."""
    merged = histogram_of(first)
    merged.merge(histogram_of(second))
    assert merged.to_value() == histogram_of(first + second).to_value()
    assert len(merged) == len(first) + len(second)


@pytest.mark.slow
@given(VALUES)
def test_a_histogram_comes_back_from_plain_values(values: list[int]) -> None:
    """A histogram does not change when it is converted to plain values and back."""
    histogram = histogram_of(values)
    assert Histogram.from_value(histogram.to_value()).to_value() == histogram.to_value()


def test_an_empty_histogram_has_no_percentiles() -> None:
    """Without values every percentile and the maximum are 0."""
    assert (Histogram().percentile(99), Histogram().max_value, len(Histogram())) == (0, 0, 0)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"buckets": [1], "counts": [1]},
        {"buckets": [1], "counts": [1, 2], "max": [1]},
        {"buckets": [1 << 40], "counts": [1], "max": [1]},
        {"buckets": [1], "counts": [-1], "max": [1]},
        {"buckets": [1], "counts": [1], "max": []},
        {"buckets": ["1"], "counts": [1], "max": [1]},
        {"buckets": [0, 1, 2], "counts": [(1 << 62) - 1] * 3, "max": [2]},  # more than its sum can hold
    ],
)
def test_what_is_no_histogram_is_refused(value: object) -> None:
    """Values of another shape are a FormatError, not a wrong histogram."""
    with pytest.raises(FormatError):
        Histogram.from_value(value)


@pytest.mark.slow
@given(VALUES, st.floats(0, 100))
def test_a_fine_percentile_is_at_most_a_128th_too_high(values: list[int], percent: float) -> None:
    """The benchmark's histogram is exact to 0.8 %, and never too low."""
    histogram = FineHistogram()
    histogram.record(np.array(values, dtype=np.uint64))
    exact = sorted(values)[max(1, int(np.ceil(len(values) * percent / 100))) - 1]
    assert exact <= histogram.percentile(percent) <= exact + exact // 128
    assert FineHistogram.from_value(histogram.to_value()).to_value() == histogram.to_value()


@pytest.mark.slow
@given(VALUES)
def test_steps_are_the_distribution(values: list[int]) -> None:
    """Each step's value has as many values at or below it as the step says; the last one is the largest."""
    histogram = FineHistogram()
    histogram.record(np.array(values, dtype=np.uint64))
    steps = histogram.steps()
    assert steps[-1] == (max(values), len(values))
    assert all(sum(value <= limit for value in values) == count for limit, count in steps)


def test_what_was_counted_since_an_earlier_state() -> None:
    """The counts that were added, with the largest of them to its bucket; of a state that is not an earlier
    one, everything."""
    earlier, later = Histogram(), Histogram()
    for histogram in (earlier, later):
        histogram.record(np.array([7, 1_000_000], dtype=np.uint64))
    later.record(np.array([5, 5, 300], dtype=np.uint64))
    since = later.since(earlier)
    assert len(since) == 3 and since.percentile(50) == 5
    assert 300 <= since.max_value <= 300 * 33 / 32
    assert len(later.since(later)) == 0
    assert len(earlier.since(later)) == len(earlier) and earlier.since(later).max_value == 1_000_000
