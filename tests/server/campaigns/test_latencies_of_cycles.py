"""What a campaign notes of the latencies of a cycle's run."""

from __future__ import annotations

import numpy as np
import pytest

from durability.formats.histogram import Histogram
from durability.formats.run_statistics import Statistics
from durability_server.campaigns.campaign_task import percentile_us


@pytest.mark.parametrize(
    ("commits", "p50", "p99"),
    [(0, None, None), (19, None, None), (30, 100.0, None), (1000, 100.0, 100.0)],
)
def test_percentiles_of_a_cycle_take_enough_commits(
    commits: int, p50: float | None, p99: float | None
) -> None:
    """A cycle that was cut after a few commits adds no p99 that is only their largest, and no p50 of 0."""
    counted = Histogram()
    counted.record(np.full(commits, 100_000, dtype=np.uint64))
    counts = {name: list(values) for name, values in counted.to_value().items()}
    statistics = Statistics(elapsed_s=1.0, operations=(commits,), latency_ns=counts, drives=())
    for percent, wanted in ((50, p50), (99, p99)):
        found = percentile_us(statistics, percent)
        assert found == (None if wanted is None else pytest.approx(wanted, rel=1 / 32))


def test_a_run_without_statistics_has_no_percentiles() -> None:
    """Such as one that was refused."""
    assert percentile_us(None, 50) is None
