"""Rounds as they are kept: latencies in few characters, counts that agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.bench.catalogue import HEADLINE
from durability.bench.measurement import NO_LATENCIES, DiskWork, Latencies, Round, Work
from durability.bench.summary import merged
from durability.errors import FormatError
from durability.formats.histogram import FineHistogram
from tests.core.bench.results import Device, latencies, make_round

VALUES = st.lists(st.integers(0, 1 << 52), max_size=100)
ROUND = make_round(HEADLINE, Device(), np.random.default_rng(1))


def histogram_of(values: list[int]) -> FineHistogram:
    histogram = FineHistogram()
    histogram.record(np.array(values, dtype=np.uint64))
    return histogram


@pytest.mark.slow
@given(VALUES)
def test_latencies_come_back_as_the_same_histogram(values: list[int]) -> None:
    """The compact form loses nothing."""
    histogram = histogram_of(values)
    kept = Latencies.of(histogram)
    assert kept.histogram().to_value() == histogram.to_value()
    assert len(kept) == len(values)


@pytest.mark.slow
@given(VALUES, VALUES, VALUES)
def test_merging_is_the_same_in_any_order(first: list[int], second: list[int], third: list[int]) -> None:
    """Rounds can be merged one by one, in groups or backwards: the counts are those of all values."""
    parts = [latencies(values) for values in (first, second, third)]
    whole = merged(parts).to_value()
    assert merged(reversed(parts)).to_value() == whole
    assert merged([Latencies.of(merged(parts[:2])), parts[2]]).to_value() == whole
    assert histogram_of(first + second + third).to_value() == whole


@pytest.mark.parametrize(
    "fields",
    [
        {"gaps": (1, 2), "counts": (1,), "max_ns": 3},
        {"gaps": (1, 0), "counts": (1, 1), "max_ns": 1},
        {"gaps": (1,), "counts": (0,), "max_ns": 1},
        {"gaps": (FineHistogram.buckets(),), "counts": (1,), "max_ns": 9},
        {"gaps": (9, 2), "counts": (1, 1), "max_ns": 10},
        {"gaps": (9,), "counts": (1,), "max_ns": 10},
        {"gaps": (), "counts": (), "max_ns": 10},
    ],
)
def test_latencies_that_are_no_histogram_are_refused(fields: dict[str, Any]) -> None:
    """Unequal lengths, a bucket twice, empty or beyond the last one, a largest value that is in another."""
    with pytest.raises(FormatError, match="latencies"):
        Latencies(**fields)


@pytest.mark.parametrize(
    "changes",
    [
        {"commits": 3},
        {"reads": 1, "read_ns": latencies([5, 6])},
        {"sync_ns": latencies([5])},
        {"seconds": 0.0},
        {"bin_s": 0.0},
        {"seconds": 5e-324},
        {"bin_s": 5e-324},
        {"seconds": 1e308},
        {"seconds": float("nan")},
        {"bins": (1,) * 200_001},
    ],
)
def test_a_round_whose_counts_disagree_is_refused(changes: dict[str, Any]) -> None:
    """Latencies are of all commits, or there are none."""
    with pytest.raises(FormatError, match="a round"):
        replace(ROUND, **changes)


def test_a_round_may_have_a_rate_without_latencies() -> None:
    """Another tool tells how many commits it made, and not always how long each took."""
    bare = replace(ROUND, commit_ns=NO_LATENCIES, sync_ns=NO_LATENCIES, seconds=2.0, reads=300)
    assert bare.operations == bare.commits + 300
    assert bare.rate == bare.operations / 2.0


def test_processor_time_is_the_sum_of_what_is_known() -> None:
    """None where nothing is known, which is not 0."""
    disk = DiskWork(name="sda", flushes=None, writes=1.0, write_kib=4.0, reads=0.0)
    work = Work(operations=1, user_us=1.0, system_us=2.5, kernel_us=None, disks=(disk,))
    assert work.cpu_us == 3.5
    assert replace(work, user_us=None, system_us=None).cpu_us is None


def test_a_round_is_a_frozen_value() -> None:
    """A round cannot be changed after it was made."""
    with pytest.raises(AttributeError):
        ROUND.commits = 1  # type: ignore[misc]  # that it is refused is the point
    assert isinstance(ROUND, Round)
