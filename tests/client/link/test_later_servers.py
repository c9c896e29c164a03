"""Servers that are started while a connection lasts: a run goes on there, and an agent too. Neither waits for
the disk with the credential."""

from __future__ import annotations

import asyncio
import fcntl
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from durability.formats.documents import to_value
from durability.formats.packing import Value
from durability.formats.plan import Plan
from durability.protocol.local_address import socket_name
from durability.protocol.messages import Invite, Invited
from durability.units import format_address, parse_address
from durability_client.agent import agent_loop as loop_module
from durability_client.agent.agent_loop import agent_loop
from durability_client.agent.agent_paths import AgentPaths
from durability_client.agent.drive_work import Setting
from durability_client.agent.task_work import TaskWork
from durability_client.link import server_connection
from durability_client.link.credential import load_credential, save_credential
from durability_client.link.endpoint import Endpoint, endpoint
from durability_client.link.run_link import RunLink
from durability_client.link.server_connection import Connection, connect, later_servers
from durability_client.target.discovery import host_now
from durability_client.target.kernel_storage import KernelStorage
from durability_lab.support.local_server import join_server
from durability_lab.support.postgresql import PostgreSQL
from durability_lab.support.server_fleet import AckingClient, Fleet
from durability_lab.support.tcp_proxy import TcpProxy
from durability_server.connections import connection_manager
from durability_server.server import Server
from tests.joined import joined
from tests.server import conftest
from tests.waiting import DEADLINE_S, until

pytestmark = pytest.mark.slow

postgresql = conftest.postgresql


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "LOOK_S", 0.2)


class Company:
    """A server of which the client knows the address `first`, and that is found at `second` as well: what a
    client sees of two on one store."""

    def __init__(self, server: Server, first: TcpProxy, second: TcpProxy, credential: Path) -> None:
        self.server = server
        self.first = first
        self.second = second
        self.credential = credential

    @property
    def both(self) -> tuple[str, ...]:
        """Their addresses."""
        return self.first.address, self.second.address

    @property
    def where(self) -> Endpoint:
        """The first, as whoever has joined it knows it."""
        return endpoint(None, self.credential)

    def begin_second(self) -> None:
        """From now on the server names the second to whoever connects."""
        self.server._registry.leases.others = (self.second.address,)

    async def end_first(self) -> None:
        """Nobody gets through to the server there any more."""
        await self.first.__aexit__()

    @property
    def remembered(self) -> tuple[str, ...]:
        """The servers of the credential."""
        known = load_credential(self.credential)
        assert known is not None
        return known.servers


@pytest.fixture
async def company(tmp_path: Path) -> AsyncIterator[Company]:
    """Such a server; only the first address is known."""
    server = Server(store_url=f"sqlite:///{tmp_path / 'store.sqlite'}")
    host, port = await server.start("127.0.0.1", 0, directory=tmp_path)
    credential = tmp_path / "credential.json"
    await joined(server, host, port, credential=credential)
    async with TcpProxy(host, port) as first, TcpProxy(host, port) as second:
        known = load_credential(credential)
        assert known is not None
        save_credential(replace(known, servers=(first.address,)), credential)
        yield Company(server, first, second, credential)
    await server.stop()


@asynccontextmanager
async def running(where: Endpoint, plan: Plan, facts: Mapping[str, Value]) -> AsyncIterator[Run]:
    """An armed run."""
    run = Run()
    try:
        await run.link.connect(where)
        await run.link.register(run=plan.run, plan=plan.encode(), facts=facts, label="", force=False)
        await run.link.arm(facts)
        yield run
    finally:
        await run.link.close()


class Run:
    """The link of a run; `grants`: what it was granted last."""

    def __init__(self) -> None:
        self.grants: tuple[int, ...] = ()
        self.link = RunLink(on_grants=self._granted, on_notice=lambda _: None)

    def _granted(self, grants: tuple[int, ...]) -> None:
        self.grants = grants

    async def until_granted(self, frontier: int) -> None:
        """Acknowledge that, and wait until it is granted."""
        await until(lambda: self.link.acknowledge((frontier, frontier), 0))
        await until(lambda: self.grants == (frontier, frontier))


def known_to(run: Run) -> tuple[str, ...]:
    """The servers that the run knows, that of its connection first."""
    connection = run.link._connection
    return () if connection is None else tuple(format_address(*one) for one in connection.endpoint.addresses)


@pytest.fixture
def facts(tmp_path: Path) -> Mapping[str, Value]:
    """The real facts of a place in the file system."""
    return to_value(KernelStorage(tmp_path / "target").facts())


async def test_a_run_goes_on_at_a_server_that_was_started_later(
    company: Company, facts: Mapping[str, Value], make_plan: Callable[..., Plan]
) -> None:
    """It was told of no other when it connected. What it was granted is still its own."""
    async with running(company.where, make_plan(), facts) as run:
        await run.until_granted(1)
        assert known_to(run) == (company.first.address,)
        company.begin_second()
        await until(lambda: known_to(run) == company.both)
        await company.end_first()
        await run.until_granted(2)
        assert known_to(run)[0] == company.second.address


async def test_a_run_that_may_not_look_goes_on(
    company: Company,
    facts: Mapping[str, Value],
    make_plan: Callable[..., Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All places of its client are taken: the look is refused, the run is not. Later it learns."""
    async with running(company.where, make_plan(), facts) as run:
        with monkeypatch.context() as places:
            places.setattr(connection_manager, "OF_ONE_CLIENT_MAX", 1)
            connection = run.link._connection
            company.begin_second()
            for step in range(1, 20):
                await run.until_granted(step)
            assert run.link._connection is connection
        await until(lambda: known_to(run) == company.both)


async def test_a_run_writes_no_credential_while_it_goes_on(
    company: Company, facts: Mapping[str, Value], make_plan: Callable[..., Plan]
) -> None:
    """A run never writes a newly found server to the credential; the next command does."""
    async with running(company.where, make_plan(), facts) as run:
        company.begin_second()
        await until(lambda: known_to(run) == company.both)
        company.first.cut()
        await run.until_granted(1)
        assert company.remembered == (company.first.address,)
        with closing(await connect(company.where, "query")):
            assert company.remembered == company.both


async def test_a_run_remembers_the_servers_that_were_there_before_it(
    company: Company, facts: Mapping[str, Value], make_plan: Callable[..., Plan]
) -> None:
    """It does so with its first connection, before anything is written to a target."""
    company.begin_second()
    async with running(company.where, make_plan(), facts):
        assert company.remembered == company.both


async def test_nobody_looks_on_a_local_socket(tmp_path: Path) -> None:
    """An operator on the server's machine has no other; nor has a history of the lab, in virtual time."""
    server = Server(store_url=f"sqlite:///{tmp_path / 'store.sqlite'}")
    _, port = await server.start("127.0.0.1", 0, directory=tmp_path)
    with closing(await connect(Endpoint(local=tmp_path / socket_name(port)), "query")) as connection:
        before = asyncio.all_tasks()
        with later_servers(connection):
            assert asyncio.all_tasks() == before
    await server.stop()


class Agent:
    """The agent's loop in this process, with what it has said."""

    def __init__(self, company: Company, directory: Path) -> None:
        self.said: list[str] = []
        places = AgentPaths(directory / "agent")
        setting = Setting(places=places, options=(), boot_id=host_now().boot_id)
        work = TaskWork(setting, host_now(), power_off=_never, say=self.said.append)
        self.task = asyncio.create_task(agent_loop(company.where, work, self.said.append))

    def has_connected(self, *, times: int) -> bool:
        """Whether it has said so that often."""
        return sum(line.startswith("connected") for line in self.said) == times

    async def until_connected(self, address: str) -> None:
        """It has said so."""
        await until(
            lambda: any(line.startswith(f"connected to the server at {address}") for line in self.said)
        )


async def _never() -> None:
    raise AssertionError("nobody asked for that")


@pytest.fixture
async def agent(company: Company, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Agent]:
    """One that has been told of no other server."""
    monkeypatch.setattr(loop_module, "_WAIT_S", (0.01,))
    monkeypatch.setattr(loop_module, "STATUS_S", 0.1)
    agent = Agent(company, tmp_path)
    await agent.until_connected(company.first.address)
    yield agent
    assert not agent.task.done()
    agent.task.cancel()
    with suppress(asyncio.CancelledError):
        await agent.task


async def test_an_agent_goes_on_at_a_server_that_was_started_later(company: Company, agent: Agent) -> None:
    """An agent can change to a server that was started after it. It also stores that server's address for the
    next boot."""
    company.begin_second()
    await until(lambda: company.remembered == company.both)
    await company.end_first()
    await agent.until_connected(company.second.address)


async def test_a_disk_that_hangs_keeps_no_agent_waiting(
    company: Company, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The credential lies on it. The agent goes on with its statuses, and can be ended."""
    hanging, goes_on = threading.Event(), threading.Event()

    def hang(descriptor: int, operation: int) -> None:
        hanging.set()
        goes_on.wait(DEADLINE_S)

    monkeypatch.setattr(fcntl, "flock", hang)
    monkeypatch.setattr(loop_module, "_WAIT_S", (0.01,))
    company.begin_second()
    agent = Agent(company, tmp_path)
    await until(hanging.is_set)
    company.first.cut()
    await agent.until_connected(company.first.address)
    assert not goes_on.is_set() and not agent.task.done()
    agent.task.cancel()
    with suppress(asyncio.CancelledError):
        await agent.task
    goes_on.set()


async def test_a_disk_that_hangs_keeps_one_thread(
    company: Company, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the agent connects meanwhile. It comes to know servers, and remembers them afterwards."""
    hanging, goes_on = list[threading.Thread](), threading.Event()

    def hang(descriptor: int, operation: int) -> None:
        hanging.append(threading.current_thread())
        goes_on.wait(DEADLINE_S)

    def learn(connection: Connection, address: tuple[str, int], others: Sequence[str]) -> None:
        learn_whole(connection, address, others)
        known.update(connection.endpoint.addresses)

    known, learn_whole = set[tuple[str, int]](), Connection.learn
    monkeypatch.setattr(Connection, "learn", learn)
    monkeypatch.setattr(fcntl, "flock", hang)
    monkeypatch.setattr(loop_module, "_WAIT_S", (0.01,))
    company.server._registry.leases.others = ("127.0.0.1:1",)  # one that is gone by now, but not remembered
    agent = Agent(company, tmp_path)
    await until(lambda: bool(hanging))
    for count in (1, 2, 3):
        await until(partial(agent.has_connected, times=count))
        company.first.cut()
    await until(partial(agent.has_connected, times=4))
    company.begin_second()
    await until(lambda: parse_address(company.second.address) in known)
    await company.end_first()
    await agent.until_connected(company.second.address)
    assert len(hanging) == 1 and hanging[0].is_alive()
    goes_on.set()
    await until(lambda: company.second.address in company.remembered)
    agent.task.cancel()
    with suppress(asyncio.CancelledError):
        await agent.task


@pytest.fixture
def fleet(postgresql: PostgreSQL) -> Iterator[Fleet]:
    """Two servers, not started yet; killed at the end."""
    with tempfile.TemporaryDirectory(prefix="durability-fleet-") as directory:
        fleet = Fleet(postgresql.new_database(), Path(directory), count=2)
        yield fleet
        fleet.end()


async def test_a_server_is_replaced_under_a_run(fleet: Fleet, tmp_path: Path) -> None:
    """One more is started on the store, and the first is stopped in order: as for an upgrade."""
    first, second = fleet.servers
    await asyncio.to_thread(first.start)
    with closing(await connect(first.local, "operate")) as operator:
        invited = await operator.request(Invite(role="client", name=""), Invited)
    await join_server(invited, first.address, tmp_path / "credential.json")
    client = AckingClient(1, pace_s=0.01, step=50)
    await client.begin(endpoint(None, tmp_path / "credential.json"))
    await asyncio.to_thread(second.start)
    connection = client.link._connection
    assert connection is not None
    async with asyncio.timeout(DEADLINE_S):
        while parse_address(second.address) not in connection.endpoint.addresses:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)
        await asyncio.to_thread(first.end, signal.SIGTERM)
        acked = client.acked
        while client.granted <= acked:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)
    await client.finish()
    assert client.link.final is None
