"""How long a campaign still takes: its arms may differ by orders of magnitude, and cycles may be left out."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycles import draw_cycle
from durability.campaign.definition.settings import Settings
from durability.campaign.log_entries import (
    Began,
    Checked,
    CycleEnded,
    DriveCycle,
    Entry,
    Happening,
    NotBack,
    PowerAsked,
    PowerCameBack,
    PowerWentOff,
    ShutdownDue,
)
from durability.campaign.progress import Pace, expected_s, is_dark, left_s
from tests.core.campaign.told_campaign import NEW_YEAR, OTHER_RUN, RUN, begun, part, told_settings
from tests.core.campaign.written_log import said

DAY_S = 86_400.0
BOOT_AND_VERIFY_S = 150.0


def with_a_rest() -> Settings:
    """Two arms of minutes, and one that rests for a day or two."""
    settings = told_settings(moments=("load",) * 3)
    arms = [replace(arm, off_s=(10.0, 40.0)) for arm in settings.arms]
    return replace(settings, cuts=60, arms=(*arms[:2], replace(arms[2], off_s=(DAY_S, 2 * DAY_S))))


def takes_s(settings: Settings, cycle: int) -> float:
    """What a cycle takes, by what it draws."""
    drawn = draw_cycle(settings, cycle, ("d0",))
    return drawn.cut_after_s + drawn.off_s + BOOT_AND_VERIFY_S


class Told:
    """A campaign that goes on by whole cycles, and its pace."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.state, self.pace = CampaignState(), Pace()
        self.at = datetime.fromisoformat(NEW_YEAR)
        self.cycle = 0
        self._add(Began(settings=settings, check_only=False))
        self._add(Checked(problems=()))

    def _add(self, happening: Happening) -> None:
        number, wall = self.state.number + 1, self.at.isoformat()
        entry = Entry(number=number, at_ns=number, boot_id="server", wall=wall, happening=happening)
        self.state.apply(entry)
        self.pace.apply(entry)

    def go_on(self, *mine: DriveCycle) -> None:
        """A cycle, which takes as long as it draws."""
        self.cycle += 1
        self._add(draw_cycle(self.settings, self.cycle, ("d0",)))
        self.at += timedelta(seconds=takes_s(self.settings, self.cycle))
        self._add(CycleEnded(cycle=self.cycle, drives=mine))

    @property
    def left_s(self) -> float:
        """What is said to be left."""
        left = left_s(self.state, took_s=self.pace.took_s)
        assert left is not None
        return left


@pytest.mark.parametrize("cycles", [0, 1, 2, 3, 4, 30, 59])
def test_each_cycle_to_come_takes_what_its_arm_takes(cycles: int) -> None:
    """Long rests are foreseen before the first of them, and not counted again after the last."""
    told = Told(with_a_rest())
    for number in range(1, cycles + 1):
        told.go_on(said("durable", number))
    truth = sum(takes_s(told.settings, cycle) for cycle in range(cycles + 1, 61))
    assert told.left_s == pytest.approx(truth, rel=0.35)
    if not cycles:
        assert told.left_s == expected_s(told.settings, cycles=60)


def test_few_cuts_do_not_come_to_the_long_arm() -> None:
    """Two cuts are two of the short arms."""
    assert expected_s(replace(with_a_rest(), cuts=2), cycles=2) < 600
    assert expected_s(with_a_rest(), cycles=3) > DAY_S


def test_as_many_cycles_are_left_out_as_so_far() -> None:
    """Half of them gave no result, so about twice as many are to come as cuts."""
    settings = replace(told_settings(), cuts=40)
    told = Told(settings)
    for number in range(1, 21):
        told.go_on(said("durable", number) if number % 2 else said("nothing"))
    took_s = sum(takes_s(settings, cycle) for cycle in range(1, 21)) / 20
    assert told.left_s == pytest.approx(60 * took_s, rel=0.06)


def test_first_cycle_without_a_result_says_little() -> None:
    """It does not make the rest endless."""
    told = Told(replace(told_settings(), cuts=40))
    whole_s = told.left_s
    told.go_on(said("nothing"))
    assert whole_s < told.left_s < 2.5 * whole_s


# A machine whose silence is on purpose.


def test_machine_without_power_is_dark() -> None:
    """From the request to go off until its switch says that it is on. Another machine is not."""
    told = begun(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"))
    told.say(part("armed", run=RUN))
    told.say(part("armed", drive="d1", run=OTHER_RUN), machine="c")
    told.note()
    assert not is_dark(told.state, "b")
    told.cut()
    told.say(boot="boot-2", machine="c")
    assert isinstance(told.note(later_s=121, silent={"b": 121.0, "c": 0.0}), NotBack)
    for happening in (
        PowerAsked(switch=0, operation="off"),
        told._answered(0, "off"),
        PowerWentOff(asked_ns=1, confirmed_ns=2, runs=()),
        PowerAsked(switch=0, operation="on"),
    ):
        told.add(happening)
        assert (is_dark(told.state, "b"), is_dark(told.state, "c")) == (True, False)
    told.add(PowerCameBack())
    assert not is_dark(told.state, "b")


def test_machine_whose_drive_is_cut_alone_is_never_dark() -> None:
    """It keeps its power."""
    told = begun(subject="drive")
    told.say(part("armed", run=RUN))
    told.note()
    told.add(PowerAsked(switch=0, operation="off"))
    assert not is_dark(told.state, "b")


def test_machine_that_shuts_down_is_dark() -> None:
    """Its agent ends with it."""
    told = begun(moment="shutdown")
    told.say(part("armed", run=RUN))
    told.note()
    assert isinstance(told.note(later_s=100), ShutdownDue)
    assert is_dark(told.state, "b")
