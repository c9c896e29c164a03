"""Shortened histories of campaigns that went wrong once: what was counted, asked or overwritten wrongly."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from durability.campaign.log_entries import (
    Abandoned,
    Checked,
    CycleBegan,
    CycleEnded,
    DriveLeft,
    Entry,
    Happening,
    Judged,
    NotBack,
    Paused,
    Resumed,
    StillThere,
)
from durability.campaign.progress import Pace
from tests.core.campaign.campaign_world import RunTruth, World, log_of, settings_of, until, until_phase, words
from tests.core.campaign.told_campaign import NEW_YEAR, ToldCampaign, condition, part, told_settings


def test_machine_that_restarts_by_itself_does_not_run_again_in_the_same_cycle() -> None:
    """A second run would overwrite the armed one before its verdict."""
    world = World(settings_of(drives=("b",), switches=1, cut_after_s=(60, 60)))
    until_phase(world, "load")
    begun = len(world.runs)
    world.machines["b"].crash()
    until(world, Abandoned)
    until(world, CycleEnded, 2)
    assert len(world.runs) == begun
    assert words(world) == [["nothing"]]
    assert world.finish() == "complete"


def test_drive_that_was_verified_is_not_verified_again() -> None:
    """One machine is verified, the other does not come back and is switched off and on, and the first one
    with it: what was verified counts, though its files are gone."""
    world = World(settings_of(drives=("b", "c"), switches=1, cuts=1))
    until_phase(world, "load")
    until_phase(world, "on")
    world.machines["c"].hangs = True
    until_phase(world, "off")
    assert len(world.verdicts) == 1
    assert words(world) == []
    tasks = len(world.machines["b"].tasks)
    assert world.finish() == "complete"
    assert all(not task.drives for task in world.machines["b"].tasks[tasks:] if task.kind == "verify")
    assert words(world)[0] == ["durable", "durable"]


@pytest.mark.slow
def test_server_that_was_away_gives_a_machine_its_time_to_be_heard() -> None:
    """It was away for longer than a boot may take, and the machine had been up all the time: it is not cut
    for that."""
    world = World(settings_of(drives=("b",), switches=1, cuts=1))
    until_phase(world, "back")
    offs = world.switches[0].asked.count(("off", "obeys"))
    world.down_s = 200.0
    world.kill_server()
    assert world.finish() == "complete"
    assert not any(isinstance(one, NotBack) for one in log_of(world))
    assert world.switches[0].asked.count(("off", "obeys")) == offs


@pytest.mark.slow
def test_stop_in_a_pause_counts_what_was_found() -> None:
    """One machine has lost data and the other does not come back: the campaign pauses, an operator stops it,
    and the loss is in its results."""
    world = World(settings_of(drives=("b", "c"), switches=2, cuts=2))
    world.words = ["loss"]
    until_phase(world, "on")
    world.machines["c"].cut_off = True
    until(world, Paused)
    world.server.pause(stop=True)
    world.until_still(20_000.0)
    assert world.is_over
    assert words(world) == [["loss", "nothing"]]


def test_run_that_is_armed_after_the_off_was_not_cut() -> None:
    """A run whose armed report arrives after the power-off was not cut: its verdict does not count for this
    cycle."""
    world = World(settings_of(drives=("b", "b"), switches=1, cuts=1))
    until_phase(world, "run")
    world.gone.add("d1")
    until_phase(world, "rest")
    world.gone.clear()
    machine = world.machines["b"]
    run = next(one for one in machine.said[-1][0].drives if one.drive == "d0")
    late = replace(run, drive="d1", run="00000000000000aa", state="armed", trouble="")
    world.verdicts[late.run] = replace(world.nothing("d1", late.run), verdict="durable", cut_class="power")
    world.on_drive["d1"] = late.run
    world.runs[late.run] = RunTruth("d1")
    world.server.hear("b", replace(machine.said[-1][0], drives=(late,)))
    until(world, CycleEnded, 2)
    assert words(world) == [["durable", "nothing"]]


def test_machine_that_is_heard_again_in_a_pause_runs_after_it() -> None:
    """Its network failed before its run began, for longer than it has to be heard. Meanwhile nothing is
    written, and then the cycle counts."""
    world = World(settings_of(drives=("b",), switches=1, cuts=1))
    until(world, CycleEnded)
    world.machines["b"].cut_off = True
    world.until_still(1000.0)
    world.machines["b"].cut_off = False
    world.advance(300.0)
    assert not world.runs
    assert world.finish() == "complete"
    assert words(world) == [["durable"]]


def test_resumed_campaign_gives_a_machine_its_time_to_boot() -> None:
    """People mend the machine and resume: it is not switched off again while it boots."""
    world = World(settings_of(drives=("b",), switches=1, cuts=1))
    until_phase(world, "on")
    world.machines["b"].cut_off = True
    until(world, Paused)
    offs = world.switches[0].asked.count(("off", "obeys"))
    world.machines["b"].cut_off = False
    world.machines["b"].reset()
    world.server.resume()
    assert world.finish() == "complete"
    assert world.switches[0].asked.count(("off", "obeys")) == offs


def test_drive_that_never_says_anything_does_not_keep_the_others() -> None:
    """A drive whose verdicts are all inconclusive leaves the campaign, and the other drives get their
    cuts."""
    world = World(settings_of(drives=("b", "b"), switches=1, cuts=8))
    world.words = ["inconclusive", "durable"] * 40
    assert world.finish() == "complete"
    assert [one.drive for one in log_of(world) if isinstance(one, DriveLeft)] == ["d0"]


def test_status_of_an_earlier_boot_is_not_a_start() -> None:
    """A message from before the cut that comes late does not make the machine begin its verify again."""
    world = World(settings_of(drives=("b",), switches=1))
    until_phase(world, "back")
    world.advance(21.0)
    seen = world.server.state.machines["b"]
    world.machines["b"].say_again(15)
    assert world.server.state.machines["b"] == seen


def test_earlier_boot_that_goes_on_asking_is_no_sign_of_life() -> None:
    """A copy of the machine, in an older boot, asks again and again while the machine itself is away: the
    campaign does not wait for it."""
    world = World(settings_of(drives=("b",), switches=1))
    until_phase(world, "run")
    machine = world.machines["b"]
    machine.cut_off = True
    copy = replace(machine.said[-1][0], boot_id="b-1", task=0, drives=())
    for _ in range(20):
        world.server.hear("b", copy)
        world.advance(10.0)
    assert world.server.state.reason.startswith("machine b has not asked for its task for 120 s")


def test_first_status_of_an_earlier_boot_that_comes_late_is_not_a_start() -> None:
    """A machine boots twice. What it said first in its first boot reaches a server that stood still only when
    it has asked in its second boot, in which it goes on to be heard."""
    told = ToldCampaign()
    told.begin(told_settings())
    told.note()
    told.say()
    heard = told.state.number
    told.cut()
    assert told.say(boot="boot-3").kind == "examine"
    seen = told.state.machines["b"]
    assert told.say(boot="boot-2", answered=0).kind == "wait"
    assert told.say(boot="boot-2", answered=heard).kind == "wait"
    assert told.state.machines["b"] == seen
    assert told.say(boot="boot-3").kind == "examine"


def test_boot_is_heard_once_its_agent_was_answered() -> None:
    """The first status after a boot may be of any time and is not used. The second one follows an answer and
    is used."""
    told = ToldCampaign()
    told.begin(told_settings())
    told.note()
    told.say()
    told.cut()
    assert told.say(boot="boot-2", answered=0).kind == "wait"
    assert told.state.machines["b"].boot_id == "boot-1"
    assert told.say(boot="boot-2").kind == "examine"


def test_drive_that_was_verified_at_the_second_try_counts() -> None:
    """It went away during its verify, which failed and left no verdict; after another boot it is a loss."""
    world = World(settings_of(drives=("b", "c"), switches=2, cuts=1))
    world.words = ["loss"]
    until_phase(world, "on")
    world.machines["c"].cut_off = True
    while not any(task.kind == "verify" for task in world.machines["b"].tasks):
        world.agenda.step()
    world.gone.add("d0")
    until(world, Judged)
    world.gone.clear()
    world.machines["b"].crash()
    until(world, Judged, 2)
    world.machines["c"].cut_off = False
    until(world, CycleEnded, 2)
    assert words(world) == [["loss", "durable"]]


@pytest.mark.parametrize(
    ("after", "problem"), [(6, ""), (5, "stayed at 5"), (3, "fell from 5 to 3"), (9, "rose by 4")]
)
def test_count_of_unsafe_shutdowns_must_rise_with_the_cuts(after: int, problem: str) -> None:
    """In the check, one cut: a count that does anything else shows no cut of this drive's power."""
    told = ToldCampaign()
    told.begin(told_settings())
    told.note()
    told.say(part("done", found=condition(unsafe=5)))
    told.cut()
    told.say(boot="boot-2")
    told.say(part("done", found=condition(unsafe=after)), boot="boot-2")
    told.note()
    assert told.state.checked is not None
    problems = "; ".join(told.state.checked.problems)
    assert problem in problems and bool(problems) == bool(problem), problems


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        (8, ""),
        (9, ""),
        (7, "its count of power cycles stayed at 7, so it kept its power"),
        (5, "its count of power cycles fell from 7 to 5"),
        (None, "it no longer reports its count of power cycles"),
    ],
)
def test_count_of_power_cycles_must_rise_where_there_is_no_other(after: int | None, problem: str) -> None:
    """The drive does not count unsafe shutdowns: a count of power cycles that does not rise shows no cut of
    its power."""
    told = ToldCampaign()
    told.begin(told_settings(), check_only=True)
    told.note()
    told.say(part("done", found=condition(unsafe=None, cycles=7)))
    told.cut()
    told.say(boot="boot-2")
    told.say(part("done", found=condition(unsafe=None, cycles=after)), boot="boot-2")
    found = told.note()
    assert isinstance(found, Checked)
    problems = "; ".join(found.problems)
    assert problem in problems and bool(problems) == bool(problem), problems


def test_pauses_are_no_part_of_what_a_cycle_takes() -> None:
    """Ten hours for the night make the next cycle no longer."""
    pace, at = Pace(), datetime.fromisoformat(NEW_YEAR)
    steps: list[tuple[Happening, float]] = [
        (CycleBegan(cycle=1, arm="load", cut_after_s=1, off_s=1, again_after_s=None, drives=()), 0),
        (Resumed(), 20),  # takes back a pause that had not begun
        (Paused(reason="look"), 40),
        (Resumed(), 36_000),
        (CycleEnded(cycle=1, drives=()), 40),
        (Paused(reason="night"), 0),
        (Resumed(), 36_000),
    ]
    for number, (happening, later_s) in enumerate(steps, 1):
        at += timedelta(seconds=later_s)
        pace.apply(
            Entry(number=number, at_ns=number, boot_id="server", wall=at.isoformat(), happening=happening)
        )
    assert pace.took_s == {"load": 100}


def test_status_that_comes_late_is_no_sign_of_life() -> None:
    """A switch says that it is on and is not. What the machine said before its power went is heard long after
    that: it does not let the campaign wait for a verify of a machine without power."""
    world = World(settings_of(drives=("b",), switches=1, cuts=1))
    world.advance(100.0)
    world.switches[0].manner = "lies"
    world.advance(40.0)
    machine = world.machines["b"]
    machine.hangs = True
    machine.say_again(0)
    assert not any(isinstance(one, StillThere) for one in log_of(world))
    assert world.finish() == "complete"
