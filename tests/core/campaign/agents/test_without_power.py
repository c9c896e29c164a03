"""What a machine says while its switches say that it has no power, and when its boot began: a switch that
only resets its machine makes no cut. And no power goes without a sign of life before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.campaign.campaign_state import CampaignState
from durability.campaign.log_entries import (
    Abandoned,
    Checked,
    PowerAnswered,
    PowerAsked,
    PowerCameBack,
    PowerFailed,
    PowerWentOff,
    ShutdownDue,
    StillThere,
    SwitchOutcome,
    WritersHeld,
)
from durability.campaign.next_steps import next_steps
from durability.campaign.server_time import ServerTime
from durability.campaign.steps import Ask, Note, Step, WaitFor
from durability.formats.case import PowerOff
from durability_lab.simulated_rig.virtual_time import S
from tests.core.campaign.campaign_world import World, log_of, settings_of
from tests.core.campaign.test_moments_and_supplies import judged_after, two_machines
from tests.core.campaign.told_campaign import OTHER_RUN, RUN, ToldCampaign, begun, part, told_settings


def resetting_world() -> World:
    """A switch whose "off" resets its machine, and which says off until it is asked to go on."""
    world = World(settings_of(drives=("b",), switches=1, cuts=3, off_s=(40, 60)))
    machine = world.machines["b"]
    world.switches[0].go = lambda on: None if on else machine.reset()
    return world


def test_check_finds_a_switch_that_only_resets() -> None:
    """The machine boots and asks for its task while its switch says off: no cycle begins."""
    world = resetting_world()
    assert world.finish() == "the check failed"
    (checked,) = [one for one in log_of(world) if isinstance(one, Checked)]
    assert checked.problems == (
        "the switch said that it was off, and machine b was running before it was switched on again",
    )


def dark(told: ToldCampaign) -> None:
    """The switches of both machines go off, and confirm it."""
    told.add(*(PowerAsked(switch=switch, operation="off") for switch in (0, 1)))
    told.add(PowerWentOff(asked_ns=1, confirmed_ns=2, runs=(RUN, OTHER_RUN)))


def lit(told: ToldCampaign) -> None:
    """Both go on again."""
    told.add(*(PowerAsked(switch=switch, operation="on") for switch in (0, 1)))
    told.add(PowerCameBack())


def still(told: ToldCampaign) -> list[str]:
    """The machines whose off is contradicted."""
    cycle = told.state.cycle
    assert cycle is not None
    return sorted(cycle.still_there)


def test_what_the_off_attests() -> None:
    """A confirmed power-off attests the cut of each run of the cycle, with its times and switches; outside a
    cycle it attests nothing."""
    told = two_machines()
    went_off = PowerWentOff(asked_ns=1, confirmed_ns=2, runs=(RUN, OTHER_RUN))
    off = PowerOff(
        asked_ns=1,
        confirmed_ns=2,
        boot_id="server",
        subject="machine",
        cut_class="power",
        text="campaign told, cycle 1: Tasmota 192.0.2.1, Tasmota 192.0.2.2 switched off and confirmed it",
    )
    assert told.state.attested(went_off, "server") == ((RUN, off), (OTHER_RUN, off))
    assert CampaignState().attested(went_off, "server") == ()


def test_each_machine_that_speaks_without_power_is_contradicted() -> None:
    """Both machines report a new boot while their power should be off. The cut of neither one counts."""
    told = two_machines()
    dark(told)
    told.now_ns += 30 * S
    told.say(boot="boot-2")
    assert still(told) == ["b"]
    told.say(boot="boot-2", machine="c")
    assert still(told) == ["b", "c"]
    lit(told)
    told.say(part("done", run=RUN), boot="boot-2")
    told.say(part("done", drive="d1", run=OTHER_RUN), boot="boot-2", machine="c")
    told.judge(verdict="durable")
    assert [(mine.cause, mine.cut) for mine in told.ended().drives] == [("not-a-cut", False)] * 2


def test_boot_that_is_heard_a_moment_after_the_off_and_goes_on_is_contradicted() -> None:
    """Its first status might have come late; the next one cannot."""
    told = two_machines()
    dark(told)
    told.say(boot="boot-2")
    assert still(told) == []
    told.now_ns += 10 * S
    told.say(boot="boot-2")
    assert still(told) == ["b"]


def test_boot_that_began_before_the_power_came_back_is_contradicted() -> None:
    """Its agent reaches the server only after the switch was asked to go on, and its uptime tells that the
    boot is older. The other machine started with its power."""
    told = two_machines()
    dark(told)
    told.now_ns += 60 * S
    lit(told)
    told.now_ns += 10 * S
    told.say(boot="boot-2", up_s=40)
    told.say(boot="boot-2", machine="c", up_s=9)
    assert still(told) == ["b"]


def test_machine_with_two_supplies_may_start_with_the_first() -> None:
    """The server is killed before it asks the second switch: the machine runs meanwhile."""
    settings = told_settings()
    told = ToldCampaign()
    told.begin(replace(settings, power=settings.power * 2))
    told.add(Checked(problems=()))
    told.note()
    told.say()
    told.say(part("armed", run=RUN))
    told.note()
    dark(told)
    told.add(PowerAsked(switch=0, operation="on"))
    told.now_ns += 60 * S
    told.say(boot="boot-2", up_s=30)
    told.add(PowerAsked(switch=1, operation="on"), PowerCameBack())
    told.say(boot="boot-2")
    assert still(told) == []


def test_machine_that_verifies_for_long_is_not_contradicted() -> None:
    """The clocks of server and machine go apart meanwhile."""
    told = begun()
    told.say(part("armed", run=RUN))
    told.note()
    told.cut()
    told.say(boot="boot-2", up_s=5)
    told.now_ns += 86_400 * S
    told.booted_ns["b", "boot-2"] -= 60 * S
    assert judged_after(told, verdict="durable", reasons=()) == "durable"


def test_machine_that_goes_on_is_found_with_a_wrong_date() -> None:
    """The server's machine restarted right after the off, and its date is behind: the machine is heard for as
    long as it has to boot, always in the boot of before."""
    told = begun()
    told.say(part("armed", run=RUN))
    told.note()
    told.cut()
    cycle = told.state.cycle
    assert cycle is not None

    def steps(now_s: float, silent_s: float) -> list[Step]:
        moment = ServerTime(
            now_ns=int(now_s * S), boot_id="server-2", silent_s={"b": silent_s}, began_ns=10 * S
        )
        return next_steps(told.state, moment)

    assert not any(isinstance(step, Note) for step in steps(100, 1.0))
    assert steps(140, 1.0) == [Note(StillThere(machine="b", text="machine b kept running without a restart"))]
    assert steps(140, 130.0) == [Ask(0, "status")]


WEEK_S = 7 * 86_400.0


@pytest.mark.parametrize("moment", ["load", "idle", "shutdown"])
@pytest.mark.parametrize(("silent_s", "up_s"), [(1.0, 1.0), (99.0, 99.0), (11.0, WEEK_S)])
def test_power_does_not_go_before_the_machine_is_heard(moment: str, silent_s: float, up_s: float) -> None:
    """After a long absence of the server or the agent, the power is not cut until the machine is heard. Then
    the due cut is made."""
    told = begun(moment=moment)
    told.say(part("armed", run=RUN))
    told.note()
    if moment == "idle":
        assert isinstance(told.note(later_s=100), WritersHeld)
        told.add(WritersHeld(in_s=10))
    assert told.steps(later_s=WEEK_S, silent_s=silent_s, up_s=up_s) == [WaitFor(1.0)]
    (*_, step) = told.steps(later_s=WEEK_S, silent_s=0.5, up_s=up_s)
    assert step == Note(ShutdownDue()) if moment == "shutdown" else isinstance(step, Ask | Note)


def answered(told: ToldCampaign, outcome: SwitchOutcome) -> None:
    """The switch says this of its state."""
    now_ns = told.now_ns + S
    told.add(
        PowerAnswered(
            switch=0, operation="status", outcome=outcome, text="", began_ns=now_ns, ended_ns=now_ns
        )
    )


@pytest.mark.parametrize("went", [True, False])
def test_server_that_was_away_repeats_no_request_to_go_off(went: bool) -> None:
    """It dies after it stored the request, and is back a week later. If the switch did it, that was the cut;
    if not, the machine may be in use, so it keeps its power and verifies."""
    told = begun()
    told.say(part("armed", run=RUN))
    told.note()
    told.add(PowerAsked(switch=0, operation="off"))
    told.now_ns += int(WEEK_S) * S
    assert told.steps(up_s=1) == [Ask(0, "status")]
    told.add(PowerAsked(switch=0, operation="status"))
    answered(told, "off" if went else "on")
    (step,) = told.steps(up_s=5)
    assert isinstance(step, Note)
    if went:
        assert isinstance(step.happening, PowerWentOff) and step.happening.runs == (RUN,)
        return
    power = told.state.plan.power[0].name
    reason = f"the server was away when the power was to go, and {power} is on"
    assert step == Note(PowerFailed(on=False, reason=reason))
    told.add(step.happening, PowerAsked(switch=0, operation="on"), PowerCameBack())
    assert told.say(part("done", run=RUN)).kind == "verify"
    told.say(part("done", run=RUN))
    told.judge(verdict="inconclusive", reasons=("session-stopped",))
    assert [(mine.cause, mine.text, mine.cut) for mine in told.ended().drives] == [("switch", reason, False)]


def test_server_that_was_away_for_a_moment_repeats_its_request_to_go_off() -> None:
    """It was killed before the switch answered, and started again at once."""
    told = begun()
    told.say(part("armed", run=RUN))
    told.note()
    told.add(PowerAsked(switch=0, operation="off"))
    assert told.steps(later_s=6, up_s=1) == [Ask(0, "off")]


@pytest.mark.parametrize(("away_s", "goes"), [(100.0, True), (WEEK_S, False)])
def test_second_off_is_not_made_up_for(away_s: float, goes: bool) -> None:
    """The power is on for a moment, and the server dies until long after that."""
    settings = told_settings()
    arm = replace(settings.arms[0], again_after_s=(1.0, 2.0))
    told = ToldCampaign()
    told.begin(replace(settings, arms=(arm,)))
    told.add(Checked(problems=()))
    told.note()
    told.say()
    told.say(part("armed", run=RUN))
    told.note()
    told.cut()
    assert told.state.cycle is not None and told.state.cycle.phase == "again"
    told.now_ns += int(away_s) * S
    failed = Note(PowerFailed(on=False, reason="the server was away when the power was to go"))
    assert told.steps(up_s=1) == [Ask(0, "off") if goes else failed]


def test_run_whose_machine_is_not_heard_is_given_up() -> None:
    """It has as long to be heard as it has to boot, while this server is there."""
    told = begun()
    told.say(part("armed", run=RUN))
    told.note()
    (step,) = told.steps(later_s=WEEK_S, silent_s=121, up_s=121)
    assert step == Note(Abandoned(cause="agent", text="machine b was not heard when its power was to go"))


def test_machine_without_an_armed_run_is_heard_before_its_power_goes() -> None:
    """Its drive was missing; it was unplugged since, and is used elsewhere."""
    told = begun(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"))
    told.say(part("armed", run=RUN))
    told.say(part("failed", drive="d1", trouble="missing", text="it is not there"), machine="c")
    told.note()
    assert told.steps(later_s=100, silent={"b": 0.0, "c": 50.0}) == [WaitFor(1.0)]


def test_machine_that_was_started_again_after_its_shutdown_is_not_cut() -> None:
    """The server was away for a week, and the machine was started again after its shutdown. The cycle is
    given up without a cut, and the run is verified."""
    told = begun(moment="shutdown")
    told.say(part("armed", run=RUN))
    told.note()
    assert isinstance(told.note(later_s=100), ShutdownDue)
    told.say(part("done"))
    told.now_ns += int(WEEK_S) * S
    told.say(boot="boot-2", up_s=3600)
    given_up = told.note(later_s=301)
    assert given_up == Abandoned(cause="agent", text="machine b was started again before its power went")
    assert told.task().kind == "verify"
    told.say(part("done", run=RUN), boot="boot-2")
    told.judge(verdict="inconclusive", reasons=("session-stopped", "nothing-at-risk"))
    assert [(mine.cause, mine.cut) for mine in told.ended().drives] == [("agent", False)]


def one_of_two_started_again(*, shared: bool = False) -> ToldCampaign:
    """Two machines were to shut down, which have switches of their own, or share one. Somebody has started
    one since, so the cycle was given up."""
    settings = told_settings(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"), moment="shutdown")
    told = ToldCampaign()
    told.begin(replace(settings, power=(replace(settings.power[0], machine=""),)) if shared else settings)
    told.add(Checked(problems=()))
    told.note()
    told.say()
    told.say(machine="c")
    told.say(part("armed", run=RUN))
    told.say(part("armed", drive="d1", run=OTHER_RUN), machine="c")
    told.note()
    told.note(later_s=100)
    told.say(part("done"))
    told.say(part("done", drive="d1"), machine="c")
    told.say(boot="boot-2")
    assert isinstance(told.note(later_s=301, silent={"b": 0.0, "c": 301.0}), Abandoned)
    return told


def test_machine_that_is_off_after_its_shutdown_needs_its_power() -> None:
    """It cannot start without an off and on. The one that is up again keeps its power, and verifies."""
    told = one_of_two_started_again()
    assert told.steps(later_s=301) == [Ask(1, "off")]
    told.add(PowerAsked(switch=1, operation="off"))
    told.add(PowerWentOff(asked_ns=1, confirmed_ns=2, runs=(OTHER_RUN,)))
    assert told.task().kind == "verify"
    told.say(part("done", run=RUN), boot="boot-2")
    assert told.task("c").kind != "verify"
    told.add(PowerAsked(switch=1, operation="on"), PowerCameBack())
    told.say(boot="boot-2", machine="c")
    told.say(part("done", drive="d1", run=OTHER_RUN), boot="boot-2", machine="c")
    told.judge(verdict="inconclusive", reasons=("session-stopped", "nothing-at-risk"))
    drives = told.ended().drives
    assert [(mine.cause, mine.cut) for mine in drives] == [("agent", False), ("agent", True)]


def test_machine_that_shares_a_switch_with_one_that_is_off_loses_its_power() -> None:
    """A machine that runs again is switched off if it shares its switch with one that cannot start
    otherwise."""
    told = one_of_two_started_again(shared=True)
    assert told.steps(later_s=301) == [Ask(0, "off")]
    assert told.task().kind != "verify"
