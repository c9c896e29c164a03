"""What agents say is held against the store: nothing of other clients, machines or cycles is believed."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.settings import DriveUnderTest
from durability.campaign.log_entries import DriveReported, MachineSeen, PowerWentOff, StrangerHeard
from durability.campaign.tasks import DriveStatus, DriveTask, Status, Task
from durability.errors import PeerError, RefusedError
from durability.formats.documents import from_value, to_value
from durability.protocol import messages
from durability.protocol.local_address import socket_name
from durability.units import format_run
from durability_client import clients_command
from durability_client.link.endpoint import Endpoint
from durability_server import clock
from durability_server.campaigns import allowance, campaigns
from tests.server.campaigns.played_machine import Machine
from tests.server.campaigns.test_campaigns import begin, entries_of, living, settings_of, until
from tests.server.conftest import Client, Lab, Member, Running

pytestmark = pytest.mark.slow  # each begins campaigns

THEIRS = 0x7E57_0000_0000_0001


async def tenant_of(lab: Lab, running: Running) -> Member:
    """Another client of the server, which is no machine of a campaign."""
    operator = await lab.connect(running.address, "operate", local=True)
    invited = await operator.ask(messages.Invite(role="client", name="other"), messages.Invited)
    return await lab.join(running.address, invited.line, name="other")


def status(**changes: Any) -> Status:
    """What an agent says that has nothing to do."""
    fields: dict[str, Any] = {
        "boot_id": "boot-1",
        "machine_id": "machine-1",
        "uptime_ns": 1,
        "virtualisation": "none",
        "software": "test",
        "task": 0,
        "drives": (),
    }
    return Status(**{**fields, **changes})


def drive_status(**changes: Any) -> DriveStatus:
    """What an agent says of the drive "ssd"."""
    fields: dict[str, Any] = {
        "drive": "ssd",
        "state": "armed",
        "trouble": "",
        "text": "",
        "run": "",
        "exit_code": None,
        "condition": None,
        "mount_s": None,
        "repaired": False,
    }
    return DriveStatus(**{**fields, **changes})


async def begin_cycle(lab: Lab, running: Running, power: Path) -> None:
    """Begin a campaign, and wait for its first cycle: before that, agents have nothing to do."""
    await begin(lab, running, settings_of(power))
    await until(lab, running, lambda state: state.cycle is not None)


async def say(client: Client, said: Status) -> Task:
    """The task that the server gives for a status."""
    answer = await client.ask(messages.AgentStatus(status=to_value(said)), messages.AgentTask)
    return from_value(Task, answer.task)


class Liar(Machine):
    """A machine whose agent names runs that it must not. `named`: one for each cycle, the last for ever."""

    named: list[str]

    async def _run(self, part: DriveTask) -> str:
        mine = await super()._run(part)
        named = self.named.pop(0) if len(self.named) > 1 else self.named[0]
        return named or mine


async def played(lab: Lab, running: Running, power: Path, *named: str) -> CampaignState:
    """The state of a campaign whose agent names these runs, once nothing more is done."""
    machine = Liar(lab, running.address, power)
    machine.named = list(named)
    async with living(machine):
        await begin(lab, running, settings_of(power))
        return await until(lab, running, lambda state: state.state != "running")


@pytest.mark.parametrize(
    "named", ["nonsense", format_run(THEIRS).upper(), "0" * 16, "7" * 17, "../../etc", format_run(THEIRS)]
)
async def test_a_run_that_is_not_the_machines_own_is_refused(
    named: str, lab: Lab, sqlite_url: str, power: Path
) -> None:
    """A run of another client that the agent names gets no attested cut. The drive fails with a text, and the
    campaign pauses."""
    running = await lab.start(sqlite_url)
    tenant = await tenant_of(lab, running)
    theirs = await lab.connect(running.address, member=tenant)
    facts = lab.facts(serial="T1", uuid="t1")
    await theirs.begin(lab.plan(run=THEIRS), facts, label="trial 1")  # also under this campaign's label
    state = await played(lab, running, power, named)
    assert state.state == "paused" and "the agent named " in state.reason
    entries = [entry.happening for entry in await entries_of(lab, running)]
    assert not any(isinstance(one, PowerWentOff) and one.runs for one in entries)
    said = {one.status.text for one in entries if isinstance(one, DriveReported) and one.what == "run"}
    assert len(said) == 1 and "the agent named" in said.pop()
    case = await lab.exported(running.address, THEIRS, lambda _: True)
    assert not case.power_offs and case.state != "ended"


async def test_a_run_of_an_earlier_cycle_does_not_count_again(lab: Lab, sqlite_url: str, power: Path) -> None:
    """An agent that names its first run for ever gets one cut counted."""
    running = await lab.start(sqlite_url)
    machine = Liar(lab, running.address, power)
    machine.named = [""]
    async with living(machine):
        await begin(lab, running, settings_of(power))
        first = await until(lab, running, lambda state: state.cycle is not None and bool(state.cycle.armed))
        assert first.cycle is not None
        machine.named = [*first.cycle.runs.values()]
        state = await until(lab, running, lambda state: state.state != "running")
    assert state.state == "paused" and "of an earlier cycle" in state.reason
    assert state.judged_cycles("ssd") == 1


async def test_two_drives_cannot_share_a_run(lab: Lab, sqlite_url: str, power: Path) -> None:
    """A run is of one drive; the other one's part has failed."""
    running = await lab.start(sqlite_url)
    settings = settings_of(power, cuts=1)
    drives: tuple[DriveUnderTest, ...] = (
        *settings.drives,
        replace(settings.drives[0], name="hdd", target="/mnt/hdd"),
    )

    class Twin(Machine):
        async def _run(self, part: DriveTask) -> str:
            return await super()._run(part) if part.drive.name == "ssd" else self.armed[-1]

    async with living(Twin(lab, running.address, power)):
        await begin(lab, running, replace(settings, drives=drives))
        state = await until(lab, running, lambda state: any(past.began.cycle for past in state.cycles))
    words = {mine.drive: mine.word for mine in state.cycles[-1].drives}
    assert words == {"ssd": "durable", "hdd": "nothing"}


async def test_a_tenant_adds_nothing(
    lab: Lab, sqlite_url: str, power: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that is not a machine of the campaign is told to wait, whatever it sends. It adds no entry to
    the campaign's log and no line to the server's."""
    running = await lab.start(sqlite_url)
    tenant = await lab.connect(running.address, "agent", member=await tenant_of(lab, running))
    await begin_cycle(lab, running, power)
    mine = await lab.connect(running.address, "agent")
    task = await say(mine, status())
    assert task.kind == "examine"
    before = await entries_of(lab, running)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        for number in range(300):
            drives = (drive_status(state="done", text=f"{number} " * 500, run=format_run(number)),)
            told = status(
                boot_id=f"boot-{number}", task=task.number, campaign="trial", drives=drives, software="test"
            )
            assert (await say(tenant, told)).kind == "wait"
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("durability")]
    assert not [line for line in ours if "did not run for" not in line]  # which a busy machine makes true
    after = await entries_of(lab, running)
    power_entries = ("power-asked", "power-answered")
    assert [entry for entry in after if entry.happening.kind not in power_entries] == [
        entry for entry in before if entry.happening.kind not in power_entries
    ]


async def fluttering(lab: Lab, running: Running, power: Path) -> tuple[Client, Callable[[int], Status]]:
    """An agent in the check of two drives, of which it reports one; a status that is another one for each
    number."""
    settings = settings_of(power)
    second = replace(settings.drives[0], name="hdd", target="/mnt/h")
    await begin(lab, running, replace(settings, drives=(*settings.drives, second)))
    await until(lab, running, lambda state: state.cycle is not None)
    agent = await lab.connect(running.address, "agent")
    task = await say(agent, status())

    def flutter(number: int) -> Status:
        drives = (drive_status(state="done", text=f"{number}"),)
        return status(task=task.number, campaign="trial", drives=drives)

    return agent, flutter


async def reports_of(lab: Lab, running: Running) -> int:
    """How many reports of drives the log has."""
    return sum(isinstance(one.happening, DriveReported) for one in await entries_of(lab, running))


async def test_what_one_machine_adds_to_a_log_has_a_size(
    lab: Lab, sqlite_url: str, power: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing more is added then, also by a server that has read the log, and one line says so."""
    monkeypatch.setattr(allowance, "BYTES_MAX", 10_000)
    running = await lab.start(sqlite_url)
    agent, flutter = await fluttering(lab, running, power)
    for number in range(100):
        await say(agent, flutter(number))
    added = await reports_of(lab, running)
    assert 10 < added < 50
    assert sum("of the log; the rest is discarded" in one.message for one in caplog.records) == 1
    await running.server.stop()
    running = await lab.start(sqlite_url)
    agent = await lab.connect(running.address, "agent")
    for number in range(100, 110):
        await say(agent, flutter(number))
    assert await reports_of(lab, running) == added


async def test_a_machine_that_flutters_fills_no_log(
    lab: Lab, sqlite_url: str, power: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent that says something else each time adds a burst of entries, then few; one line says so."""
    monkeypatch.setattr(allowance, "BURST", 50)
    running = await lab.start(sqlite_url)
    agent, flutter = await fluttering(lab, running, power)
    began_ns = clock.now_ns()
    for number in range(2 * allowance.BURST):
        await say(agent, flutter(number))
    took_s = (clock.now_ns() - began_ns) / 1e9
    added = await reports_of(lab, running)
    assert allowance.BURST / 2 < added <= allowance.BURST + 1 + took_s / allowance.REFILL_S
    said = [record for record in caplog.records if "sends too many changes" in record.message]
    assert len(said) <= 1 + took_s / (allowance.REFILL_S * allowance.BURST / 2)


async def test_another_boot_is_heard_with_its_second_status(lab: Lab, sqlite_url: str, power: Path) -> None:
    """A first status may have waited for this server since before the newest boot; a second one on the same
    connection has not, and not one on another."""
    running = await lab.start(sqlite_url)
    await begin_cycle(lab, running, power)
    first, late, newest = [await lab.connect(running.address, "agent") for _ in range(3)]
    assert (await say(first, status(boot_id="boot-1"))).kind == "examine"
    assert (await say(newest, status(boot_id="boot-3"))).kind == "wait"
    assert (await say(late, status(boot_id="boot-2"))).kind == "wait"
    assert (await say(newest, status(boot_id="boot-3"))).kind == "examine"
    assert (await say(late, status(boot_id="boot-2"))).kind == "wait"
    entries = [entry.happening for entry in await entries_of(lab, running)]
    assert [one.boot_id for one in entries if isinstance(one, MachineSeen)] == ["boot-1", "boot-3"]


async def test_the_servers_own_machine_is_not_cut(lab: Lab, sqlite_url: str, power: Path) -> None:
    """An agent in the server's own boot is told nothing, and the log says why, once."""
    running = await lab.start(sqlite_url)
    await begin_cycle(lab, running, power)
    agent = await lab.connect(running.address, "agent")
    for _ in range(3):
        assert (await say(agent, status(boot_id=clock.read_boot_id()))).kind == "wait"
    entries = [entry.happening for entry in await entries_of(lab, running)]
    (heard,) = [one for one in entries if isinstance(one, StrangerHeard)]
    assert "the server's own machine" in heard.text
    assert not any(isinstance(one, MachineSeen) for one in entries)


async def test_another_client_of_the_same_name_is_a_stranger(lab: Lab, sqlite_url: str, power: Path) -> None:
    """The check binds a credential and a machine: who joins later as this name, or answers from another
    machine, gets no task."""
    running = await lab.start(sqlite_url)
    operator = await lab.connect(running.address, "operate", local=True)
    async with living(Machine(lab, running.address, power)):
        await begin(lab, running, settings_of(power), check_only=True)
        await until(lab, running, lambda state: state.state == "ended")
    await begin_cycle(lab, running, power)
    moved = await lab.connect(running.address, "agent")
    assert (await say(moved, status(boot_id="new", machine_id="machine-2"))).kind == "wait"
    await operator.ask(messages.Revoke(client="test"), messages.Revoked)
    invited = await operator.ask(messages.Invite(role="client", name="test"), messages.Invited)
    heir = await lab.connect(
        running.address, "agent", member=await lab.join(running.address, invited.line, name="test")
    )
    assert (await say(heir, status(boot_id="newer"))).kind == "wait"
    texts = [
        e.happening.text for e in await entries_of(lab, running) if isinstance(e.happening, StrangerHeard)
    ]
    assert len(texts) == 2 and "another machine" in texts[0] and "joined again" in texts[1]


async def test_a_status_of_another_campaign_is_not_heard(lab: Lab, sqlite_url: str, power: Path) -> None:
    """A late status with the right number of a task, and another campaign's name, changes nothing."""
    running = await lab.start(sqlite_url)
    await begin_cycle(lab, running, power)
    agent = await lab.connect(running.address, "agent")
    task = await say(agent, status())
    for campaign in ("", "other"):
        late = status(
            task=task.number, campaign=campaign, drives=(drive_status(state="failed", text="late"),)
        )
        await say(agent, late)
    entries = [entry.happening for entry in await entries_of(lab, running)]
    assert not any(isinstance(one, DriveReported) for one in entries)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"drives": 7},
        {**to_value(status()), "software": "x" * 5000},
        {**to_value(status()), "task": -1},
        {**to_value(status()), "drives": [{**to_value(drive_status()), "state": "bored"}]},
        {**to_value(status()), "boot_id": ["boot-1"]},
    ],
)
async def test_a_malformed_status_ends_its_connection_alone(
    document: dict[str, Any], lab: Lab, sqlite_url: str, power: Path
) -> None:
    """The server says what is wrong and goes on for others; the campaign has no entry of it."""
    running = await lab.start(sqlite_url)
    await begin_cycle(lab, running, power)
    agent = await lab.connect(running.address, "agent")
    with pytest.raises((PeerError, RefusedError)):
        await agent.ask(messages.AgentStatus(status=document), messages.AgentTask)
    other = await lab.connect(running.address, "agent")
    assert (await say(other, status())).kind == "examine"


async def test_a_machine_that_never_joined_is_refused(lab: Lab, sqlite_url: str, power: Path) -> None:
    """Else the campaign would wait for it in vain; those that joined are named."""
    running = await lab.start(sqlite_url)
    settings = settings_of(power)
    drives = tuple(replace(drive, machine="tset") for drive in settings.drives)
    with pytest.raises(RefusedError, match="no machine has joined as 'tset'; those that did: test"):
        await begin(lab, running, replace(settings, machines=("tset",), drives=drives))


@pytest.mark.parametrize("check_only", [True, False])
async def test_a_campaign_of_more_runs_than_a_client_may_have_is_refused(
    check_only: bool, lab: Lab, sqlite_url: str, power: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would stop in the middle of its cuts."""
    running = await lab.start(sqlite_url)
    await (await lab.connect(running.address)).begin(lab.plan(run=THEIRS), lab.facts())
    monkeypatch.setattr(campaigns, "RUNS_OF_CLIENT_MAX", 3)
    what = "machine test has 1 run here, and this campaign makes at least 3 more .1 drive, 3 cuts each."
    with pytest.raises(RefusedError, match=what) as refused:
        await begin(lab, running, settings_of(power), check_only=check_only)
    assert refused.value.code == "quota"
    monkeypatch.setattr(campaigns, "RUNS_OF_CLIENT_MAX", 4)
    await begin(lab, running, settings_of(power), check_only=check_only)


async def test_a_secret_is_refused_by_the_server_too(lab: Lab, sqlite_url: str, power: Path) -> None:
    """The server refuses a secret in a power command, whichever program sends it, and stores nothing."""
    running = await lab.start(sqlite_url)
    settings = settings_of(power)
    spoken = replace(settings.power[0], options={**settings.power[0].options, "off": "plug --token HUSH"})
    with pytest.raises(RefusedError, match="has a secret among its words") as refused:
        await begin(lab, running, replace(settings, power=(spoken,)))
    assert "HUSH" not in str(refused.value)
    operator = await lab.connect(running.address, "query", local=True)
    assert not (await operator.ask(messages.ListCampaigns(), messages.CampaignNames)).names


async def test_what_an_agent_says_is_kept_to_some_kib(lab: Lab, sqlite_url: str, power: Path) -> None:
    """Entries of a log stay for ever, so a status full of text does not fill the store."""
    running = await lab.start(sqlite_url)
    await begin_cycle(lab, running, power)
    agent = await lab.connect(running.address, "agent")
    task = await say(agent, status())
    long = drive_status(state="failed", text="é" * 4096)
    await say(agent, status(software="x" * 4096, task=task.number, campaign="trial", drives=(long,)))
    entries = await entries_of(lab, running)
    texts = [entry.happening.status.text for entry in entries if isinstance(entry.happening, DriveReported)]
    assert texts == ["é" * 1024]


async def test_machine_of_a_campaign_keeps_its_name(lab: Lab, sqlite_url: str, power: Path) -> None:
    """It would not be heard under another one. Once the campaign is over it may be renamed."""
    running = await lab.start(sqlite_url)

    async def rename(client: str, name: str) -> None:
        operator = await lab.connect(running.address, "operate", local=True)
        await operator.ask(messages.Rename(client=client, name=name), messages.Stored)

    async with living(Machine(lab, running.address, power)):
        await begin(lab, running, settings_of(power, cuts=1))
        operator = await lab.connect(running.address, "operate", local=True)
        rows = (await operator.ask(messages.ListClients(), messages.Clients)).rows
        (mine,) = [str(row["client"]) for row in rows if row["name"] == "test"]
        for client in ("test", mine):
            with pytest.raises(RefusedError, match="campaign trial, which is not over, has the machine test"):
                await rename(client, "other")
        await rename("test", "test")
        await until(lab, running, lambda state: state.state == "ended")
        await rename("test", "other")


async def test_machine_of_a_campaign_is_revoked_and_its_operator_is_told(
    lab: Lab, sqlite_url: str, power: Path
) -> None:
    """A machine of a running campaign is revoked at once, since its credential may be stolen. `serve` and the
    command name the campaign."""
    said: list[tuple[str, str]] = []
    running = await lab.start(sqlite_url, announce=lambda who, what: said.append((who, what)))
    await begin(lab, running, settings_of(power, cuts=1))
    server = Endpoint(local=lab.directory / socket_name(running.address[1]))
    out = io.StringIO()
    await clients_command.revoke(server, "test", out=out)
    assert "campaign trial still needs this client, and will pause" in out.getvalue()
    text = "its machine test was revoked, and is not heard any more: stop the campaign"
    assert ("campaign trial", text) in said
