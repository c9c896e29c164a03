"""A switch that goes off long after it was asked: no machine stays without power, unless people are told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from durability.campaign.log_entries import (
    Abandoned,
    CycleEnded,
    Ended,
    Operation,
    PauseAsked,
    Paused,
    PowerAnswered,
    PowerAsked,
    PowerCameBack,
    PowerFailed,
    Resumed,
    SwitchOutcome,
)
from durability.campaign.steps import Ask, LookUp, Step, WaitFor
from durability_lab.simulated_rig.virtual_time import S
from tests.core.campaign.campaign_world import World, log_of, settings_of, until, until_phase, words
from tests.core.campaign.told_campaign import RUN, ToldCampaign, begun, judged, part

SILENT_S = 121.0  # a machine of these campaigns has 120 s to boot
UNJUDGED = (
    f"; run {RUN} of d0 has no verdict: on b, mount /dev/sdb at DIRECTORY and type `durability verify"
    f" DIRECTORY/target --run {RUN}`"
)
NAME = "Tasmota 192.0.2.1"


def ask(told: ToldCampaign, operation: Operation, outcome: SwitchOutcome) -> None:
    """The switch is asked, and answers."""
    told.add(PowerAsked(switch=0, operation=operation))
    told.add(
        PowerAnswered(
            switch=0,
            operation=operation,
            outcome=outcome,
            text="no answer" if outcome == "failed" else "",
            began_ns=told.now_ns,
            ended_ns=told.now_ns,
        )
    )


def silence(told: ToldCampaign, later_s: float = SILENT_S) -> Sequence[Step]:
    """The machine says nothing for so long; what is next then."""
    told.now_ns += int(later_s * S)
    return told.steps(silent_s=SILENT_S)


def look_up(told: ToldCampaign) -> None:
    """There is no verdict on the run."""
    assert told.steps(silent_s=SILENT_S) == [LookUp("d0", RUN)]
    told.add(judged("d0", RUN, ""))


def off_is_queued() -> ToldCampaign:
    """The switch takes its request to go off, and does not say for long enough whether it did; on is sent,
    and the switch says that it is on, since it has not yet gone off."""
    told = begun()
    told.say(part("armed", run=RUN))
    told.note()
    ask(told, "off", "done")
    for _ in range(3):
        ask(told, "status", "failed")
    assert isinstance(told.note(later_s=5), PowerFailed)
    ask(told, "on", "done")
    ask(told, "status", "on")
    assert isinstance(told.note(), PowerCameBack)
    return told


def test_switch_of_a_machine_that_fell_silent_is_looked_at_and_switched_on() -> None:
    """The off that was queued is executed while the machine verifies: it is switched on, boots, verifies."""
    told = off_is_queued()
    assert silence(told) == [Ask(0, "status")]
    ask(told, "status", "off")
    assert told.steps(silent_s=SILENT_S) == [Ask(0, "on")]
    ask(told, "on", "done")
    assert told.steps(silent_s=SILENT_S, later_s=3) == [Ask(0, "status")]
    ask(told, "status", "on")
    assert isinstance(told.note(silent_s=SILENT_S), PowerCameBack)
    told.now_ns += 30 * S
    assert told.say(boot="boot-2").kind == "verify"
    told.say(part("done", run=RUN), boot="boot-2")
    told.judge(verdict="durable")
    assert [(mine.word, mine.cause) for mine in told.ended().drives] == [("nothing", "switch")]


def test_pause_for_a_silent_machine_says_what_its_switch_says() -> None:
    """It is on, so its console is to be looked at. After `resume`, and before the end, it is asked again."""
    told = off_is_queued()
    assert silence(told) == [Ask(0, "status")]
    ask(told, "status", "on")
    paused = told.note(silent_s=SILENT_S)
    assert isinstance(paused, Paused)
    assert paused.reason.endswith(f" ({NAME} says that it is on)")
    told.add(Resumed())
    assert silence(told) == [Ask(0, "status")]
    ask(told, "status", "on")
    assert isinstance(told.note(silent_s=SILENT_S), Paused)
    told.add(PauseAsked(stop=True))
    assert silence(told) == [Ask(0, "status")]
    ask(told, "status", "on")
    look_up(told)
    assert isinstance(told.note(silent_s=SILENT_S), CycleEnded)
    ended = told.note(silent_s=SILENT_S)
    assert isinstance(ended, Ended) and ended.reason == f"stopped{UNJUDGED}"


@pytest.mark.parametrize("stop", [False, True])
def test_machine_that_stays_off_is_never_left_in_silence(stop: bool) -> None:
    """The switch says off again after it said that it went on: the pause, and the end, say so."""
    told = off_is_queued()
    silence(told)
    for _ in range(2):
        ask(told, "status", "off")
        if told.steps(silent_s=SILENT_S) == [Ask(0, "on")]:
            ask(told, "on", "done")
            ask(told, "status", "on")
            assert isinstance(told.note(silent_s=SILENT_S), PowerCameBack)
            if stop:
                told.add(PauseAsked(stop=True))
            assert silence(told) == [Ask(0, "status")]
    assert isinstance(told.note(silent_s=SILENT_S), PowerFailed)
    if stop:
        look_up(told)
        told.note(silent_s=SILENT_S)
    last = told.note(silent_s=SILENT_S)
    assert isinstance(last, Ended if stop else Paused)
    why = f"the power cannot be switched on again: {NAME} says that it is off, though it was switched on"
    assert last.reason == (f"stopped, but {why}{UNJUDGED}" if stop else why)


def test_switch_that_does_not_say_what_it_is_is_asked_to_go_on() -> None:
    """A machine that is silent may be off: to ask a switch that is on changes nothing."""
    told = off_is_queued()
    silence(told)
    for _ in range(3):
        assert told.steps(silent_s=SILENT_S, later_s=3) == [Ask(0, "status")]
        ask(told, "status", "failed")
    assert told.steps(silent_s=SILENT_S) == [Ask(0, "on")]


def test_stop_that_finds_the_machine_off_switches_it_on_first() -> None:
    """The operator comes back to a campaign that paused: by then its machine is off."""
    told = off_is_queued()
    silence(told)
    ask(told, "status", "on")
    assert isinstance(told.note(silent_s=SILENT_S), Paused)
    told.add(PauseAsked(stop=True))
    assert silence(told) == [Ask(0, "status")]
    ask(told, "status", "off")
    assert told.steps(silent_s=SILENT_S) == [Ask(0, "on")]


@pytest.mark.parametrize("stop", [False, True])
def test_machine_that_goes_off_before_its_run_is_armed_is_switched_on(stop: bool) -> None:
    """The late off comes in the next cycle: it is left out, also if an operator stops it before its time."""
    told = begun()
    if stop:
        told.add(PauseAsked(stop=True))
    else:
        assert silence(told) == [Ask(0, "status")]
        ask(told, "status", "off")
    given_up = told.note(silent_s=SILENT_S)
    assert isinstance(given_up, Abandoned) and given_up.cause == ("operator" if stop else "agent")
    silent_s = 20.0 if stop else SILENT_S
    assert told.steps(silent_s=silent_s) == [Ask(0, "status")]
    ask(told, "status", "off")
    assert told.steps(silent_s=silent_s) == [Ask(0, "on")]
    ask(told, "on", "done")
    ask(told, "status", "on")
    assert isinstance(told.note(silent_s=silent_s), PowerCameBack)
    assert told.steps(silent_s=silent_s) == [Ask(0, "status")]
    ask(told, "status", "on")
    assert isinstance(told.note(silent_s=silent_s), CycleEnded)


def test_a_campaign_goes_on_after_a_late_off() -> None:
    """A cloud plug executes the off minutes after it confirmed it. The campaign continues without a pause."""
    world = World(settings_of(drives=("b",), switches=1, cuts=1))
    until_phase(world, "off")
    switch = world.switches[0]
    switch.manner = "idles"
    until(world, PowerFailed)
    until_phase(world, "back")
    switch.manner, switch.on = "obeys", False
    switch.go(False)
    assert world.finish() == "complete"
    assert not any(isinstance(one, Paused) for one in log_of(world)), world.story()
    assert words(world) == [["nothing"], ["durable"]]


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize(("silent_s", "up_s"), [(5.0, None), (2.0, 2.0)])
def test_machine_that_was_not_heard_just_now_is_waited_for(
    stop: bool, silent_s: float, up_s: float | None
) -> None:
    """The campaign waits for a machine that was not heard just now, since the operator asked soon after a
    late off or the server has just begun."""
    told = begun()
    told.add(PauseAsked(stop=stop))
    assert isinstance(told.note(silent_s=silent_s), Abandoned)
    assert told.steps(silent_s=silent_s, up_s=up_s) == [WaitFor(1.0)]
    assert told.steps(silent_s=20.0) == [Ask(0, "status")]
    assert isinstance(told.note(), CycleEnded)  # it is heard again


def test_stop_does_not_switch_on_again_what_went_off_again() -> None:
    """It was switched on once and said off again: a stop looks once more, and says so."""
    told = off_is_queued()
    silence(told)
    ask(told, "status", "off")
    ask(told, "on", "done")
    ask(told, "status", "on")
    assert isinstance(told.note(silent_s=SILENT_S), PowerCameBack)
    assert silence(told) == [Ask(0, "status")]
    ask(told, "status", "off")
    assert isinstance(told.note(silent_s=SILENT_S), PowerFailed)
    assert isinstance(told.note(silent_s=SILENT_S), Paused)
    told.add(PauseAsked(stop=True))
    assert silence(told) == [Ask(0, "status")]
    ask(told, "status", "off")
    assert isinstance(told.note(silent_s=SILENT_S), PowerFailed)
