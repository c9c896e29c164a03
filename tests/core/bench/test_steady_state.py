"""Steady or not: SNIA's windows, the last third against the first, and silence about what is too short."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from durability.bench.catalogue import HEADLINE, PACED
from durability.bench.measurement import NO_LATENCIES, Round
from durability.bench.steady_state import steady


def long_round(rates: Sequence[float], *, bin_s: float = 1.0) -> Round:
    """A round with so many operations per second in each bin."""
    bins = tuple(round(rate * bin_s) for rate in rates)
    return Round(
        started_s=0.0,
        seconds=len(bins) * bin_s,
        commits=sum(bins),
        writes=sum(bins),
        reads=0,
        commit_ns=NO_LATENCIES,
        sync_ns=NO_LATENCIES,
        read_ns=NO_LATENCIES,
        bin_s=bin_s,
        bins=bins,
        work=None,
    )


def short_rounds(rates: Sequence[float]) -> list[Round]:
    """A round of a second for each rate."""
    return [long_round([rate]) for rate in rates]


def test_an_even_rate_is_steady() -> None:
    """Noise of some per cent does not matter."""
    rng = np.random.default_rng(3)
    found = steady(HEADLINE, [long_round((10_000 * (1 + rng.normal(0, 0.05, 270))).tolist())])
    assert found.word == "steady" and "windows differ by" in found.reason
    assert len(found.windows) == 5 and found.last_third == pytest.approx(1, abs=0.02)


def test_a_drive_that_throttles_is_not_steady_and_the_moment_is_named() -> None:
    """A fast cache that is full after 41 s shows in windows, thirds, and in words."""
    found = steady(HEADLINE, [long_round([10_855.0] * 41 + [2_100.0] * 229)])
    assert found.word == "NOT STEADY"
    assert "about 41 s in it went from 10,855 to 2,100 per second" in found.reason
    assert found.last_third is not None and found.last_third < 0.4
    assert "the last third ran at" in found.reason


def test_a_slow_decline_is_not_steady() -> None:
    """The fitted line tells what the range alone lets pass."""
    found = steady(HEADLINE, [long_round(np.linspace(10_000, 8_800, 100).tolist())])
    assert found.word == "NOT STEADY" and found.range_share is not None and found.range_share < 0.2
    assert found.slope_share == pytest.approx(-0.1, abs=0.01) and "falls by 1" in found.reason


def test_what_is_just_beyond_a_limit_is_not_rounded_to_it() -> None:
    """A fall just above the limit of 10 % is not printed as 10 %."""
    found = steady(HEADLINE, [long_round(np.linspace(10_000, 8_800, 100).tolist())])
    assert found.reason.startswith("the rate falls by 10.3% over the windows, above 10%; ")


@pytest.mark.parametrize(
    ("rates", "word"),
    [
        ([1000, 1100, 950, 1050, 1000], "steady"),
        ([1000, 1210, 1000, 990, 1000], "NOT STEADY"),
        ([1100, 1070, 1030, 1000, 970], "NOT STEADY"),
        ([2000, 900, 900, 900, 900], "NOT STEADY"),
        ([1000, 1100, 950, 1050, 1000, 1000, 950, 1050], "steady"),
    ],
)
def test_rounds_are_windows_too(rates: list[float], word: str) -> None:
    """Five rounds or more over the run are judged by the same limits, and not more said than they show."""
    found = steady(HEADLINE, short_rounds(rates))
    assert found.word == word and "rounds" in found.reason
    assert found.last_third is None and " s in it" not in found.reason


@pytest.mark.parametrize("rates", [[], [9000.0], [9000.0] * 4, [120.0] * 5])
def test_what_is_too_short_is_not_judged(rates: list[float]) -> None:
    """Few rounds, or few operations, as on a hard disk in a minute, say nothing of steadiness."""
    found = steady(HEADLINE, short_rounds(rates))
    assert found.word == "too short to say" and "needed" in found.reason
    assert found.windows == () and found.range_share is None


def test_a_drive_that_stops_answering_is_not_steady() -> None:
    """Windows with nothing in them are part of the judgement, not too few operations."""
    found = steady(HEADLINE, [long_round([5_000.0] * 60 + [0.0] * 40)])
    assert found.word == "NOT STEADY" and "the last third ran at" in found.reason


@pytest.mark.parametrize(
    ("rates", "word"),
    [
        ([1_900.0] + [0.0] * 29, "NOT STEADY"),
        ([60.0] * 10 + [6.0] * 20, "NOT STEADY"),
        ([60.0] * 10 + [35.0] * 20, "too short to say"),  # slower, and not by half
        ([1.0] * 10 + [0.0] * 20, "too short to say"),  # ten commits: chance may be why
        ([6.0] * 20 + [60.0] * 10, "too short to say"),
        ([0.0] * 30, "too short to say"),
        ([1_900.0] + [0.0] * 10, "too short to say"),
    ],
)
def test_few_operations_do_not_excuse_a_rate_that_collapsed(rates: list[float], word: str) -> None:
    """They are few since it did. What chance may explain is not judged."""
    assert steady(HEADLINE, [long_round(rates)]).word == word


def test_a_rate_that_rises_is_not_steady_either() -> None:
    """A rising rate is not steady."""
    found = steady(HEADLINE, [long_round(np.linspace(5_000, 10_000, 60).tolist())])
    assert found.word == "NOT STEADY" and "rises" in found.reason


def test_a_rate_that_was_given_is_not_judged() -> None:
    """A paced cell keeps its rate with any latencies, so its even rate does not show a steady state."""
    found = steady(PACED, short_rounds([1000.0] * 5))
    assert found.word == "not judged" and "the rate is the pace" in found.reason
    assert found.windows == () and found.range_share is None
