"""Several servers and campaigns: who conducts what, whatever stands still, moves or cannot be read."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from durability.campaign import next_steps, server_time
from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.settings import Settings
from durability.campaign.log_entries import DriveReported, Ended, Entry, PowerAnswered, PowerAsked
from durability.campaign.results import results
from durability.errors import RefusedError
from durability.formats.documents import to_value
from durability.formats.packing import pack
from durability.protocol import messages
from durability.units import format_run
from durability_client.campaigns import campaign_command
from durability_lab.support.postgresql import PostgreSQL
from durability_server import clock
from durability_server.campaigns import notifications
from durability_server.store.campaign_store import CampaignStore
from tests import waiting
from tests.server.campaigns.played_machine import Machine, gated_switch
from tests.server.campaigns.test_campaign_intruders import say, status
from tests.server.campaigns.test_campaigns import (
    begin,
    entries_of,
    living,
    open_,
    settings_of,
    until,
    until_lines,
)
from tests.server.campaigns.test_operator_commands import operator
from tests.server.conftest import Lab, Running, ServerProcess
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.slow  # each begins campaigns


@pytest.fixture
def two_processes(postgresql: PostgreSQL, tmp_path: Path, lab: Lab) -> Iterator[list[ServerProcess]]:
    """Two servers in processes of their own on one store; the first is not joined yet."""
    url = postgresql.new_database()
    servers = [ServerProcess(url, tmp_path / f"server{number}.log", lab) for number in range(2)]
    for server in servers:
        server.line = servers[0].line
        server.start()
    yield servers
    for server in servers:
        assert server.process is not None
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGCONT)
            server.end()


def is_gone(process: str) -> bool:
    """Whether a process has ended; it may wait for its parent to take note."""
    try:
        return ") Z " in Path("/proc", process, "stat").read_text()
    except OSError:
        return True


async def test_of_campaigns_that_begin_at_once_one_has_the_switch(
    lab: Lab, postgresql: PostgreSQL, power: Path
) -> None:
    """Two servers, four campaigns with the same switch and machine: one begins, the others are told of it."""
    url = postgresql.new_database()
    servers = [await lab.start(url) for _ in range(2)]
    wanted = [replace(settings_of(power), name=f"trial{number}") for number in range(4)]
    tries = (begin(lab, servers[number % 2], settings) for number, settings in enumerate(wanted))
    ended = await asyncio.gather(*tries, return_exceptions=True)
    assert [type(one) for one in ended].count(type(None)) == 1
    refused = [one for one in ended if one is not None]
    assert all(isinstance(one, RefusedError) and one.code == "busy" for one in refused)
    operator_ = await lab.connect(servers[0].address, "query", local=True)
    assert len((await operator_.ask(messages.ListCampaigns(), messages.CampaignNames)).names) == 1


async def test_campaigns_without_news_are_not_read(lab: Lab, store_url: str, power: Path) -> None:
    """Each status of an agent, and each check for campaigns to conduct, needs one query, however many
    campaigns have ended."""
    running = await lab.start(store_url)
    local = await lab.connect(running.address, "operate", local=True)
    for number in range(5):
        name = f"trial{number}"
        await begin(lab, running, replace(settings_of(power), name=name), check_only=True)
        await local.ask(messages.SteerCampaign(name=name, action="stop"), messages.Stored)
        await until(lab, running, lambda state: state.state == "ended", name)
    asked: list[str] = []

    def note(*about: object) -> None:
        asked.append(str(about[2]))

    agent = await lab.connect(running.address, "agent")
    event.listen(Engine, "before_cursor_execute", note)
    for _ in range(5):
        await agent.ask(messages.AgentStatus(status=to_value(status())), messages.AgentTask)
    await waiting.until(lambda: sum(one.startswith("SELECT campaigns.name") for one in asked) > 5 + 2)
    event.remove(Engine, "before_cursor_execute", note)
    read = sum("campaign_entries.data" in one for one in asked)
    assert read < 5  # the newest one hears its agent, and may have just ended


async def test_a_switch_belongs_to_one_campaign(lab: Lab, sqlite_url: str, power: Path) -> None:
    """Another machine at the same outlet would be cut in the middle of its runs; once the first campaign is
    over the switch is free, and a campaign that begins again is the newest."""
    running = await lab.start(sqlite_url)
    local = await lab.connect(running.address, "operate", local=True)
    invited = await local.ask(messages.Invite(role="client", name="other"), messages.Invited)
    await lab.join(running.address, invited.line, name="other")
    first = settings_of(power)
    drives = tuple(replace(drive, machine="other") for drive in first.drives)
    second = replace(first, name="second", machines=("other",), drives=drives)
    await begin(lab, running, first, check_only=True)
    with pytest.raises(RefusedError, match=r"switch commands sh .*belongs to campaign trial"):
        await begin(lab, running, second)
    await local.ask(messages.SteerCampaign(name="trial", action="stop"), messages.Stored)
    await until(lab, running, lambda state: state.state == "ended")
    await begin(lab, running, second, check_only=True)
    await local.ask(messages.SteerCampaign(name="second", action="stop"), messages.Stored)
    await until(lab, running, lambda state: state.state == "ended", "second")
    await begin(lab, running, first)
    asking = await lab.connect(running.address, "query", local=True)
    names = (await asking.ask(messages.ListCampaigns(), messages.CampaignNames)).names
    assert names == ("second", "trial")


@pytest.mark.slow
@pytest.mark.timeout(4 * DEADLINE_S)
@pytest.mark.usefixtures("impatient_database")  # it may stop within a transaction
async def test_a_server_that_stood_still_adds_nothing(
    lab: Lab, two_processes: list[ServerProcess], power: Path, tmp_path: Path
) -> None:
    """A server that stood still while another one finished the campaign adds no entry when it goes on."""
    first, second = two_processes
    await first.join()
    lab.members[second.address] = lab.members[first.address]
    gate = tmp_path / "gate"
    here, there = (Running(server=None, address=one.address) for one in two_processes)  # type: ignore[arg-type]
    async with living(Machine(lab, second.address, power)):
        await begin(lab, here, settings_of(power, power=(gated_switch(power, gate),), cuts=1))

        def is_asked_off(state: CampaignState) -> bool:
            return state.cycle is not None and state.cycle.switches[0].asked == "off"

        await until(lab, there, is_asked_off)
        assert first.process is not None
        first.process.send_signal(signal.SIGSTOP)
        open_(gate)
        state = await until(lab, there, lambda state: state.state == "ended")
        before = await entries_of(lab, there)
        first.process.send_signal(signal.SIGCONT)
        await entries_of(lab, here)  # it has gone on
        first.end(signal.SIGTERM)  # and has added all that it had to add
        after = await entries_of(lab, there)
    assert state.reason == "complete"
    (result,) = results(state)
    assert result.tally.cuts == 1
    assert after == before
    open_asks: dict[int, str] = {}
    for happening in (entry.happening for entry in after):
        if isinstance(happening, PowerAsked):
            open_asks[happening.switch] = happening.operation
        elif isinstance(happening, PowerAnswered):
            assert open_asks.pop(happening.switch) == happening.operation


async def test_a_moved_store_is_adopted(
    lab: Lab, sqlite_url: str, power: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine a campaign stands still, `status` says so, and goes on once it is adopted; a new
    host name alone changes nothing."""
    running = await lab.start(sqlite_url)
    await begin(lab, running, settings_of(power), check_only=True)
    await running.server.stop()
    monkeypatch.setattr(clock, "read_machine_id", lambda: "another-machine")
    told: list[tuple[str, str]] = []
    moved = await lab.start(sqlite_url, announce=lambda who, what: told.append((who, what)))
    said = io.StringIO()
    await campaign_command.status(operator(lab, moved), None, json=False, out=said)
    assert "no server runs it" in " ".join(said.getvalue().split())
    await waiting.until(lambda: bool(told))
    ((who, what),) = told
    assert who == "campaign trial" and "type `durability campaign adopt trial` here" in what
    async with living(Machine(lab, moved.address, power)):
        await campaign_command.steer(operator(lab, moved), "trial", "adopt", out=said)
        state = await until(lab, moved, lambda state: state.state == "ended")
    assert state.reason == "checked" and "runs campaign trial from now on" in said.getvalue()


async def test_a_campaign_that_cannot_be_read_stops_no_other(
    lab: Lab, sqlite_url: str, power: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, also in `status`; the others go on, and agents get their tasks."""
    file = sqlite_url.removeprefix("sqlite:///")
    running = await lab.start(sqlite_url)
    for name in ("broken", "torn", "mangled"):
        await begin(lab, running, replace(settings_of(power), name=name), check_only=True)
        local = await lab.connect(running.address, "operate", local=True)
        await local.ask(messages.SteerCampaign(name=name, action="stop"), messages.Stored)
        await until(lab, running, lambda state: state.state == "ended", name)
        await local.close()
    await running.server.stop()
    with sqlite3.connect(file) as db:
        garbage = pack({"number": 2, "happening": {"kind": "from-a-later-version"}})
        db.execute("UPDATE campaign_entries SET data = ? WHERE campaign = 'broken' AND number = 2", [garbage])
        db.execute("UPDATE campaign_entries SET data = x'c1' WHERE campaign = 'mangled'")
        db.execute("DELETE FROM campaign_entries WHERE campaign = 'torn' AND number = 2")
    db.close()
    again = await lab.start(sqlite_url)
    with caplog.at_level(logging.INFO):
        agent = await lab.connect(again.address, "agent")
        for _ in range(3):
            assert (await say(agent, status())).kind == "wait"
        await agent.close()
        async with living(Machine(lab, again.address, power)):
            await begin(lab, again, settings_of(power), check_only=True)
            state = await until(lab, again, lambda state: state.state == "ended")
    assert state.reason == "checked"
    for name in ("broken", "torn", "mangled"):
        lines = [record for record in caplog.records if f"campaign {name} cannot be read" in record.message]
        assert len(lines) == 1
    said = io.StringIO()
    for name in ("broken", "torn", "mangled"):
        await campaign_command.status(operator(lab, again), name, json=False, out=said)
    assert " ".join(said.getvalue().split()).count("cannot read its log") == 3
    await campaign_command.status(operator(lab, again), None, json=False, out=said)
    assert "campaign trial: ended" in said.getvalue()


async def test_a_slow_command_for_news_delays_no_campaign(
    lab: Lab, sqlite_url: str, power: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The campaign goes on and ends while the command for its first news has not ended; what that started is
    ended with the server."""
    monkeypatch.setattr(notifications, "COMMAND_S", 10 * DEADLINE_S)
    running = await lab.start(sqlite_url)
    told = tmp_path / "told"
    hangs = f"sh -c 'sleep 1000 & echo $! >> {told}; wait'"
    machine = Machine(lab, running.address, power, verdicts={"ssd": ["loss", "durable"]})
    async with living(machine):
        await begin(lab, running, settings_of(power, notify=hangs, stop_at="end", cuts=2))
        state = await until(lab, running, lambda state: state.state == "ended")
        assert state.reason == "complete"
    (process,) = await until_lines(told, 1)
    await running.server.stop()
    await waiting.until(lambda: is_gone(process))


async def test_a_campaign_begins_while_news_of_its_check_are_told(
    lab: Lab, sqlite_url: str, power: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is over and its news not yet: the campaign is conducted all the same, and its news come."""
    monkeypatch.setattr(notifications, "COMMAND_S", 10 * DEADLINE_S)
    running = await lab.start(sqlite_url)
    gate, told = tmp_path / "gate", tmp_path / "told"
    waits = f"sh -c 'until [ -e {gate} ]; do sleep 0.05; done; echo \"$0\" >> {told}'"
    settings = settings_of(power, notify=waits, cuts=1)
    async with living(Machine(lab, running.address, power)):
        await begin(lab, running, settings, check_only=True)
        await until(lab, running, lambda state: state.state == "ended")
        await begin(lab, running, settings)
        state = await until(lab, running, lambda state: state.state == "ended")
        assert state.reason == "complete"
        open_(gate)
        assert await until_lines(told, 2) == [
            f"campaign trial: over: {why}" for why in ("checked", "complete")
        ]


async def test_news_of_a_campaign_that_is_over_are_told_after_a_restart(
    lab: Lab, sqlite_url: str, power: Path, tmp_path: Path
) -> None:
    """The server ends while the command has the news of the campaign's end: the next one gives them once, and
    then nothing of the campaign is at work any more."""
    gate, told = tmp_path / "gate", tmp_path / "told"
    waits = f"sh -c 'until [ -e {gate} ]; do sleep 0.05; done; echo \"$0\" >> {told}'"
    running = await lab.start(sqlite_url)
    await stop_check(lab, running, settings_of(power, notify=waits))
    await running.server.stop()
    open_(gate)
    await lab.start(sqlite_url)
    assert await until_lines(told, 1) == ["campaign trial: over: stopped"]
    await waiting.until(lambda: not any("CampaignTask.work" in str(one) for one in asyncio.all_tasks()))
    assert len(told.read_text().splitlines()) == 1


async def test_a_command_for_news_that_may_not_be_ended_gives_them_once(
    lab: Lab, sqlite_url: str, power: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It became another user and does not end in time: its news are given all the same."""
    monkeypatch.setattr(notifications, "COMMAND_S", 0.5)
    end, tell, given, told = os.killpg, CampaignStore.set_notified, [0], tmp_path / "told"

    def is_anothers(group: int, number: int) -> None:
        waiting.wait_for(lambda: told.exists() and bool(told.read_text()))
        end(group, number)  # nothing is left behind
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def told_up_to(store: CampaignStore, name: str, number: int) -> None:
        tell(store, name, number)
        given.append(number)

    monkeypatch.setattr(os, "killpg", is_anothers)
    running = await lab.start(sqlite_url)
    monkeypatch.setattr(CampaignStore, "set_notified", told_up_to)
    notify = f"sh -c 'echo \"$0\" >> {told}; sleep 1000'"
    over = await stop_check(lab, running, settings_of(power, notify=notify))
    await waiting.until(lambda: given[-1] == over.number)
    assert told.read_text().splitlines() == ["campaign trial: over: stopped"]


async def test_a_defect_of_news_is_logged_and_the_news_come(
    *,
    lab: Lab,
    sqlite_url: str,
    power: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They are not taken for told, and the log says why they come late."""
    monkeypatch.setattr(notifications, "RETRY_S", 0.1)
    working, fails = notifications.news_of, [True, True]

    def news_of(entry: Entry, lost: set[str]) -> Iterator[tuple[str, bool]]:
        if isinstance(entry.happening, Ended) and fails and fails.pop():
            raise RuntimeError("a defect")
        return working(entry, lost)

    monkeypatch.setattr(notifications, "news_of", news_of)
    told = tmp_path / "told"
    running = await lab.start(sqlite_url)
    await stop_check(lab, running, settings_of(power, notify=f"sh -c 'echo \"$0\" >> {told}'"))
    assert await until_lines(told, 1) == ["campaign trial: over: stopped"]
    (said,) = [one for one in caplog.records if "news of campaign trial: a defect" in one.message]
    assert said.exc_info


async def stop_check(lab: Lab, running: Running, settings: Settings) -> CampaignState:
    """Begin a check of a machine that is not heard, and stop it; what it is then."""
    await begin(lab, running, settings, check_only=True)
    local = await lab.connect(running.address, "operate", local=True)
    await local.ask(messages.SteerCampaign(name="trial", action="stop"), messages.Stored)
    return await until(lab, running, lambda state: state.state == "ended")


async def test_a_lost_run_of_a_campaign_is_left_to_it(lab: Lab, sqlite_url: str, power: Path) -> None:
    """After the cut, `serve` says which campaign verifies the run, and does not ask the user to verify it."""
    told: list[str] = []
    running = await lab.start(sqlite_url, announce=lambda _, what: told.append(what))
    async with living(Machine(lab, running.address, power)):
        # The power stays off for longer than a client may be silent.
        arm = replace(settings_of(power).arms[0], off_s=(2.5, 2.6))
        await begin(lab, running, settings_of(power, cuts=1, arms=(arm,)))
        await until(lab, running, lambda state: state.state == "ended")
    lost = [what for what in told if " lost at " in what]  # a slow machine may also be silent before its cut
    assert lost
    assert all(one.endswith(": campaign trial verifies it") for one in lost), lost
    assert not any("durability verify" in what for what in told), told


async def test_a_server_that_stands_still_takes_no_machine_for_silent(
    lab: Lab, sqlite_url: str, power: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time in which the server itself stood still does not count as silence of a machine."""
    monkeypatch.setattr(server_time, "STORE_SILENT_AFTER_S", 2.0)
    running = await lab.start(sqlite_url)
    await begin(lab, running, settings_of(power), check_only=True)
    local = await lab.connect(running.address, "query", local=True)
    time.sleep(4.0)  # noqa: ASYNC251 - the server is in this loop
    shown = await local.ask(messages.ShowCampaign(name="trial", after=0), messages.Campaign)
    silent_s = shown.silent_s["test"]
    assert isinstance(silent_s, float) and silent_s < 4.0


async def test_an_agent_is_heard_and_held_at_any_server(
    lab: Lab, postgresql: PostgreSQL, power: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine speaks to one server and another one conducts: that knows for how long the machine has been
    silent, and its writers get no credit before a cut at idle."""
    quiet_s = 3.0
    monkeypatch.setattr(next_steps, "AFTER_SHUTDOWN_S", quiet_s)
    url = postgresql.new_database()
    here, there = [await lab.start(url) for _ in range(2)]
    gate = tmp_path / "gate"
    open_(gate)
    settings = settings_of(power, power=(gated_switch(power, gate),))
    (load, *_) = settings.arms
    arms = (
        replace(load, name="idle", moment="idle", idle_s=quiet_s),
        replace(load, name="off", moment="shutdown"),
    )
    settings = replace(settings, arms=arms, cuts=2)
    verdicts = {"ssd": ["inconclusive", "inconclusive"]}
    async with living(Machine(lab, there.address, power, verdicts=verdicts)) as machine:
        await begin(lab, here, settings, check_only=True)
        await until(lab, here, lambda state: state.state == "ended")
        gate.unlink()  # the first cycle stays in its phase "off" until it is there again
        await begin(lab, here, settings)

        def is_cut_at_idle(state: CampaignState) -> bool:
            return state.cycle is not None and state.cycle.phase in ("held", "off")

        await until(lab, here, is_cut_at_idle)
        await waiting.until(
            lambda: any(run.held for run in there.server.runs if format_run(run.id) == machine.armed[-1])
        )
        open_(gate)
        await until(lab, here, lambda state: state.state == "ended")
    entries = await entries_of(lab, here)
    down = next(
        number
        for number, entry in enumerate(entries)
        if isinstance(entry.happening, DriveReported) and entry.happening.what == "shutdown"
    )
    asked = next(entry for entry in entries[down:] if isinstance(entry.happening, PowerAsked))
    assert asked.at_ns - entries[down].at_ns >= (quiet_s - 1) * 1e9  # signs of life go by once a second
