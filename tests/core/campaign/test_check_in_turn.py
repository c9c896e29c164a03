"""The check cuts machines that share no switch one after the other: each switch is shown to be its
machine's."""

from __future__ import annotations

import pytest

from durability.campaign.happenings import (
    Checked,
    CycleEnded,
    DriveReported,
    PauseAsked,
    Paused,
    PowerAnswered,
    PowerAsked,
)
from durability.campaign.next_steps import Ask, Note, WaitFor
from tests.core.campaign.campaign_world import World, settings_of
from tests.core.campaign.test_campaign_defects import log_of, until
from tests.core.campaign.told_campaign import ToldCampaign, condition, part, told_settings


def test_swapped_outlets_do_not_pass() -> None:
    """The outlet of b has c, and that of c has b: b goes on while its own is off, and nothing more is cut."""
    world = World(settings_of(drives=("b", "c"), own=True))
    first, second = world.switches
    first.go, second.go = second.go, first.go
    assert world.finish() == "the check failed"
    (checked,) = [one for one in log_of(world) if isinstance(one, Checked)]
    assert checked.problems == (
        "the switch said that it was off, and machine b kept running without a restart",
    )
    assert [operation for operation, _ in second.asked] == ["check"]
    assert world.machines["b"].boots == 1


def test_second_machine_is_cut_once_the_first_was_examined_again() -> None:
    """Each is without power once, and the check passes."""
    world = World(settings_of(drives=("b", "c"), own=True))
    until(world, Checked)
    seen = [
        f"{one.operation} {one.switch}" if isinstance(one, PowerAsked) else one.status.drive
        for one in log_of(world)
        if (isinstance(one, PowerAsked) and one.operation in ("on", "off"))
        or (isinstance(one, DriveReported) and one.status.state == "done")
    ]
    assert sorted(seen[:2]) == ["d0", "d1"]
    assert seen[2:] == ["off 0", "on 0", "d0", "off 1", "on 1", "d1"]
    assert world.server.state.checked == log_of(world)[-1] and not world.server.state.checked.problems


def test_machines_with_a_common_switch_are_cut_together() -> None:
    """Two machines behind one outlet, and a third with its own."""
    world = World(settings_of(drives=("b", "c", "d"), own=True, group=True))
    until(world, Checked)
    assert [sum(operation == "off" for operation, _ in switch.asked) for switch in world.switches] == [1, 1]
    assert [machine.boots for machine in world.machines.values()] == [2, 2, 2]


def test_drives_that_are_cut_alone_are_cut_together() -> None:
    """Their machines run on, so nothing tells one switch from another."""
    world = World(settings_of(drives=("b", "c"), own=True, subject="drive"))
    until(world, Checked)
    asked = [one.switch for one in log_of(world) if isinstance(one, PowerAsked) and one.operation == "off"]
    assert asked == [0, 1]


def both_examined() -> ToldCampaign:
    """A check of two machines with a drive and a switch each, before any power goes."""
    told = ToldCampaign()
    told.begin(told_settings(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc")), check_only=True)
    told.note()
    for machine, drive in (("b", "d0"), ("c", "d1")):
        told.say(machine=machine)
        told.say(part("done", drive=drive, found=condition(drive)), machine=machine)
    return told


def first_is_back(unsafe: int) -> ToldCampaign:
    """A check of two machines, of which the first was cut and is examined again, with this count."""
    told = both_examined()
    told.cut(0)
    told.say(boot="boot-2")
    told.say(part("done", found=condition("d0", unsafe=unsafe)), boot="boot-2")
    return told


def test_second_machine_is_not_cut_after_a_problem_of_the_first() -> None:
    """Its drive kept its power."""
    told = first_is_back(6)
    assert told.steps(later_s=50, silent={"b": 0.0, "c": 50.0}) == [WaitFor(1.0)]
    assert told.steps() == [Ask(1, "off")]
    found = first_is_back(5).note()
    assert isinstance(found, Checked) and "stayed at 5" in found.problems[0]


@pytest.mark.parametrize("silent_s", [0.0, 200.0])
def test_machine_whose_turn_comes_is_heard_meanwhile(silent_s: float) -> None:
    """It is not missing, since it was not cut; if it falls silent, people must look before its power goes."""
    told = both_examined()
    for switch in (0, 1):
        on = PowerAnswered(
            switch=switch,
            operation="check",
            outcome="on",
            text="",
            began_ns=told.now_ns,
            ended_ns=told.now_ns,
        )
        told.add(PowerAsked(switch=switch, operation="check"), on)
    assert told.steps(later_s=30, silent={"b": 0.0, "c": 30.0}) == [WaitFor(1.0)]
    assert told.steps(later_s=30) == [Ask(0, "off")]
    told.cut(0)
    told.say(boot="boot-2")
    (step,) = told.steps(later_s=200, silent={"b": 0.0, "c": silent_s})
    paused = step.happening if isinstance(step, Note) else None
    assert isinstance(paused, Paused) == bool(silent_s)


def test_pause_between_two_cuts_of_the_check() -> None:
    """The second machine keeps its power, and the check will be made again."""
    told = first_is_back(6)
    told.add(PauseAsked(stop=False))
    assert isinstance(told.note(), CycleEnded)
    assert isinstance(told.note(), Paused)
    assert told.state.checked is None
