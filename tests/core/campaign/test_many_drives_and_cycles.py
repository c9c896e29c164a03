"""What it costs to see what comes after a cycle: a server with many drives has other clients meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType

import pytest

from durability.campaign.between_cycles import between_cycles
from durability.campaign.campaign_state import CampaignState, PastCycle
from durability.campaign.cycles import draw_cycle
from durability.campaign.definition.settings import Settings
from durability.campaign.log_entries import Checked, CycleBegan, DriveCycle, Ended, Happening, Paused
from tests.core.campaign.told_campaign import NEW_YEAR, told_settings


class Searched(tuple[DriveCycle, ...]):
    """What a cycle says of its drives; each one that is looked at is a call."""

    def __iter__(self) -> Iterator[DriveCycle]:
        yield from super().__iter__()


def settings_of(drives: int, *, cuts: int) -> Settings:
    """Two drives on each machine."""
    machines = tuple(f"m{number}" for number in range(drives // 2))
    devices = tuple(f"/dev/disk/by-id/{number}" for number in range(drives))
    return replace(told_settings(machines=machines, devices=devices), cuts=cuts)


def past(settings: Settings, cycle: int, *, cause: str | None = None) -> PastCycle:
    """A cycle that was clean for every drive, or left out for all with that cause."""
    names = tuple(drive.name for drive in settings.drives)
    word = "durable" if cause is None else "nothing"
    return PastCycle(
        began=draw_cycle(settings, cycle, names),
        drives=Searched(
            DriveCycle(drive=name, word=word, cause=cause, text=f"{name}-{cycle}", run="", cut=cause is None)  # type: ignore[arg-type]
            for name in names
        ),
        judged={},
        statuses={},
        wall=NEW_YEAR,
    )


def state_of(settings: Settings, *cycles: PastCycle) -> CampaignState:
    """After these cycles."""
    state = CampaignState()
    state.settings, state.checked, state.checked_at = settings, Checked(problems=()), NEW_YEAR
    state.check_only = False
    state.cycles.extend(cycles)
    return state


def calls_of(state: CampaignState) -> tuple[int, Happening]:
    """How many functions are called, and values taken of generators, until the next entry is known; the
    entry."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        happening = between_cycles(state)
    finally:
        sys.setprofile(None)
    return calls, happening


@pytest.mark.parametrize("cuts", [9999, 40])
def test_next_cycle_costs_no_more_than_drives_times_cycles(cuts: int) -> None:
    """Four times as many drives make at most four times as much of it, also where all have their cuts."""
    counted = []
    for drives in (8, 32):
        settings = settings_of(drives, cuts=cuts)
        calls, happening = calls_of(state_of(settings, *(past(settings, one) for one in range(1, 41))))
        assert isinstance(happening, CycleBegan if cuts > 40 else Ended)
        counted.append(calls)
    few, many = counted
    assert many < 5 * few


def test_only_the_newest_cycles_that_say_something_count() -> None:
    """A cycle that does not show whether a machine was cut says nothing, and one from before a clean one is
    past."""
    settings = settings_of(4, cuts=9)
    no_cut = [past(settings, one, cause="not-a-cut") for one in (1, 2, 3)]
    clean, unknown = past(settings, 4), past(settings, 5, cause="operator")
    assert isinstance(between_cycles(state_of(settings, *no_cut[:2], clean, unknown)), CycleBegan)
    assert isinstance(between_cycles(state_of(settings, clean, no_cut[0], unknown)), CycleBegan)
    paused = between_cycles(state_of(settings, clean, no_cut[0], unknown, no_cut[2], unknown))
    assert paused == Paused(reason="the last 2 cuts did not remove power: d0: d0-3")
