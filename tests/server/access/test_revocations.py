"""A revocation that is stored ends the connections of whom it is about, whatever becomes of who asked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import ParamSpec, TypeVar

import pytest

from durability.errors import StoreError
from durability.formats.case import SessionEnd
from durability.protocol import messages
from durability.protocol.auth import client_hash, invitation_hash
from durability_server import log_lines
from durability_server.access.caller import OPERATOR, Caller
from durability_server.access.client_requests import ClientRequests
from durability_server.connections.connection_manager import AUTHENTICATED_MAX, ConnectionManager
from durability_server.log_lines import LineLimit
from durability_server.server import Server
from durability_server.store.client_store import JOINS_MAX, Client
from durability_server.store.machine_store import MachineCode
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread
from tests.waiting import DEADLINE_S, until

P = ParamSpec("P")
T = TypeVar("T")

WALL = "1970-01-01T00:00:00Z"
MACHINES = ["c1", "c2"]


class _Thread(StoreThread):
    """Says when it is asked for a change."""

    def __init__(self) -> None:
        super().__init__()
        self.called = asyncio.Event()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.called.set()
        return await super().call(function, *args, **kwargs)


class _Access:
    """A store with a code by which two machines have joined, and what answers requests about it."""

    def __init__(self, url: str) -> None:
        self.store, self.thread = Store(url), _Thread()
        self.revoked: list[str] = []
        self.told: list[str] = []
        self.requests = ClientRequests(
            self.store,
            self.thread,
            fingerprint=b"f" * 32,
            on_revoked=self.revoked.extend,
            announce=lambda who, what: self.told.append(f"{who}: {what}"),
        )

    def open(self) -> None:
        self.store.open()
        hash_ = invitation_hash(b"s" * 16)
        code = MachineCode(hash=hash_, name="rack", machines=2, expires=1 << 40)
        self.store.machines.invite(code, wall=WALL, now=1)
        for name in MACHINES:
            client = Client(id=name, name=name, role="client", hash=client_hash(name.encode()))
            self.store.machines.join(hash_, name, client, wall=WALL, now=1)

    async def code(self) -> str:
        """The id of the code."""
        listed = await self.requests.answer(OPERATOR, messages.ListClients())
        assert isinstance(listed, messages.Clients)
        (code,) = (str(row["client"]) for row in listed.rows if "machines" in row)
        return code


@pytest.fixture
async def access(sqlite_url: str) -> AsyncIterator[_Access]:
    """Such a store."""
    access = _Access(sqlite_url)
    await access.thread.call(access.open)
    yield access
    await access.thread.close(access.store.close)


async def test_an_operator_who_leaves_revokes_all_the_same(access: _Access) -> None:
    """The connection of the operator ends while the store is busy with something else."""
    revoke = messages.Revoke(client=await access.code())
    busy = threading.Event()
    held = asyncio.create_task(access.thread.call(busy.wait))
    await until(access.thread.called.is_set)
    access.thread.called.clear()
    asked = asyncio.create_task(access.requests.answer(OPERATOR, revoke))
    await access.thread.called.wait()
    asked.cancel()
    busy.set()
    await held
    await until(lambda: sorted(access.revoked) == MACHINES)


async def test_all_machines_of_a_code_are_cut_off_before_their_campaigns_are_looked_for(
    access: _Access,
) -> None:
    """The store may fail meanwhile."""

    async def campaign_with(machine: str) -> str:
        raise StoreError("it is away")

    access.requests.campaign_with = campaign_with
    with pytest.raises(StoreError):
        await access.requests.answer(OPERATOR, messages.Revoke(client=await access.code()))
    assert sorted(access.revoked) == MACHINES


async def test_whoever_is_revoked_is_cut_off_though_the_store_cannot_be_read(
    access: _Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked before: a question may fail, or wait for long ones of others. The names, by which
    campaigns know machines, come with what is revoked."""

    async def away(*_: object, **__: object) -> None:
        raise StoreError("it is away")

    async def campaign_with(machine: str) -> str:
        return "night" if machine == "rack" else ""

    access.requests.campaign_with = campaign_with
    code = await access.code()
    monkeypatch.setattr(access.thread, "ask", away)
    monkeypatch.setattr(access.thread, "look_up", away)
    said = await access.requests.answer(OPERATOR, messages.Revoke(client="c1"))
    assert (said, access.revoked) == (messages.Revoked(campaigns=("night",)), ["c1"])
    assert [line for line in access.told if "its machine rack was revoked" in line] == access.told
    await access.requests.answer(OPERATOR, messages.Revoke(client=code))
    assert access.revoked == MACHINES


async def test_what_another_server_revoked_waits_for_no_long_question(sqlite_url: str) -> None:
    """The connections of whom it is about would go on meanwhile."""
    server = Server(store_url=sqlite_url)
    await server.start("127.0.0.1", 0, directory=None)
    busy = threading.Event()
    asked = asyncio.create_task(server._thread.ask(busy.wait))
    await asyncio.sleep(0)  # it is asked first
    try:
        async with asyncio.timeout(DEADLINE_S):
            await server._end_revoked()
        assert not asked.done()
    finally:
        busy.set()
        await asked
        await server.stop()


async def test_a_machine_that_joins_again_and_again_hides_no_event(
    access: _Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limited number of joins by one code is announced and the rest are counted. Joins by other codes are
    announced as usual."""
    access.requests._told_again = LineLimit(2)
    for number in range(2):
        hash_ = invitation_hash(bytes([number]) * 16)
        code = MachineCode(hash=hash_, name=f"shelf-{number}", machines=1, expires=1 << 40)
        await access.thread.call(access.store.machines.invite, code, wall=WALL, now=1)
    again = "joined again after a boot"

    async def join(number: int) -> None:
        hash_ = invitation_hash(bytes([number]) * 16)
        caller = Caller(client="", name="", role="client", invitation=hash_, of_machines=True)
        await access.requests.answer(caller, messages.JoinMachine(name="m", machine="m"))

    for _ in range(5):
        await join(0)
    for _ in range(2):
        await join(1)
    first, second = (f"shelf-{number}: {again}" for number in range(2))
    assert [line for line in access.told if again in line] == [first, first, second]
    monkeypatch.setattr(log_lines, "_INTERVAL_S", -1.0)
    await join(0)
    assert access.told[-1] == f"{first} (2 events before this one were left out)"


class _Peer:
    """A connection of the client `client`, which keeps what it is refused with."""

    def __init__(self, client: str) -> None:
        self.name = client
        self.caller: Caller | None = Caller(client=client, name=client, role="client")
        self.failures: list[str] = []

    def tick(self, now_ns: int, interval_ns: int) -> None:
        """Nothing is due."""

    def stood_still(self, until_ns: int, pause_ns: int) -> None:
        """It judges no silence."""

    def fail(self, code: str, text: str) -> None:
        """The manager ends the connection."""
        self.failures.append(code)

    def hang_up(self, end: SessionEnd, text: str) -> None:
        """It never does here."""

    def abort(self) -> None:
        """It never does here."""


def test_a_revocation_costs_one_walk_over_the_connections() -> None:
    """Another server names all that were ever revoked each time that one more is: with as many of both as
    there may be, the event loop stood still for twenty seconds. The time is the processor's."""
    manager = ConnectionManager()
    peers = [_Peer(f"{number:x}") for number in range(AUTHENTICATED_MAX)]
    for peer in peers:
        manager.authenticated(peer)
    ever = [f"gone-{number:x}" for number in range(JOINS_MAX)]
    began_s = time.thread_time()
    manager.revoke([*ever, peers[1].name])
    manager.revoke([*ever, peers[1].name, peers[2].name])
    assert time.thread_time() - began_s < 2
    assert [peer.failures for peer in peers[:4]] == [[], ["authentication"], ["authentication"], []]
    manager.authenticated(late := _Peer(peers[1].name))  # it was being looked up meanwhile
    assert late.failures == ["authentication"]
