"""A server conducts campaigns: real switches by commands, real connections of agents, whatever dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durability.campaign import next_steps
from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.campaign_file import read_campaign
from durability.campaign.definition.settings import DriveUnderTest, Power, Settings, check
from durability.campaign.log_entries import Entry, PowerAsked, WritersHeld, entry_from_value
from durability.campaign.results import results
from durability.errors import RefusedError
from durability.formats.documents import to_value
from durability.protocol import messages
from durability.units import format_run
from durability_client.campaigns.entry_lines import entry_line
from tests import waiting
from tests.server.campaigns.played_machine import Machine, gated_switch, switch
from tests.server.conftest import Lab, Running
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.slow  # each begins campaigns

FILE = """
[campaign]
machine = "test"
cuts = 3
cut_after_s = [0.05, 0.2]
off_s = [0.05, 0.2]
boot_within_s = 30
[power]
on = "true"
off = "true"
status = "true"
cut_class = "power"
[[drive]]
name = "ssd"
target = "/mnt/t"
"""


def settings_of(file: Path, **changes: Any) -> Settings:
    """A campaign of three cuts whose switch is `file`."""
    settings = read_campaign(FILE, name="trial", seed=7)
    return check(replace(settings, **{"power": (switch(file),), **changes}))


async def begin(lab: Lab, running: Running, settings: Settings, *, check_only: bool = False) -> None:
    """Begin a campaign as the operator."""
    operator = await lab.connect(running.address, "operate", local=True)
    start = messages.StartCampaign(settings=to_value(settings), check_only=check_only)
    await operator.ask(start, messages.Stored)


async def entries_of(lab: Lab, running: Running, name: str = "trial") -> list[Entry]:
    """A campaign's log, as an operator reads it."""
    operator = await lab.connect(running.address, "query", local=True)
    entries: list[Entry] = []
    while True:
        ask = messages.ShowCampaign(name=name, after=len(entries))
        values = (await operator.ask(ask, messages.Campaign)).entries
        entries += map(entry_from_value, values)
        if not values:
            await operator.close()
            return entries


def is_on(power: Path) -> bool:
    """Whether the switch is on."""
    return power.read_text() == "on\n"


def is_under_load(state: CampaignState) -> bool:
    """Whether a cycle waits for its cut."""
    return state.cycle is not None and state.cycle.phase == "load"


def open_(gate: Path) -> None:
    """The switch behind the gate answers from now on."""
    gate.touch()


async def until(
    lab: Lab, running: Running, holds: Callable[[CampaignState], bool], name: str = "trial"
) -> CampaignState:
    """The state as soon as `holds`; the log is told where that never is."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                entries = await entries_of(lab, running, name)
                state = CampaignState()
                for entry in entries:
                    state.apply(entry)
                if holds(state):
                    return state
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail("\n".join(map(entry_line, entries)))


@asynccontextmanager
async def living(machine: Machine) -> AsyncIterator[Machine]:
    """The machine lives during the block."""
    async with asyncio.TaskGroup() as group:  # what fails there ends the test
        task = group.create_task(machine.live())
        yield machine
        task.cancel()


async def test_a_campaign_makes_its_cuts(lab: Lab, sqlite_url: str, power: Path) -> None:
    """Check, three cycles, the end: each run was cut, attested by the switch's log and judged once."""
    running = await lab.start(sqlite_url)
    async with living(Machine(lab, running.address, power)) as machine:
        await begin(lab, running, settings_of(power))
        state = await until(lab, running, lambda state: state.state == "ended")
    assert state.reason == "complete"
    (result,) = results(state)
    assert (result.tally.cuts, result.tally.losses, result.left_out) == (3, 0, ())
    assert result.tally.bound == pytest.approx(1 - 0.05 ** (1 / 3))
    assert len(machine.armed) == 3 and machine.boots == 5
    assert is_on(power)
    for run in machine.armed:
        case = await lab.exported(running.address, int(run, 16), lambda case: case.state == "ended")
        (off,) = case.power_offs
        assert off.cut_class == "power" and "campaign trial, cycle" in off.text
        assert off.asked_ns < off.confirmed_ns


async def test_a_cut_of_a_run_at_another_machines_server_voids_no_bound(
    lab: Lab, sqlite_url: str, power: Path
) -> None:
    """Its receipts have another clock than the log of the switches, so its verdict is inconclusive, which no
    drive brings about: the cycle is left out, and another one is made."""
    running = await lab.start(sqlite_url)
    assert running.server._campaigns is not None
    running.server._campaigns._boot_id = "that of another machine"
    async with living(Machine(lab, running.address, power, {"ssd": ["inconclusive"]})):
        await begin(lab, running, settings_of(power, cuts=1))
        state = await until(lab, running, lambda state: state.state == "ended")
    (result,) = results(state)
    assert [(cycle, cause) for cycle, cause, _ in result.left_out] == [(1, "agent")]
    assert (result.tally.cuts, result.tally.unknown) == (1, 0) and result.tally.bound is not None


async def test_a_loss_ends_the_campaign_for_its_drive(lab: Lab, sqlite_url: str, power: Path) -> None:
    """With stop_at loss nothing more is cut; the cycle and the run are named."""
    running = await lab.start(sqlite_url)
    async with living(Machine(lab, running.address, power, verdicts={"ssd": ["durable", "loss"]})) as machine:
        await begin(lab, running, settings_of(power, cuts=59))
        state = await until(lab, running, lambda state: state.state == "ended")
    (result,) = results(state)
    assert result.first_loss == (2, machine.armed[1])
    assert (result.tally.cuts, result.tally.losses, result.left) == (2, 1, "loss in cycle 2")


async def test_a_switch_that_lies_is_found_by_the_check(lab: Lab, sqlite_url: str, power: Path) -> None:
    """It says off, and the machine goes on: nothing is ever cut again, and the power is on."""
    running = await lab.start(sqlite_url)
    async with living(Machine(lab, running.address, power, obeys=False)):
        await begin(lab, running, settings_of(power, off_s=(5.0, 5.0)))
        state = await until(lab, running, lambda state: state.state == "ended")
    assert state.reason == "the check failed" and state.checked is not None
    assert "kept running without a restart" in state.checked.problems[0]
    assert is_on(power)


async def test_a_failing_switch_fails_the_check(lab: Lab, sqlite_url: str, power: Path) -> None:
    """Nothing is switched off."""
    running = await lab.start(sqlite_url)
    broken = switch(power.with_name("missing") / "power")
    async with living(Machine(lab, running.address, power)):
        await begin(lab, running, settings_of(power, power=(broken,)))
        state = await until(lab, running, lambda state: state.state == "ended")
    assert state.checked is not None and "commands" in state.checked.problems[0]


async def test_of_two_machines_with_two_drives_each_only_the_liar_is_named(
    lab: Lab, sqlite_url: str, power: Path
) -> None:
    """One switch cuts both; one of the four drives loses data and leaves; the others reach their bound."""
    running = await lab.start(sqlite_url)
    other = await lab.join(running.address, (await running.server.invite()).line, name="other")
    drives = tuple(
        DriveUnderTest(
            name=f"{machine}-{number}",
            machine=machine,
            device="",
            file_system="",
            mount_options="",
            target=f"/mnt/{number}",
            size="",
        )
        for machine in ("test", "other")
        for number in (1, 2)
    )
    settings = settings_of(power, machines=("test", "other"), drives=drives, cuts=4)
    liar = {"other-1": ["durable", "loss"]}
    first = Machine(lab, running.address, power)
    second = Machine(lab, running.address, power, member=other, verdicts=liar)
    async with living(first), living(second):
        await begin(lab, running, settings)
        state = await until(lab, running, lambda state: state.state == "ended")
    found = {result.drive: result for result in results(state)}
    assert state.reason == "complete"
    assert {drive for drive, result in found.items() if result.tally.losses} == {"other-1"}
    assert found["other-1"].tally.cuts == 2 and found["other-1"].left
    assert [result.left_out for result in found.values()] == [()] * 4
    for honest in ("test-1", "test-2", "other-2"):
        assert found[honest].tally.cuts == 4
        assert found[honest].tally.bound == pytest.approx(1 - 0.05**0.25)


def gated(power: Path, gate: Path) -> Power:
    """A switch that says nothing of its state until there is a gate."""
    slow = switch(power)
    waits = f"sh -c 'until [ -e {gate} ]; do sleep 0.05; done; grep -q on {power} || exit 2'"
    return replace(slow, options={**slow.options, "status": waits})


def is_switch_asked(state: CampaignState) -> bool:
    """Whether the check has asked its switch, which has not answered."""
    return state.cycle is not None and state.cycle.switches[0].asked == "check"


async def test_a_pause_is_taken_back_before_it_begins(
    lab: Lab, sqlite_url: str, power: Path, tmp_path: Path
) -> None:
    """A pause that waits for a switch can be cancelled by a resume. The check then ends as without the
    pause."""
    running = await lab.start(sqlite_url)
    gate = tmp_path / "gate"
    operator = await lab.connect(running.address, "operate", local=True)
    async with living(Machine(lab, running.address, power)):
        await begin(lab, running, settings_of(power, power=(gated(power, gate),)), check_only=True)
        await until(lab, running, is_switch_asked)
        for action in ("pause", "resume"):
            await operator.ask(messages.SteerCampaign(name="trial", action=action), messages.Stored)
        open_(gate)
        state = await until(lab, running, lambda state: state.state in ("ended", "paused"))
    assert (state.state, state.reason) == ("ended", "checked")


async def test_a_slow_switch_delays_no_acknowledgement(
    lab: Lab, sqlite_url: str, power: Path, tmp_path: Path
) -> None:
    """While a switch has not answered, another client of the server registers, writes and gets its credit."""
    running = await lab.start(sqlite_url)
    gate = tmp_path / "gate"
    async with living(Machine(lab, running.address, power)):
        await begin(lab, running, settings_of(power, power=(gated(power, gate),)), check_only=True)
        await until(lab, running, is_switch_asked)
        client = await lab.connect(running.address)
        await client.begin(lab.plan(run=77), lab.facts(serial="S9", uuid="u9"))
        await client.acknowledge(5, 6)
        assert is_switch_asked(await until(lab, running, lambda _: True))
        open_(gate)
        state = await until(lab, running, lambda state: state.state == "ended")
    assert state.reason == "checked"


async def test_pause_and_stop_leave_the_power_on(lab: Lab, sqlite_url: str, power: Path) -> None:
    """A pause in a cycle gives it up before its cut, resume goes on, stop ends it; nothing is counted."""
    running = await lab.start(sqlite_url)
    settings = settings_of(power, cut_after_s=(3600.0, 3600.0), cuts=2)
    arms = tuple(replace(arm, cut_after_s=(3600.0, 3600.0)) for arm in settings.arms)
    operator = await lab.connect(running.address, "operate", local=True)
    async with living(Machine(lab, running.address, power)) as machine:
        await begin(lab, running, replace(settings, arms=arms))
        await until(lab, running, is_under_load)
        await operator.ask(messages.SteerCampaign(name="trial", action="pause"), messages.Stored)
        await until(lab, running, lambda state: state.state == "paused")
        await operator.ask(messages.SteerCampaign(name="trial", action="resume"), messages.Stored)
        await until(lab, running, is_under_load)
        await operator.ask(messages.SteerCampaign(name="trial", action="stop"), messages.Stored)
        state = await until(lab, running, lambda state: state.state == "ended")
        assert state.reason == "stopped"
        said = [one for past in state.cycles if past.began.cycle for one in past.drives]
        assert [(one.word, one.cause, one.cut) for one in said] == [("nothing", "operator", False)] * 2
    assert is_on(power) and machine.boots == 2


async def test_arms_with_a_question_of_their_own_are_counted_apart(
    lab: Lab, sqlite_url: str, power: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At idle the writers get no credit before the cut; a verdict without anything at risk is then "kept"."""
    monkeypatch.setattr(next_steps, "AFTER_SHUTDOWN_S", 0.1)
    running = await lab.start(sqlite_url)
    gate = tmp_path / "gate"
    open_(gate)
    settings = settings_of(power, power=(gated_switch(power, gate),))
    load = settings.arms[0]
    arms = (
        replace(load, name="idle", moment="idle", idle_s=0.3),
        load,
        replace(load, name="off", moment="shutdown"),
    )
    settings = replace(settings, arms=arms)
    verdicts = {"ssd": ["inconclusive", "durable", "inconclusive"]}
    async with living(Machine(lab, running.address, power, verdicts=verdicts)) as machine:
        await begin(lab, running, settings, check_only=True)
        await until(lab, running, lambda state: state.state == "ended")
        gate.unlink()  # the first cycle stays in its phase "off" until it is there again
        await begin(lab, running, settings)
        await until(lab, running, lambda state: state.cycle is not None and state.cycle.phase == "off")
        (run,) = (run for run in running.server.runs if format_run(run.id) == machine.armed[-1])
        assert run.held
        open_(gate)
        state = await until(lab, running, lambda state: state.state == "ended")
    (result,) = results(state)
    assert [(arm.arm, arm.tally.cuts, arm.kept) for arm in result.arms] == [
        ("idle", 1, 1),
        ("one-writer", 1, 0),
        ("off", 1, 1),
    ]
    assert result.tally.cuts == 1 and result.tally.bound == pytest.approx(0.95)
    assert [task.kind for task in machine.tasks].count("shutdown") == 1


async def test_a_slow_drive_is_idle_before_the_cut(lab: Lab, sqlite_url: str, power: Path) -> None:
    """Its writers need longer for their credit than the time at idle, which comes after that."""
    running = await lab.start(sqlite_url)
    settings, idle_s = settings_of(power), 0.1
    arm = replace(settings.arms[0], name="idle", moment="idle", idle_s=idle_s)
    async with living(Machine(lab, running.address, power, verdicts={"ssd": ["inconclusive"]})) as machine:
        await begin(lab, running, replace(settings, arms=(arm,), cuts=1))
        await until(lab, running, lambda state: state.state == "ended")
    case = await lab.exported(running.address, int(machine.armed[0], 16), lambda _: True)
    assert tuple(acked - lab.plan().credit for acked in case.frontiers) in case.credits
    entries = await entries_of(lab, running)
    held = [number for number, entry in enumerate(entries) if isinstance(entry.happening, WritersHeld)]
    asked = next(entry for entry in entries[held[-1] :] if isinstance(entry.happening, PowerAsked))
    assert asked.at_ns - entries[held[-1]].at_ns >= idle_s * 1e9
    assert [entries[number].happening for number in held] == [WritersHeld(in_s=0), WritersHeld(in_s=idle_s)]


async def test_a_run_that_comes_back_at_idle_is_held_again(lab: Lab, sqlite_url: str, power: Path) -> None:
    """A run in an idle arm that was loaded again after a server restart is held again, without new log
    entries. So its writers get no credit."""
    running = await lab.start(sqlite_url)
    settings = settings_of(power)
    arm = replace(settings.arms[0], name="idle", moment="idle", idle_s=10 * DEADLINE_S)
    async with living(Machine(lab, running.address, power)) as machine:
        await begin(lab, running, replace(settings, arms=(arm,)))
        await until(lab, running, lambda state: state.cycle is not None and state.cycle.phase == "held")
        (run,) = (run for run in running.server.runs if format_run(run.id) == machine.armed[-1])
        await waiting.until(lambda: run.held)
        run.held = False  # as one that was loaded anew
        await waiting.until(lambda: run.held)


async def test_a_run_that_comes_back_at_idle_is_idle_anew(lab: Lab, sqlite_url: str, power: Path) -> None:
    """Its writers have stopped, and its connection breaks. Once it is resumed it has its whole credit again,
    and the time at idle begins when that is used up."""
    running = await lab.start(sqlite_url)
    settings = settings_of(power)
    arm = replace(settings.arms[0], name="idle", moment="idle", idle_s=10 * DEADLINE_S)

    def is_idle(state: CampaignState) -> bool:
        return state.cycle is not None and state.cycle.phase == "held" and state.cycle.due_s > 0

    def is_held(state: CampaignState) -> bool:
        return state.cycle is not None and state.cycle.phase == "held" and state.cycle.due_s == 0

    async with living(Machine(lab, running.address, power)) as machine:
        await begin(lab, running, replace(settings, arms=(arm,)))
        await until(lab, running, is_idle)
        for writer in machine.writing:
            writer.cancel()
        await machine.runs[-1].close()
        await waiting.until(lambda: not running.server.runs)
        back = await lab.connect(running.address)
        accepted = await back.resume(int(machine.armed[-1], 16))
        await until(lab, running, is_held)
        used = tuple(granted + lab.plan().credit for granted in accepted.grants)
        back.say(messages.Ack(frontiers=used, control=0))
        await until(lab, running, is_idle)


async def test_news_go_to_the_operators_command(
    lab: Lab, sqlite_url: str, power: Path, tmp_path: Path
) -> None:
    """Each that matters comes once, as the last argument: the loss, the drive that leaves, the end."""
    news = tmp_path / "news"
    running = await lab.start(sqlite_url)
    async with living(Machine(lab, running.address, power, verdicts={"ssd": ["loss"]})) as machine:
        await begin(lab, running, settings_of(power, notify=f"sh -c 'echo \"$0\" >> {news}'"))
        await until(lab, running, lambda state: state.state == "ended")
        told = await until_lines(news, 3)
    assert told == [
        f"campaign trial: ssd: loss (run {machine.armed[0]}), its cycle is not over",
        "campaign trial: ssd is no longer tested: loss in cycle 1",
        "campaign trial: over: no drive is left to test",
    ]


async def test_a_command_for_news_that_cannot_be_run_is_refused(
    lab: Lab, sqlite_url: str, power: Path, tmp_path: Path
) -> None:
    """Before the check: as with the commands of a switch, people learn of it while they are there."""
    running = await lab.start(sqlite_url)
    missing = tmp_path / "tell-me"
    with pytest.raises(RefusedError, match=f"there is no program {missing}"):
        await begin(lab, running, settings_of(power, notify=f"{missing} now"), check_only=True)


async def until_lines(path: Path, count: int) -> list[str]:
    """The lines of a file, once there are so many."""
    async with asyncio.timeout(DEADLINE_S):
        while len(lines := lines_of(path)) < count:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)
    return lines


def lines_of(path: Path) -> list[str]:
    """Those that are there."""
    return path.read_text().splitlines() if path.exists() else []
