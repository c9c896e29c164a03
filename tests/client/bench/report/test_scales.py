"""Axes and labels: that a picture's geometry is what its figures say."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability_client.bench.report.scales import (
    Scale,
    linear_ticks,
    log_bounds,
    log_ticks,
    nines,
    set_apart,
)

_POSITIVE = st.floats(1e-3, 1e12)


@pytest.mark.slow
@given(st.lists(_POSITIVE, min_size=1))
def test_a_logarithmic_axis_holds_all_and_is_never_narrow(quantities: list[float]) -> None:
    """Every quantity lies between the ends, which are a factor of 4 apart at least, and there are ticks."""
    low, high = log_bounds(quantities)
    assert low < min(quantities) <= max(quantities) < high
    assert high / low >= 4 * (1 - 1e-9)
    ticks = log_ticks(low, high)
    assert ticks
    assert all(low <= tick <= high for tick in ticks)
    assert list(ticks) == sorted(set(ticks))


@given(st.floats(0.01, 1e9))
def test_a_linear_axis_has_few_round_ticks(high: float) -> None:
    """Ticks begin at 0, are evenly spaced, and stay within the axis."""
    ticks = linear_ticks(high)
    assert ticks[0] == 0
    assert 2 <= len(ticks) <= 5
    assert ticks[-1] <= high * (1 + 1e-6)


@given(_POSITIVE, _POSITIVE, st.booleans())
def test_places_keep_the_order_and_the_frame(one: float, other: float, log: bool) -> None:
    """More is further along the axis, never outside it; the ends are the ends."""
    scale = Scale(low=1e-3, high=1e12, start=400.0, end=20.0, log=log)
    assert (scale.at(1e-3), scale.at(1e12)) == (400.0, 20.0)
    assert 20.0 <= scale.at(one) <= 400.0
    if one < other:
        assert scale.at(one) >= scale.at(other)
    assert scale.at(1e13) == 20.0


def test_an_axis_without_length_is_refused() -> None:
    """No axis from a number to itself, and no logarithm of 0."""
    for low, high, log in ((1.0, 1.0, False), (0.0, 1.0, True)):
        with pytest.raises(ValueError, match="a scale"):
            Scale(low=low, high=high, start=0, end=1, log=log)


def test_the_tail_is_widened() -> None:
    """p90, p99 and p99.9 are evenly spaced."""
    assert [round(nines(share), 6) for share in (0, 0.9, 0.99, 0.999)] == [0, 1, 2, 3]
    assert math.isclose(nines(0.5), math.log10(2))


@pytest.mark.slow
@given(st.lists(st.floats(0, 300), min_size=1, max_size=8))
def test_labels_are_set_apart_and_keep_their_order(wanted: list[float]) -> None:
    """No two labels overlap, and a line that ends higher has the higher label."""
    places = set_apart(wanted, gap=14, low=4, high=300)
    ordered = sorted(places)
    assert all(after - before >= 14 - 0.11 for before, after in pairwise(ordered))
    assert ordered[0] >= 4 - 0.1
    for index, place in enumerate(places):
        assert all(place <= places[other] for other in range(len(wanted)) if wanted[index] < wanted[other])
