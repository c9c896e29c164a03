"""After months in a pause, or a long absence of the server, what was not heard is not switched off."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.campaign.definition.settings import Settings
from durability.campaign.log_entries import (
    Abandoned,
    Checked,
    CycleBegan,
    CycleEnded,
    DriveLeft,
    NotBack,
    Paused,
    PowerAsked,
    PowerCameBack,
    PowerFailed,
    PowerWentOff,
    Resumed,
    ShutdownDue,
)
from durability.campaign.steps import Ask, Note
from tests.core.campaign.test_long_pauses import MONTHS_LATER
from tests.core.campaign.told_campaign import (
    OTHER_RUN,
    RUN,
    S,
    ToldCampaign,
    begun,
    condition,
    cut_under_load,
    part,
    told_settings,
)

SILENT_S = 121.0  # a machine of these campaigns has 120 s to boot
WEEK_S = 7 * 86_400.0


def checked_and_armed(settings: Settings) -> ToldCampaign:
    """A campaign that was checked, with an armed run in its first cycle. Its machine is in boot 2."""
    told = ToldCampaign()
    told.begin(settings)
    told.checked()
    told.note()
    told.say(boot="boot-2")
    told.say(part("armed", run=RUN, found=condition(unsafe=6)), boot="boot-2")
    told.note()
    return told


def resumed(told: ToldCampaign, months: bool) -> None:
    """Somebody resumes the campaign, after months or at once."""
    told.wall = MONTHS_LATER if months else told.wall
    told.add(Resumed())


def paused_as_not_back() -> ToldCampaign:
    """The machine does not come back from its cut, nor from another off and on."""
    told = checked_and_armed(told_settings())
    told.cut()
    assert isinstance(told.note(later_s=SILENT_S, silent_s=SILENT_S), NotBack)
    told.cut()
    assert isinstance(told.note(later_s=SILENT_S, silent_s=SILENT_S), Paused)
    return told


@pytest.mark.parametrize("months", [True, False])
def test_outlet_of_a_machine_that_is_missing_for_months_stays_on(months: bool) -> None:
    """Another machine may be at it by now: it is asked for its state alone, and the campaign pauses again.
    After a short pause the machine is switched off and on once more."""
    told = paused_as_not_back()
    resumed(told, months)
    assert told.state.check_due == months
    if not months:
        assert isinstance(told.note(later_s=SILENT_S, silent_s=SILENT_S), NotBack)
        return
    assert told.steps(later_s=SILENT_S, silent_s=SILENT_S) == [Ask(0, "status")]
    assert isinstance(told.note(later_s=SILENT_S, silent_s=SILENT_S), Paused)
    assert not any(isinstance(step, Ask) for step in told.steps())


def test_machine_that_is_heard_after_months_is_checked_before_its_next_cut() -> None:
    """Its run is verified, and its cycle ends; then the check comes."""
    told = paused_as_not_back()
    resumed(told, months=True)
    told.say(boot="boot-3")
    told.say(part("done", run=RUN, found=condition(unsafe=8)), boot="boot-3")
    told.judge(verdict="durable")
    assert told.ended().drives[0].word == "durable"
    check = told.note()
    assert isinstance(check, CycleBegan) and check.cycle == 0


def test_check_after_months_asks_only_switches_of_machines_that_take_part() -> None:
    """A machine whose drive has left may be gone, and its switch with it."""
    told = begun(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"))
    told.add(Abandoned(cause="operator", text="a pause"), CycleEnded(cycle=1, drives=()))
    told.add(DriveLeft(drive="d1", reason="it is gone"), Paused(reason=""))
    resumed(told, months=True)
    check = told.note()
    assert isinstance(check, CycleBegan) and (check.cycle, check.drives) == (0, ("d0",))
    assert told.steps() == [Ask(0, "check")]


def test_machine_without_power_is_switched_on_after_months() -> None:
    """A machine whose outlet reports off is switched on even after months, because that does no harm."""
    told = paused_as_not_back()
    resumed(told, months=True)
    told.now_ns += int(SILENT_S * 1e9)
    assert told.steps(silent_s=SILENT_S) == [Ask(0, "status")]
    told.add(PowerAsked(switch=0, operation="status"), told._answered(0, "off"))
    assert told.steps(silent_s=SILENT_S) == [Ask(0, "on")]


@pytest.mark.parametrize("away_s", [0.0, WEEK_S])
def test_server_that_was_away_for_long_switches_no_missing_machine_off(away_s: float) -> None:
    """It went as the machine booted. The machine has its time once more to be heard, and its switch is only
    asked for its state then. A server that was there all the time switches it off and on."""
    told = cut_under_load()
    (step,) = told.steps(later_s=away_s + SILENT_S, silent_s=SILENT_S, up_s=SILENT_S if away_s else None)
    assert step == (Ask(0, "status") if away_s else Note(NotBack(machine="b")))


@pytest.mark.parametrize(("away_s", "heard"), [(0.0, False), (WEEK_S, False), (WEEK_S, True)])
def test_server_that_was_away_for_long_cuts_no_machine_that_was_shut_down(away_s: float, heard: bool) -> None:
    """If the server was away while a machine shut down, the machine is not cut, because someone may have
    booted it since. It is cut if it was heard and then shut down."""
    told = begun(moment="shutdown")
    told.say(part("armed", run=RUN, found=condition(unsafe=6)))
    told.note()
    assert isinstance(told.note(later_s=100.0), ShutdownDue)
    told.say(part("done", run=RUN))
    up_s = 300.0 if away_s else None
    (step,) = told.steps(later_s=away_s + 300.0, silent_s=200.0 if heard else 300.0, up_s=up_s)
    away = Note(PowerFailed(on=False, reason="the server was away when the power was to go"))
    assert step == (away if away_s and not heard else Ask(0, "off"))


@pytest.mark.parametrize("months", [True, False])
def test_second_off_does_not_come_after_months(months: bool) -> None:
    """The power did not come back from the first off of an arm with two, and the campaign paused."""
    settings = told_settings()
    again = replace(settings.arms[0], again_after_s=(5.0, 5.0))
    told = checked_and_armed(replace(settings, arms=(again,)))
    cycle = told.state.cycle
    assert cycle is not None
    told.add(PowerAsked(switch=0, operation="off"), told._answered(0, "off"))
    told.add(PowerWentOff(asked_ns=1, confirmed_ns=2, runs=(RUN,)), PowerAsked(switch=0, operation="on"))
    told.add(PowerFailed(on=True, reason="it stays off"), Paused(reason="it stays off"))
    resumed(told, months)
    told.add(PowerAsked(switch=0, operation="on"), PowerCameBack())
    assert cycle.phase == "again"
    (step,) = told.steps(later_s=6.0)
    if months:
        text = "no check or cut for 30 days: the check comes first"
        assert step == Note(PowerFailed(on=False, reason=text))
    else:
        assert step == Ask(0, "off")


def test_second_off_does_not_come_once_a_machine_kept_its_power() -> None:
    """If a machine turns out to have kept its power at the first off, there is no second off; the other
    machine verifies."""
    settings = told_settings(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"))
    told = ToldCampaign()
    told.begin(replace(settings, arms=(replace(settings.arms[0], again_after_s=(60.0, 60.0)),)))
    told.add(Checked(problems=()))
    told.note()
    for machine, drive, run in (("b", "d0", RUN), ("c", "d1", OTHER_RUN)):
        told.say(machine=machine)
        told.say(part("armed", drive=drive, run=run, found=condition(drive)), machine=machine)
    told.note()
    told.cut()
    cycle = told.state.cycle
    assert cycle is not None and cycle.phase == "again"
    told.now_ns += 30 * S
    told.say(machine="c")
    told.say(boot="boot-2")
    for later_s in (0.0, 61.0):
        assert told.steps(later_s=later_s) == [Note(PowerCameBack())]
    told.add(PowerCameBack())
    assert (cycle.phase, told.task("b").kind, cycle.offs) == ("back", "verify", 1)
