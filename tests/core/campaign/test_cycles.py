"""What cycles draw: the same in every release, and within what the file says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.campaign.cycles import CHECK, arm_of, draw_cycle
from durability.campaign.definition.campaign_file import read_campaign
from durability.campaign.definition.settings import Settings

FILE = """
[campaign]
machine = "b"
seed = {seed}
cut_after_s = [{low}, {high}]
off_s = [10, 40]
[power]
tasmota = "192.0.2.9"
cut_class = "power"
[[drive]]
device = "/dev/sda"
[[arm]]
name = "plain"
[[arm]]
name = "again"
again_after_s = [0.5, 20]
"""

GOLDEN: list[tuple[str, float, float, float | None]] = [
    ("plain", 48.008, 23.271, None),
    ("again", 13.231, 14.882, 6.05),
    ("plain", 83.522, 34.459, None),
    ("again", 14.749, 30.502, 1.645),
]


def settings_of(*, seed: int = 7, low: float = 5, high: float = 90) -> Settings:
    """A campaign with two arms."""
    return read_campaign(FILE.format(seed=seed, low=low, high=high), name="x", seed=seed)


def test_draws_are_the_same_in_any_release() -> None:
    """A campaign that goes on after an upgrade of the server draws as before."""
    drawn = [draw_cycle(settings_of(), cycle, ("sda",)) for cycle in (1, 2, 3, 4)]
    assert [(one.arm, one.cut_after_s, one.off_s, one.again_after_s) for one in drawn] == GOLDEN


def test_check_is_a_cycle_without_a_run() -> None:
    """It is without power for as long as any cycle."""
    check = draw_cycle(settings_of(), CHECK, ("sda",))
    assert (check.cycle, check.arm, check.off_s, check.again_after_s) == (0, "", 40.0, None)


@pytest.mark.slow
@given(
    seed=st.integers(0, (1 << 62) - 1),
    cycle=st.integers(1, 20_000),
    low=st.floats(0, 1000),
    width=st.floats(0, 80_000),
)
def test_draws_lie_within_their_intervals(seed: int, cycle: int, low: float, width: float) -> None:
    """To a millisecond; arms take turns."""
    settings = settings_of(seed=seed, low=low, high=low + width)
    drawn = draw_cycle(settings, cycle, ("sda",))
    low, high = settings.cut_after_s
    assert low - 0.001 <= drawn.cut_after_s <= high + 0.001
    assert 10 <= drawn.off_s <= 40
    assert drawn.again_after_s is None or 0.5 <= drawn.again_after_s <= 20
    assert drawn.arm == arm_of(settings, cycle).name == ("plain", "again")[(cycle - 1) % 2]


@pytest.mark.slow
def test_draws_spread_over_the_interval() -> None:
    """The tenths of the interval have about as many of 1000 cycles each."""
    tenths = [0] * 10
    for cycle in range(1, 1001):
        drawn = draw_cycle(settings_of(low=0, high=10), cycle, ("sda",))
        tenths[min(9, int(drawn.cut_after_s))] += 1
    assert min(tenths) > 60 and max(tenths) < 140
