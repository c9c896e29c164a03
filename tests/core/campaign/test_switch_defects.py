"""Shortened histories of power switches: what was switched wrongly once, or counted wrongly because of a
switch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.campaign.assignments import task_for
from durability.campaign.definition.settings import Settings, check
from durability.campaign.log_entries import (
    Checked,
    CycleEnded,
    DriveLeft,
    Ended,
    NotBack,
    Paused,
    PowerAnswered,
    PowerAsked,
    PowerFailed,
    PowerWentOff,
    StillThere,
    entry_from_value,
)
from durability.campaign.results import results
from durability.campaign.steps import Ask
from durability.errors import UsageError
from durability_lab.simulated_rig.virtual_time import S
from tests.core.campaign.campaign_world import World, log_of, settings_of, until, until_phase, words
from tests.core.campaign.told_campaign import ToldCampaign, condition, part, told_settings


def test_machine_that_boots_between_two_offs_is_not_still_there() -> None:
    """A machine is cut again while it boots: its first boot is no sign that it never lost its power."""
    world = World(settings_of(drives=("b",), switches=1, arms=("again",), cuts=3))
    assert world.finish() == "complete"
    assert not any(isinstance(one, StillThere) for one in log_of(world))


def test_machine_between_two_offs_verifies_nothing() -> None:
    """A verify between the two offs would be an answer about half of the cycle."""
    world = World(settings_of(drives=("b",), switches=1, arms=("again",), cuts=2))
    until_phase(world, "again")
    while world.server.state.cycle is not None and world.server.state.cycle.phase == "again":
        assert task_for(world.server.state, "b").kind != "verify"
        world.agenda.step()
    assert world.finish() == "complete"


def test_machine_that_is_back_before_the_off_is_confirmed_waits() -> None:
    """A machine that boots before its switch has confirmed the off state gets the task to wait. It neither
    runs nor verifies."""
    world = World(settings_of(drives=("b",), switches=1))
    until_phase(world, "off")
    world.switches[0].manner = "idles"
    begun = len(world.runs)
    world.machines["b"].crash()
    world.advance(60.0)
    assert task_for(world.server.state, "b").kind == "wait"
    assert len(world.runs) == begun
    assert world.finish() == "complete"


def test_run_ends_in_a_pause_for_a_switch_that_neither_cuts_nor_answers() -> None:
    """If the switch neither cuts nor answers, the campaign pauses and the run is ended."""
    world = World(settings_of(drives=("b",), switches=1))
    until_phase(world, "load")
    world.switches[0].manner = "fails"
    world.advance(1_000.0)
    state = world.server.state
    assert state.state == "paused" and state.cycle is not None and state.cycle.phase == "on"
    assert not world.going
    assert world.finish() == "complete"


def test_answer_to_off_that_comes_late_does_not_keep_the_power_off() -> None:
    """The switch answers "off: done" when it is to go on: it is asked for more than its state."""
    world = World(settings_of(drives=("b",), switches=1))
    until_phase(world, "off")
    server = world.server
    server.add([PowerFailed(on=False, reason="it took too long")])
    server.add([PowerAsked(switch=0, operation="on")])
    late = PowerAnswered(switch=0, operation="off", outcome="done", text="", began_ns=0, ended_ns=1)
    server.add([late])
    assert server.state.cycle is not None
    assert not server.state.cycle.switches[0].requested
    assert world.finish() == "complete"


@pytest.mark.slow
def test_answer_of_an_earlier_boot_of_the_server_confirms_no_off() -> None:
    """Its time is of another clock: the switch is asked once more, and both times are of one boot."""
    world = World(settings_of(drives=("b", "c"), switches=2))
    until_phase(world, "off")
    world.switches[1].manner = "idles"
    world.advance(60.0)
    world.reboot = True
    world.kill_server()
    world.advance(5.0)
    world.switches[1].manner = "obeys"
    until(world, PowerWentOff, 2)
    off = next(one for one in reversed(log_of(world)) if isinstance(one, PowerWentOff))
    entries = [entry_from_value(value) for value in world.server.log]
    of_this_boot = [
        one.happening.ended_ns
        for one in entries
        if one.boot_id == "server-2" and isinstance(one.happening, PowerAnswered)
    ]
    assert off.confirmed_ns in of_this_boot and len(of_this_boot) >= 2
    assert off.asked_ns <= off.confirmed_ns


@pytest.mark.parametrize("phase", ["off", "on"])
@pytest.mark.parametrize("reboot", [False, True])
def test_server_that_was_away_asks_a_switch_for_its_state(phase: str, reboot: bool) -> None:
    """It was away for longer than a switch has to confirm: that time does not count."""
    world = World(settings_of(drives=("b",), switches=1, cuts=1))
    until_phase(world, phase)
    world.switches[0].answer_s = lambda: 1.0
    world.down_s, world.reboot = 200.0, reboot
    world.kill_server()
    assert world.finish() == "complete"
    assert not any(isinstance(one, PowerFailed) for one in log_of(world))
    assert words(world) == [["durable"]]


@pytest.mark.parametrize("after_s", [1.0, 100.0])
def test_server_that_was_away_after_the_switch_said_done_asks_for_its_state(after_s: float) -> None:
    """The switch took the request, and does it while no server asks: it has all its time again."""
    world = World(settings_of(drives=("b",), switches=1, cuts=1))
    until_phase(world, "off")
    world.switches[0].answer_s = lambda: 1.0
    world.switches[0].manner = "idles"
    world.advance(30.0)  # the request under way takes up to 20 s
    world.down_s = 200.0
    world.kill_server()
    world.advance(200.0 + after_s)
    assert not any(isinstance(one, PowerFailed) for one in log_of(world))
    world.advance(200.0 - after_s)
    assert any(isinstance(one, PowerFailed) for one in log_of(world))
    assert world.finish() == "complete"


def test_slow_switch_is_no_failure() -> None:
    """Each request to it takes longer than it has to confirm after it said that it is done."""
    world = World(settings_of(drives=("b",), switches=1, cuts=1))
    world.switches[0].answer_s = lambda: 190.0
    assert world.finish() == "complete"
    assert not any(isinstance(one, PowerFailed) for one in log_of(world))
    assert words(world) == [["durable"]]


def test_check_goes_on_though_the_server_died_before_the_switch_answered() -> None:
    """A request that died with its server is made again."""
    world = World(settings_of(drives=("b",), switches=1))
    until(world, PowerAsked)
    world.kill_server()
    assert world.finish() == "complete"


def test_machine_that_is_missing_is_not_switched_off_for_an_operator_who_wants_a_pause() -> None:
    """It gets one try to boot; what comes after that is for people."""
    world = World(settings_of(drives=("b",), switches=1))
    until_phase(world, "rest")
    world.server.pause()
    world.machines["b"].cut_off = True
    world.until_still(5000.0)
    assert world.server.state.reason.startswith("machine b did not come back")
    assert "switched on 1 time" in world.server.state.reason
    assert not any(isinstance(one, NotBack) for one in log_of(world))


def test_machine_whose_drives_have_left_may_be_switched_off_by_hand() -> None:
    """The only drive of a machine is lost; the campaign does not wait for its agent any more."""
    world = World(settings_of(drives=("b", "c"), switches=2, stop_at="loss", cuts=3))
    world.words = ["loss"]
    until(world, DriveLeft)
    (left,) = [one.drive for one in log_of(world) if isinstance(one, DriveLeft)]
    machine = world.account.machine[left]
    world.machines[machine].cut_off = True
    world.until_still(20_000.0)
    assert world.server.state.reason == "complete", world.story()


def test_machine_whose_drives_have_left_keeps_its_power() -> None:
    """Its switch is not asked any more: it may be broken, or switch something else by now."""
    world = World(settings_of(drives=("b", "c"), own=True, stop_at="loss", cuts=6))
    world.words = ["loss"]
    until(world, DriveLeft)
    (left,) = [one.drive for one in log_of(world) if isinstance(one, DriveLeft)]
    switch = world.switches[int(left == "d1")]
    asked, switch.manner = len(switch.asked), "fails"
    assert world.finish() == "complete"
    assert len(switch.asked) == asked


def test_machine_whose_drives_have_left_is_not_shut_down() -> None:
    """Its switch is not asked any more, so it would stay off after a cycle of clean shutdowns."""
    world = World(settings_of(drives=("b", "c"), own=True, stop_at="loss", cuts=6, arms=("load", "shutdown")))
    world.words = ["loss"]
    until(world, DriveLeft)
    (left,) = [one.drive for one in log_of(world) if isinstance(one, DriveLeft)]
    machine = world.machines[world.account.machine[left]]
    boots = machine.boots
    assert world.finish() == "complete"
    assert machine.is_up and machine.boots == boots, world.story()


def test_switch_that_an_earlier_release_asked_to_go_off_goes_on_again() -> None:
    """After an upgrade, machines that the earlier release switched off without a drive to test are switched
    on again."""
    told = ToldCampaign()
    told.begin(told_settings(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc")))
    told.add(Checked(problems=()), DriveLeft(drive="d1", reason="loss in cycle 1"))
    told.note()
    told.say()
    told.say(part("armed", run="00000000000000aa"))
    told.note()
    assert told.steps(later_s=100) == [Ask(0, "off")]
    told.add(PowerAsked(switch=0, operation="off"), PowerAsked(switch=1, operation="off"))
    told.add(PowerWentOff(asked_ns=1, confirmed_ns=2, runs=()))
    assert told.steps(later_s=1000) == [Ask(0, "on"), Ask(1, "on")]


def test_pause_in_a_long_rest_switches_on() -> None:
    """Drives rest without power for days in some arms; an operator does not wait for that."""
    world = World(settings_of(drives=("b",), switches=1, off_s=(80_000, 80_000)))
    until_phase(world, "rest", cycle=0)
    world.server.pause()
    world.until_still(2000.0)
    assert world.server.state.state == "paused"
    assert world.switches[0].on


def test_stop_says_that_the_power_stays_off() -> None:
    """The switch fails when it is to go on: the reason of the end says so."""
    world = World(settings_of(drives=("b",), switches=1))
    until_phase(world, "rest")
    world.switches[0].manner = "fails"
    world.server.pause(stop=True)
    world.until_still(5000.0)
    (ended,) = [one for one in log_of(world) if isinstance(one, Ended)]
    assert ended.reason.startswith("stopped, but the power cannot be switched on again: ")


def test_switch_that_lies_gives_no_cut() -> None:
    """It says off, and the machine goes on: nothing is counted, and twice in a row is for people."""
    world = World(settings_of(drives=("b",), switches=1))
    until_phase(world, "load")
    world.switches[0].manner = "lies"
    world.until_still(5000.0)
    assert words(world) == [["nothing"], ["nothing"]]
    reason = world.server.state.reason
    assert reason.startswith("the last 2 cuts did not remove power: d0: machine b kept running")


def test_welded_outlet_of_one_of_two_machines_is_for_people() -> None:
    """If one of two machines keeps its power twice, the campaign pauses. The other machine's cuts count, and
    no drive leaves."""
    world = World(settings_of(drives=("b", "c"), own=True))
    until_phase(world, "load")
    world.switches[0].manner = "lies"
    world.until_still(5000.0)
    assert words(world) == [["nothing", "durable"]] * 2
    assert world.server.state.reason.startswith("the last 2 cuts did not remove power: d0: machine b kept")
    assert world.finish() == "complete"
    assert not world.server.state.left


def test_switch_that_is_still_asked_to_go_off_is_switched_on_before_the_campaign_pauses() -> None:
    """One switch fails three times while the other has not yet answered to off: that one goes on again."""
    world = World(settings_of(drives=("b", "c"), switches=2))
    until_phase(world, "load")
    world.switches[0].answer_s = lambda: 20.0
    world.switches[1].answer_s = lambda: 0.2
    world.switches[1].manner = "fails"
    world.until_still(5000.0)
    assert world.server.state.reason.startswith("the power cannot be switched on again")
    assert world.switches[0].on


@pytest.mark.parametrize("phase", ["rest", "on"])
@pytest.mark.parametrize("mended", [True, False])
def test_switch_that_fails_to_go_on_is_asked_for_a_quarter_of_an_hour(phase: str, mended: bool) -> None:
    """Its network is away for a while: the machine does not stay without power for that. The time between two
    requests grows."""
    world = World(settings_of(drives=("b",), switches=1, cuts=1))
    until_phase(world, phase)
    switch = world.switches[0]
    switch.answer_s = lambda: 0.5
    switch.manner = "fails"
    asked, began_ns = len(switch.asked), world.agenda.now_ns
    world.advance(820.0)
    assert world.server.state.state == "running"
    assert len(switch.asked) - asked < 25
    if mended:
        switch.manner = "obeys"
        assert world.finish() == "complete"
        assert not any(isinstance(one, Paused) for one in log_of(world))
        return
    until(world, Paused)
    assert 900 <= (world.agenda.now_ns - began_ns) / S < 970
    assert world.server.state.reason.startswith("the power cannot be switched on again: Tasmota 192.0.2.1")


def test_server_that_was_away_asks_a_switch_to_go_on_for_as_long() -> None:
    """The time in which it did not ask does not count."""
    world = World(settings_of(drives=("b",), switches=1, cuts=1))
    until_phase(world, "on")
    world.switches[0].manner = "fails"
    world.down_s = 2000.0
    world.kill_server()
    world.advance(2000.0 + 800.0)
    assert world.server.state.state == "running"
    world.switches[0].manner = "obeys"
    assert world.finish() == "complete"


def own_outlets() -> Settings:
    """Two machines with a drive each, each behind a switch of its own."""
    return settings_of(drives=("b", "c"), own=True, cuts=1)


def test_machine_without_a_switch_is_refused() -> None:
    """Nothing could bring it back."""
    plan = own_outlets()
    with pytest.raises(UsageError, match=r"no \[\[power\]\] switches machine 'c'"):
        check(replace(plan, power=plan.power[:1]))
    assert check(plan) == plan


def test_each_machine_that_does_not_boot_is_switched_once_more() -> None:
    """Two machines hang, each behind a switch of its own: both are tried again before people are asked."""
    world = World(own_outlets())
    until_phase(world, "load")
    until_phase(world, "on")
    for machine in world.machines.values():
        machine.hangs = True
    until(world, NotBack, 2)
    assert [one.machine for one in log_of(world) if isinstance(one, NotBack)] == ["b", "c"]
    assert world.finish() == "complete"


def test_cut_before_an_off_that_failed_is_not_hidden() -> None:
    """The machine was cut and does not boot, and switching it off once more fails: what an inconclusive
    verdict hides voids the bound."""
    world = World(settings_of(drives=("b",), switches=1, cuts=1))
    until_phase(world, "load")
    until_phase(world, "on")
    world.machines["b"].hangs = True
    until_phase(world, "back")
    world.switches[0].manner = "fails"
    world.words = ["inconclusive"]
    until(world, PowerFailed)
    world.switches[0].manner = "obeys"
    world.machines["b"].hangs = False
    world.machines["b"].reset()
    until(world, CycleEnded, 2)
    first = next(past for past in world.server.state.cycles if past.began.cycle)
    assert [(mine.word, mine.cause, mine.cut) for mine in first.drives] == [("nothing", "inconclusive", True)]
    assert results(world.server.state)[0].tally.unknown == 1


def test_cut_once_is_no_answer_of_an_arm_that_cuts_twice() -> None:
    """The second off fails: a durable verdict is of the first cut alone, and the arm asks for two."""
    world = World(settings_of(drives=("b",), switches=1, arms=("again",), cuts=1))
    until_phase(world, "again")
    world.switches[0].manner = "fails"
    until(world, PowerFailed)
    world.switches[0].manner = "obeys"
    until(world, CycleEnded, 2)
    first = next(past for past in world.server.state.cycles if past.began.cycle)
    assert [(mine.word, mine.cause) for mine in first.drives] == [("nothing", "switch")]


@pytest.mark.slow
def test_machine_that_stays_on_takes_the_second_cut_from_the_others() -> None:
    """If one machine's switch does not switch it off, the other machine gets no second cut. A pass of the cut
    machine does not count, because its arm asks for two cuts. A loss counts."""
    for verdict, said in (("durable", ("nothing", "switch")), ("loss", ("loss", None))):
        world = World(settings_of(drives=("b", "c"), own=True, arms=("again",), cuts=1))
        until_phase(world, "load")
        world.switches[1].manner = "lies"
        world.words = [verdict] * 2
        until(world, CycleEnded, 2)
        first = next(past for past in world.server.state.cycles if past.began.cycle)
        assert (first.drives[0].word, first.drives[0].cause) == said
        if verdict == "durable":
            assert first.drives[0].text == "there was no second off: another machine kept its power"
            assert (first.drives[1].word, first.drives[1].cause) == ("nothing", "not-a-cut")
            assert [one.arms[0].tally.cuts for one in results(world.server.state)] == [0, 0]


def test_off_that_failed_after_both_cuts_takes_no_answer_from_the_arm() -> None:
    """Both offs came; then the machine does not boot, and only switching it off once more fails."""
    world = World(settings_of(drives=("b",), switches=1, arms=("again",), cuts=1))
    until_phase(world, "again")
    until_phase(world, "on")
    world.machines["b"].hangs = True
    until_phase(world, "back")
    world.switches[0].manner = "fails"
    until(world, PowerFailed)
    world.switches[0].manner = "obeys"
    world.machines["b"].hangs = False
    world.machines["b"].reset()
    until(world, CycleEnded, 2)
    first = next(past for past in world.server.state.cycles if past.began.cycle)
    assert [(mine.word, mine.cause) for mine in first.drives] == [("durable", None)]


def test_machine_that_went_on_says_nothing_of_another_ones_cut() -> None:
    """The outlet of b is welded; c was cut, and its drive is missing after it."""
    told = ToldCampaign()
    told.begin(told_settings(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc")))
    told.note()
    machines = (("b", "d0", f"{0xB1:016x}"), ("c", "d1", f"{0xC1:016x}"))
    for boot in ("boot-1", "boot-2"):
        if boot != "boot-1":
            told.cut()
        for machine, drive, _ in machines:
            told.say(machine=machine, boot=boot)
            found = part("done", drive=drive, found=condition(drive, unsafe=None))
            told.say(found, machine=machine, boot=boot)
    for _ in range(3):
        told.note()
    for machine, drive, run in machines:
        told.say(part("armed", drive=drive, run=run), boot="boot-2", machine=machine)
    told.note()
    told.cut()
    told.now_ns += 30 * S
    told.say(boot="boot-2", machine="b")
    told.say(boot="boot-3", machine="c")
    told.say(part("done", drive="d0", run=machines[0][2]), boot="boot-2", machine="b")
    gone = part("failed", drive="d1", run=machines[1][2], trouble="missing", text="d1 is not there")
    told.say(gone, boot="boot-3", machine="c")
    told.judge(verdict="inconclusive", reasons=("session-closed",))
    ends = [(mine.drive, mine.cause, mine.cut) for mine in told.ended().drives]
    assert ends == [("d0", "not-a-cut", False), ("d1", "drive", True)]
    assert [one.tally.unknown for one in results(told.state)] == [0, 1]


def test_machines_of_one_switch_are_cut_together_again() -> None:
    """One of two machines behind an outlet does not boot: the outlet goes off and on once more for both, and
    the machine with an outlet of its own keeps its power."""
    world = World(settings_of(drives=("b", "c", "d"), own=True, group=True, cuts=1))
    until_phase(world, "rest")
    world.machines["b"].hangs = True
    world.until_still(10_000.0)
    assert world.is_over, world.story()
    offs = [sum(operation == "off" for operation, _ in switch.asked) for switch in world.switches]
    assert offs[0] > offs[1], offs
    assert words(world)[0][2] == "durable"
