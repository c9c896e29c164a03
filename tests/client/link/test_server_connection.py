"""Connections and the link of a run, against real servers and against one that is made to misbehave."""

from __future__ import annotations

import asyncio
import shutil
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from durability import limits
from durability.errors import AuthenticationError, PeerError, RefusedError
from durability.formats.documents import to_value
from durability.formats.packing import Value as AnyValue
from durability.formats.plan import Plan
from durability.protocol.messages import (
    CaseFile,
    ClientFailed,
    Export,
    Fetch,
    List,
    Listing,
    Notice,
    Purpose,
    Stop,
)
from durability.units import parse_address
from durability_client.link import run_link, server_connection
from durability_client.link.endpoint import Endpoint, endpoint
from durability_client.link.run_link import RunLink
from durability_client.link.server_connection import Connection, connect
from durability_client.target.kernel_storage import KernelStorage
from durability_lab.support.local_server import join_server
from durability_lab.support.tcp_proxy import TcpProxy
from durability_server.connections.client_connection import ClientConnection
from durability_server.server import Server
from durability_server.store import evidence_rows
from durability_server.store import store as store_module
from tests.joined import NOWHERE, joined
from tests.waiting import DEADLINE_S, until

Value = Mapping[str, AnyValue]
MakePlan = Callable[..., Plan]


class Served:
    """A real server that can be stopped and started again on the same port and store."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.port = 0
        self.server: Server | None = None

    async def start(self, store: str = "store.sqlite") -> Endpoint:
        self.server = Server(store_url=f"sqlite:///{self._store.with_name(store)}")
        host, self.port = await self.server.start("127.0.0.1", self.port, directory=None)
        return await joined(self.server, host, self.port, credential=self._store.with_name("credential.json"))

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop()
            self.server = None

    def cut_connections(self) -> None:
        """Reset every connection, as a router does that lost its table."""
        assert self.server is not None
        for session in self.server.sessions:
            assert isinstance(session.channel, ClientConnection)
            session.channel.abort()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    served = Served(tmp_path / "store.sqlite")
    yield served
    await served.stop()


class Heard:
    """What a link was told, and a way to wait for it."""

    def __init__(self) -> None:
        self.grants: tuple[int, ...] = ()
        self._news = asyncio.Event()
        self.link = RunLink(on_grants=self._granted, on_notice=self._noticed)
        self.notices: list[Notice] = []

    def _granted(self, grants: tuple[int, ...]) -> None:
        self.grants = grants
        self._news.set()

    def _noticed(self, notice: Notice) -> None:
        self.notices.append(notice)

    async def until_granted(self, *grants: int) -> None:
        while self.grants != grants:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), DEADLINE_S)


@asynccontextmanager
async def registered(where: Endpoint, plan: Plan, facts: Value) -> AsyncIterator[Heard]:
    """The link of a run that is to be armed."""
    heard = Heard()
    try:
        await heard.link.connect(where)
        await heard.link.register(run=plan.run, plan=plan.encode(), facts=facts, label="", force=False)
        yield heard
    finally:
        await heard.link.close()


@asynccontextmanager
async def running(where: Endpoint, plan: Plan, facts: Value) -> AsyncIterator[Heard]:
    """The link of an armed run."""
    async with registered(where, plan, facts) as heard:
        await heard.link.arm(facts)
        yield heard


def fill(disk: pytest.MonkeyPatch) -> None:
    """The server's disk has no room for anything new."""
    disk.setattr(store_module, "KEPT_BYTES_MAX", 1 << 60)
    disk.setattr(store_module, "KEPT_SHARE", 1)


@pytest.fixture
def facts(tmp_path: Path) -> Value:
    """The real facts of a place in the file system."""
    return to_value(KernelStorage(tmp_path / "target").facts())


@pytest.mark.slow
async def test_what_a_run_acknowledges_is_granted(served: Served, facts: Value, make_plan: MakePlan) -> None:
    """Frontiers that were sent come back as grants once they are durable, and the stop is confirmed."""
    async with running(await served.start(), make_plan(), facts) as heard:
        assert heard.link.acknowledge((10, 20), 3)
        await heard.until_granted(10, 20)
        await heard.link.finish(Stop(frontiers=(11, 20), control=4, statistics={}))
        assert heard.link.final is None and heard.link.trouble == ""


@pytest.mark.slow
async def test_an_ack_that_a_dead_connection_swallowed_is_sent_again(
    served: Served, facts: Value, make_plan: MakePlan
) -> None:
    """After a reset the link resumes and repeats its newest ack, so that paused writers get credit."""
    async with running(await served.start(), make_plan(), facts) as heard:
        for step in range(1, 6):
            served.cut_connections()
            await until(partial(heard.link.acknowledge, (step, step), 0))
            await heard.until_granted(step, step)
        assert heard.link.final is None


@pytest.mark.slow
async def test_a_run_goes_on_with_a_restarted_server(
    served: Served, facts: Value, make_plan: MakePlan
) -> None:
    """The link waits for a server that went away and resumes on the new one, which has what was granted."""
    async with running(await served.start(), make_plan(), facts) as heard:
        heard.link.acknowledge((5, 5), 0)
        await heard.until_granted(5, 5)
        await served.stop()
        heard.grants = ()
        await served.start()
        await heard.until_granted(5, 5)
        assert heard.link.acknowledge((9, 9), 0)
        await heard.until_granted(9, 9)


@pytest.mark.slow
async def test_a_run_that_cannot_be_stored_is_armed_once_it_can(
    served: Served, facts: Value, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try is a connection that the server accepts; the pauses grow all the same, and it is said why."""
    async with registered(await served.start(), make_plan(), facts) as heard:
        with monkeypatch.context() as disk:
            fill(disk)
            arming = asyncio.create_task(heard.link.arm(facts))
            await until(lambda: heard.link._attempt > 3)
            assert "make room there" in heard.link.trouble
        await asyncio.wait_for(arming, DEADLINE_S)
        assert (heard.link._attempt, heard.link.trouble) == (0, "")


@pytest.mark.slow
async def test_a_run_that_is_not_armed_can_be_ended(
    served: Served, facts: Value, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses to arm it each time; the end of the run is heard all the same."""
    async with registered(await served.start(), make_plan(), facts) as heard:
        fill(monkeypatch)
        arming = asyncio.create_task(heard.link.arm(facts))
        await until(lambda: "make room there" in heard.link.trouble)
        arming.cancel()
        ending = heard.link.finish(Stop(frontiers=(0, 0), control=0, statistics={}))
        await asyncio.wait_for(ending, DEADLINE_S)
        assert heard.link.final is None


@pytest.mark.slow
async def test_a_run_beyond_the_quota_is_given_up(
    served: Served, facts: Value, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other runs of the client filled it meanwhile, and no try changes that."""
    async with registered(await served.start(), make_plan(), facts) as heard:
        monkeypatch.setattr(evidence_rows, "BYTES_OF_CLIENT_MAX", 0)
        with pytest.raises(RefusedError) as refused:
            await asyncio.wait_for(heard.link.arm(facts), DEADLINE_S)
        assert refused.value.code == "quota"


@pytest.mark.slow
async def test_an_end_is_delivered_over_a_new_connection(
    served: Served, facts: Value, make_plan: MakePlan
) -> None:
    """A run that ends while the connection is down is ended on the server once there is one again."""
    async with running(await served.start(), make_plan(), facts) as heard:
        served.cut_connections()
        await heard.link.finish(ClientFailed(text="the client's own fault"))
        assert heard.link.final is None


@pytest.mark.slow
async def test_a_run_that_verify_ended_does_not_come_back(
    served: Served, facts: Value, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the server ended the run the link stops trying, and says why."""
    where, plan = await served.start(), make_plan()
    async with running(where, plan, facts) as heard:
        monkeypatch.setattr(limits, "SILENCE_NS", 0)  # so that verify may end a run that just spoke
        verify = await connect(where, "verify")
        await verify.request(Fetch(run=plan.run, facts=facts, end=True), CaseFile)
        await asyncio.wait_for(heard.link.ended.wait(), DEADLINE_S)
        assert isinstance(heard.link.final, RefusedError)
        assert not heard.link.acknowledge((1, 1), 0)
        with pytest.raises(RefusedError):
            await heard.link.finish(ClientFailed(text="too late"))
        verify.close()


@pytest.mark.slow
@pytest.mark.parametrize("verified", [False, True], ids=["stopped", "stopped-and-verified"])
async def test_a_stop_whose_answer_was_lost_has_stopped_the_run(
    served: Served, facts: Value, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch, verified: bool
) -> None:
    """Where the server has the stop and only its answer is lost, `finish` succeeds after the reconnect."""
    where, plan = await served.start(), make_plan()
    async with (
        TcpProxy("127.0.0.1", served.port) as proxy,
        running(replace(where, addresses=(parse_address(proxy.address),)), plan, facts) as heard,
    ):
        heard.link.acknowledge((5, 5), 0)
        await heard.until_granted(5, 5)
        proxy.to_client.lost = True
        finish = asyncio.create_task(heard.link.finish(Stop(frontiers=(6, 5), control=0, statistics={})))
        query = await connect(where, "query")
        async with asyncio.timeout(DEADLINE_S):
            while (await query.request(Export(run=plan.run), CaseFile)).case["state"] != "stopped":
                pass
        query.close()
        if verified:
            monkeypatch.setattr(limits, "SILENCE_NS", 0)  # so that verify may end a run that just spoke
            verify = await connect(where, "verify")
            await verify.request(Fetch(run=plan.run, facts=facts, end=True), CaseFile)
            verify.close()
        assert not finish.done()
        proxy.to_client.lost = False
        proxy.cut()
        await asyncio.wait_for(finish, DEADLINE_S)
        assert heard.link.final is None


@pytest.mark.slow
async def test_a_server_that_forgot_its_clients_is_waited_for_with_words(
    served: Served, facts: Value, make_plan: MakePlan
) -> None:
    """A server that was restarted on another store does not end the run: the link says what is wrong and goes
    on once the store is back."""
    async with running(await served.start(), make_plan(), facts) as heard:
        await served.stop()
        await served.start("another.sqlite")
        await until(lambda: "fingerprint" in heard.link.trouble)
        assert heard.link.final is None
        await served.stop()
        await served.start()
        await until(partial(heard.link.acknowledge, (7, 7), 0))
        await heard.until_granted(7, 7)
        assert heard.link.trouble == ""


@pytest.mark.slow
async def test_a_client_that_is_not_known_is_waited_for_with_words(
    served: Served, facts: Value, make_plan: MakePlan, tmp_path: Path
) -> None:
    """A store of before the join knows the certificate, and not the client."""
    where = await served.start()
    assert served.server is not None
    early = await served.server.invite()
    await served.stop()
    shutil.copy(tmp_path / "store.sqlite", tmp_path / "earlier.sqlite")
    await served.start()
    late = tmp_path / "late.json"
    await join_server(early, str(where), late)
    async with running(endpoint(str(where), late), make_plan(), facts) as heard:
        await served.stop()
        await served.start("earlier.sqlite")
        await until(lambda: "no longer knows this client" in heard.link.trouble)
        assert "start it on its earlier store" in heard.link.trouble
        assert "clients invite" not in heard.link.trouble  # another client could not continue the run
        assert heard.link.final is None


async def test_an_unknown_client_is_said_to_be_one(served: Served) -> None:
    """A client with another secret is told what to type; `join` refuses that without --force, as it has a
    credential."""
    where = await served.start()
    with pytest.raises(AuthenticationError, match=r"clients invite.*Add --force to that line"):
        await connect(replace(where, secret=bytes(32)), "query")


async def test_a_client_of_another_role_is_told_of_force(served: Served, tmp_path: Path) -> None:
    """It has a credential as well, which `join` does not replace otherwise."""
    where = await served.start()
    assert served.server is not None
    invited = await served.server._client_requests.invite("viewer", "")
    viewer = tmp_path / "viewer.json"
    await join_server(invited, str(where), viewer)
    with pytest.raises(RefusedError, match=r"joined as viewer.*clients invite`.*Add --force to") as refused:
        await connect(endpoint(str(where), viewer), "run")
    assert refused.value.code == "forbidden"


async def test_the_first_address_that_answers_is_taken(served: Served) -> None:
    """A server with several addresses is found at any of them."""
    where = await served.start()
    query = await connect(replace(where, addresses=(*NOWHERE.addresses, *where.addresses)), "query")
    assert (await query.request(List(limit=5), Listing)).rows == ()
    query.close()


@pytest.mark.parametrize("refused", [True, False])
async def test_runs_of_one_server_try_the_others_in_any_order(refused: bool) -> None:
    """The server that the run had comes last if it has refused the run, else first."""
    here, *others = addresses = tuple((host, 7420) for host in "abc")
    link = Heard().link
    tried = set()
    for _ in range(100):
        link._endpoint = replace(NOWHERE, addresses=addresses)
        link._reorder(refused=refused)
        tried.add(link._endpoint.addresses)
    orders = [(*others,), (*reversed(others),)]
    assert tried == {(*order, here) if refused else (here, *order) for order in orders}


async def test_nobody_listening_is_said_with_the_address() -> None:
    """A refused connection names the address and what to look at."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(PeerError, match=f"127.0.0.1:{port}.*durability serve"):
        await connect(Endpoint(addresses=(("127.0.0.1", port),), fingerprint=bytes(32)), "run")


async def test_a_peer_that_never_speaks_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that accepts and says nothing does not hold the client for ever."""
    monkeypatch.setattr(limits, "HANDSHAKE_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(PeerError, match="does not answer"):
        await connect(
            Endpoint(addresses=(("127.0.0.1", mute.getsockname()[1]),), fingerprint=bytes(32)), "run"
        )


@pytest.mark.parametrize(
    ("how", "why"), [("reset", "Connection reset by peer"), ("closed", "the other end closed it")]
)
async def test_a_lost_connection_is_said_with_what_to_look_at(how: str, why: str) -> None:
    """In the system's words, without its number."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if how == "reset":
            taken = writer.get_extra_info("socket")
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            writer.write_eof()  # a FIN, even if something that was sent is still unread
            await reader.read()
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    where = other.sockets[0].getsockname()
    with pytest.raises(PeerError, match=rf"was lost: {why}; check that `durability serve` still runs there"):
        await connect(Endpoint(addresses=(where,), fingerprint=bytes(32)), "query")
    other.close()


async def test_a_silent_server_is_said_with_what_to_look_at(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is one that is given up because it said nothing for too long."""
    where = await served.start()
    impatient = SimpleNamespace(**(vars(limits) | {"DEAD_PEER_NS": -1}))  # the client, and not the server
    monkeypatch.setattr(server_connection, "limits", impatient)
    query = await connect(where, "query")
    with pytest.raises(PeerError, match=r"silent for \d+ s; check that `durability serve` still runs there"):
        await query.receive()


@pytest.mark.slow
async def test_a_server_that_does_not_resume_a_run_is_said_with_what_to_look_at(
    served: Served, facts: Value, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run keeps trying, and goes on once the server answers."""
    async with running(await served.start(), make_plan(), facts) as heard:
        with monkeypatch.context() as patience:
            patience.setattr(run_link, "CONNECT_TIMEOUT_S", -1.0)
            served.cut_connections()
            await until(lambda: "tried to resume; check that its database" in heard.link.trouble)
        await until(partial(heard.link.acknowledge, (5, 5), 0))
        await heard.until_granted(5, 5)


async def test_a_peer_of_another_protocol_is_told_from_a_server() -> None:
    """A peer that speaks another protocol is a PeerError, not a defect of this tool."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    with pytest.raises(PeerError, match="TLS"):
        await connect(
            Endpoint(addresses=(("127.0.0.1", other.sockets[0].getsockname()[1]),), fingerprint=bytes(32)),
            "run",
        )
    other.close()


async def test_requests_of_the_other_roles(served: Served, facts: Value) -> None:
    """A query is answered, and a refusal comes out as what the server said."""
    where = await served.start()
    query = await connect(where, "query")
    assert (await query.request(List(limit=5), Listing)).rows == ()
    query.close()
    verify = await connect(where, "verify")
    with pytest.raises(RefusedError) as refusal:
        await verify.request(Fetch(run=12345, facts=facts, end=False), Listing)
    assert refusal.value.code == "run-unknown"


@pytest.mark.slow
async def test_a_defect_of_the_link_ends_the_run(
    served: Served, facts: Value, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the writers would wait for credit for ever, and nothing would say why."""
    async with running(await served.start(), make_plan(), facts) as heard:

        async def broken(endpoint: Endpoint, purpose: Purpose, *, remember: bool) -> Connection:
            raise ValueError("a defect")

        monkeypatch.setattr(run_link, "connect", broken)
        await served.stop()
        async with asyncio.timeout(DEADLINE_S):
            await heard.link.ended.wait()
            with pytest.raises(PeerError, match="a defect"):
                await heard.link.finish(Stop(frontiers=(0, 0), control=0, statistics={}))
