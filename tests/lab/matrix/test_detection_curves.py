"""The curves' points show what hides a lie: too short a delay, and others who flush."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.errors import EXIT_LOSS
from durability_lab.matrix.detection_curves import early_ack_scenarios, flush_skipped_scenarios
from durability_lab.simulated_rig.scenario import Scenario
from durability_lab.simulated_rig.simulation import simulate

CUTS = 20


def caught(scenario: Scenario, seed: int) -> int:
    """How many of a few cuts show the drive."""
    return sum(simulate(scenario, seed=number).exit_code == EXIT_LOSS for number in range(seed, seed + CUTS))


def test_points_differ() -> None:
    """Each is another scenario, and one that can be told in words."""
    points = [*early_ack_scenarios(), *flush_skipped_scenarios()]
    assert len(set(points)) == len(points) == 24
    assert [Scenario.parse(str(point)) for point in points] == points


@pytest.mark.slow
def test_longer_lie_is_caught_more_often(seed: int) -> None:
    """At 50 commits a second one falls into the last 100 ms, and hardly ever into the last one."""
    points = {(point.model, point.rate): point for point in early_ack_scenarios()}
    assert caught(points["early-ack:delay_ms=100", 50.0], seed) == CUTS
    assert caught(points["early-ack:delay_ms=1", 50.0], seed) < CUTS // 2


@pytest.mark.slow
def test_many_writers_hide_a_skipped_flush_that_a_paced_writer_shows(seed: int) -> None:
    """The next flush of anybody makes up for it, before the acknowledgement is out."""
    paced, *_, many = [replace(point, model="flush-skipped") for point in flush_skipped_scenarios()]
    assert (paced.writers, many.writers) == (1, 16)
    assert caught(paced, seed) > caught(many, seed)
