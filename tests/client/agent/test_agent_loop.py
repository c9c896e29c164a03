"""The agent's connection: statuses, tasks, and servers that are away, refuse, or talk nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from durability.errors import SetupError
from durability_client.agent import agent_loop as loop_module
from durability_client.agent.agent_loop import agent_loop
from durability_client.agent.agent_paths import AgentPaths
from durability_client.agent.drive_work import Setting
from durability_client.agent.task_work import TaskWork
from durability_client.link.credential import SCHEMA, Credential, place_for_credential
from durability_client.link.endpoint import Endpoint
from durability_client.target.discovery import host_now
from tests.client.agent.task_server import Tasks, TaskServer, drive_on, task_server
from tests.waiting import until

pytestmark = pytest.mark.slow


class LoopHere:
    """The agent's loop in this process; `said` has its words, `offs` how often it shut the machine down."""

    def __init__(self, directory: Path) -> None:
        self.said: list[str] = []
        self.offs = 0
        setting = Setting(places=AgentPaths(directory / "agent"), options=(), boot_id=host_now().boot_id)
        self.work = TaskWork(setting, host_now(), power_off=self._off, say=self.said.append)
        endpoint = Endpoint(local=directory / "socket")
        self.task = asyncio.create_task(agent_loop(endpoint, self.work, self.said.append))

    @property
    def connected(self) -> int:
        """How often it has said that it is connected."""
        return sum(line.startswith("connected") for line in self.said)

    async def _off(self) -> None:
        self.offs += 1


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "_WAIT_S", (0.01,))


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[LoopHere]:
    loop = LoopHere(tmp_path)
    yield loop
    assert not loop.task.done()
    loop.task.cancel()


async def test_an_agent_asks_again_and_again(here: LoopHere, tmp_path: Path) -> None:
    """A status says boot, machine and uptime, and another one follows without being asked for."""
    async with task_server(tmp_path) as server:
        first = await server.until(lambda _: True)
        later = await server.until(lambda status: status.uptime_ns > first.uptime_ns)
    host = host_now()
    assert (later.boot_id, later.machine_id) == (host.boot_id, host.machine_id)
    assert later.boot_id and later.virtualisation and later.task == 0 and later.drives == ()


async def test_a_server_that_is_away_is_waited_for(here: LoopHere, tmp_path: Path) -> None:
    """An agent that is there before its server, and while that is restarted, finds it each time. Between it
    says that the server is gone, and no line twice."""
    for number in range(1, 4):
        async with task_server(tmp_path):
            await until(lambda number=number: here.connected == number)  # type: ignore[misc]
        (tmp_path / "socket").unlink(missing_ok=True)
    found = [number for number, line in enumerate(here.said) if line.startswith("connected")]
    for before, after in pairwise(found):
        lines = here.said[before + 1 : after]
        assert lines and len(lines) == len(set(lines))


async def test_a_refusal_does_not_end_the_agent(here: LoopHere, tmp_path: Path) -> None:
    """A server that does not know the client is asked again, until it does."""
    server = TaskServer()
    server.refusal = "no such client"
    await server.start(tmp_path / "socket")
    await until(lambda: "no such client" in here.said)
    server.refusal = ""
    await server.until(lambda _: True)
    await server.stop()


async def test_an_agent_ends_once_its_machine_has_joined_anew(tmp_path: Path) -> None:
    """A refused agent ends once its machine has a new credential, so that systemd starts it again with that
    credential."""
    path = tmp_path / "credential.json"
    mine = Credential(
        schema=SCHEMA,
        servers=("192.0.2.7:7420",),
        fingerprint="ab" * 32,
        client="01" * 8,
        secret="cd" * 32,
        name="b",
        role="client",
    )
    with place_for_credential(path, replaces=False) as save:
        save(mine)
    server = TaskServer()
    server.refusal = "no such client"
    await server.start(tmp_path / "socket")
    setting = Setting(places=AgentPaths(tmp_path / "agent"), options=(), boot_id=host_now().boot_id)
    said: list[str] = []
    work = TaskWork(setting, host_now(), power_off=asyncio.Event().wait, say=said.append)  # type: ignore[arg-type]
    endpoint = Endpoint(local=tmp_path / "socket", client=mine.client)
    task = asyncio.create_task(agent_loop(endpoint, work, said.append, credential=path))
    await until(lambda: "no such client" in said)
    with place_for_credential(path, replaces=True) as save:
        save(replace(mine, client="02" * 8, name="b2"))
    with pytest.raises(SetupError, match=r"joined 192\.0\.2\.7:7420 as b2 since: start the agent again"):
        await task
    await server.stop()


async def test_what_is_no_task_does_not_end_the_agent(here: LoopHere, tmp_path: Path) -> None:
    """The agent logs an answer that is not a valid task, and asks again."""
    async with task_server(tmp_path) as server:
        server.garbage = True
        await server.until(lambda _: server.asked > 3)
        server.garbage = False
        server.task = Tasks(()).make("wait")
        await server.until(lambda status: status.task == 1)
    assert any("not a valid Task" in line for line in here.said)


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", "-rf"])
async def test_a_name_that_is_a_path_is_refused(here: LoopHere, tmp_path: Path, name: str) -> None:
    """A task with a drive name that is a path is refused, because names become parts of paths."""
    async with task_server(tmp_path) as server:
        server.task = Tasks((drive_on("/dev/none", name=name),)).make("examine")
        await server.until(lambda _: server.asked > 3)
        assert server.status is not None and server.status.task == 0
    assert any(repr(name) in line for line in here.said)


async def test_a_device_elsewhere_than_below_dev_is_refused(here: LoopHere, tmp_path: Path) -> None:
    """A task whose device is a file outside /dev is refused."""
    async with task_server(tmp_path) as server:
        server.task = Tasks((drive_on("/etc/passwd"),)).make("run", fresh=True)
        await server.until(lambda _: server.asked > 3)
        assert server.status is not None and server.status.task == 0


async def test_news_is_said_at_once(here: LoopHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drive's new state is said without waiting for the next status to be due."""
    monkeypatch.setattr(loop_module, "STATUS_S", 3600.0)
    async with task_server(tmp_path) as server:
        server.task = Tasks((drive_on("/dev/durability-none"),), ready_within_s=0.2).make("examine")
        status = await server.drive("failed")
    assert (status.trouble, "durability-none is not there" in status.text) == ("missing", True)


async def test_the_same_task_is_done_once(here: LoopHere, tmp_path: Path) -> None:
    """A task that is sent repeatedly is done once. The same kind of task with another number is done
    again."""
    async with task_server(tmp_path) as server:
        tasks = Tasks((drive_on("/dev/durability-none"),), ready_within_s=0.0)
        await server.do(tasks.make("examine"))
        asked = server.asked
        await server.until(lambda _: server.asked > asked + 2)
        await server.do(tasks.make("examine"))
    assert sum(line.startswith("task ") for line in here.said) == 2


async def test_a_run_of_another_boot_is_not_begun(here: LoopHere, tmp_path: Path) -> None:
    """A run task of an earlier boot is not begun, because data of that boot may be unverified."""
    async with task_server(tmp_path) as server:
        task = Tasks((drive_on("/dev/durability-none"),)).make("run", fresh=True, boot_id="another")
        status = await server.do(task, "failed")
    assert status.trouble == "not-begun" and "restarted" in status.text


async def test_a_machine_is_shut_down_after_the_server_heard(here: LoopHere, tmp_path: Path) -> None:
    """The last status before a shutdown says that all is prepared, and it happens once."""
    async with task_server(tmp_path) as server:
        status = await server.do(Tasks((drive_on("/dev/durability-none"),)).make("shutdown"))
        assert status.state == "done"
        await until(lambda: here.offs > 0)
        asked = server.asked
        await server.until(lambda _: server.asked > asked + 1)
    assert here.offs == 1


async def test_a_machine_without_a_drive_to_test_is_not_shut_down(here: LoopHere, tmp_path: Path) -> None:
    """A machine without drives in the campaign ignores a shutdown task, because the campaign would not switch
    it on again."""
    async with task_server(tmp_path) as server:
        server.task = Tasks(()).make("shutdown")
        await server.until(lambda status: status.task == server.task.number)
        asked = server.asked
        await server.until(lambda _: server.asked > asked + 1)
    assert here.offs == 0
