"""Connections and the link of a run, against real servers and against one that is made to misbehave."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from durability import limits
from durability.errors import AuthenticationError, PeerError, RefusedError, SetupError, UsageError
from durability.formats.documents import to_value
from durability.formats.packing import Value as AnyValue
from durability.formats.plan import Plan
from durability.protocol.messages import CaseFile, ClientFailed, Export, Fetch, List, Listing, Notice, Stop
from durability_client.link.endpoint import Endpoint, endpoint
from durability_client.link.run_link import RunLink
from durability_client.link.server_connection import connect
from durability_client.target.kernel_storage import KernelStorage
from durability_lab.support.tcp_proxy import TcpProxy
from durability_server.connections.client_connection import ClientConnection
from durability_server.server import Server
from tests.waiting import DEADLINE_S, until

Value = Mapping[str, AnyValue]
MakePlan = Callable[..., Plan]
TOKEN = b"a token of both machines"


class Served:
    """A real server that can be stopped and started again on the same port and store."""

    def __init__(self, store: Path, tls: ssl.SSLContext | None = None) -> None:
        self._store = store
        self._tls = tls
        self._port = 0
        self.server: Server | None = None

    async def start(self, token: bytes = TOKEN) -> Endpoint:
        self.server = Server(store_url=f"sqlite:///{self._store}", token=token, tls=self._tls)
        host, self._port = await self.server.start("127.0.0.1", self._port)
        return Endpoint(host=host, port=self._port, token=token)

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
async def running(where: Endpoint, plan: Plan, facts: Value) -> AsyncIterator[Heard]:
    """The link of an armed run."""
    heard = Heard()
    try:
        await heard.link.connect(where)
        await heard.link.register(run=plan.run, plan=plan.encode(), facts=facts, label="", force=False)
        await heard.link.arm(facts)
        yield heard
    finally:
        await heard.link.close()


@pytest.fixture
def facts(tmp_path: Path) -> Value:
    """The real facts of a place in the file system."""
    return to_value(KernelStorage(tmp_path / "target").facts())


async def test_what_a_run_acknowledges_is_granted(served: Served, facts: Value, make_plan: MakePlan) -> None:
    """Frontiers that were sent come back as grants once they are durable, and the stop is confirmed."""
    async with running(await served.start(), make_plan(), facts) as heard:
        assert heard.link.acknowledge((10, 20), 3)
        await heard.until_granted(10, 20)
        await heard.link.finish(Stop(frontiers=(11, 20), control=4, statistics={}))
        assert heard.link.final is None and heard.link.trouble == ""


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


async def test_an_end_is_delivered_over_a_new_connection(
    served: Served, facts: Value, make_plan: MakePlan
) -> None:
    """A run that ends while the connection is down is ended on the server once there is one again."""
    async with running(await served.start(), make_plan(), facts) as heard:
        served.cut_connections()
        await heard.link.finish(ClientFailed(text="the client's own fault"))
        assert heard.link.final is None


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


@pytest.mark.parametrize("verified", [False, True], ids=["stopped", "stopped-and-verified"])
async def test_a_stop_whose_answer_was_lost_has_stopped_the_run(
    served: Served, facts: Value, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch, verified: bool
) -> None:
    """Where the server has the stop and only its answer is lost, `finish` succeeds after the reconnect."""
    where, plan = await served.start(), make_plan()
    async with (
        TcpProxy(where.host, where.port) as proxy,
        running(endpoint(proxy.address, TOKEN, ca=None, fingerprint=None), plan, facts) as heard,
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


async def test_a_server_with_another_token_is_waited_for_with_words(
    served: Served, facts: Value, make_plan: MakePlan
) -> None:
    """A server that was restarted with another token does not end the run: the link says what is wrong and
    goes on once the token is back."""
    async with running(await served.start(), make_plan(), facts) as heard:
        await served.stop()
        await served.start(b"another token")
        await until(lambda: "token" in heard.link.trouble)
        assert "start it with the earlier token" in heard.link.trouble
        assert heard.link.final is None
        await served.stop()
        await served.start()
        await until(partial(heard.link.acknowledge, (7, 7), 0))
        await heard.until_granted(7, 7)
        assert heard.link.trouble == ""


async def test_a_wrong_token_is_said_to_be_one(served: Served) -> None:
    """A client with another token is told so by name."""
    where = await served.start()
    with pytest.raises(AuthenticationError, match="token"):
        await connect(Endpoint(host=where.host, port=where.port, token=b"another"), "query")


async def test_nobody_listening_is_said_with_the_address() -> None:
    """A refused connection names the address and what to look at."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(PeerError, match=f"127.0.0.1:{port}.*durability serve"):
        await connect(Endpoint(host="127.0.0.1", port=port, token=b""), "run")


async def test_a_peer_that_never_speaks_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that accepts and says nothing does not hold the client for ever."""
    monkeypatch.setattr(limits, "HANDSHAKE_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(PeerError, match="does not answer"):
        await connect(Endpoint(host="127.0.0.1", port=mute.getsockname()[1], token=b""), "run")


async def test_a_peer_of_another_protocol_is_told_from_a_server() -> None:
    """What answers with another protocol is an error of the peer, not of this tool."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    with pytest.raises(PeerError, match="durability client or server"):
        await connect(Endpoint(host="127.0.0.1", port=other.sockets[0].getsockname()[1], token=b""), "run")
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


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key in one file."""
    directory = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=lab"
    )
    subprocess.run(
        [
            *command.split(),
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
        ],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    pem = directory / "both.pem"
    pem.write_text((directory / "key.pem").read_text() + (directory / "cert.pem").read_text())
    return pem


@pytest.mark.parametrize("how", ["ca", "fingerprint"])
async def test_tls_by_authority_and_by_fingerprint(tmp_path: Path, certificate: Path, how: str) -> None:
    """Both ways to trust the server's certificate lead to an open session."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    served = Served(tmp_path / "store.sqlite", context)
    where = await served.start()
    der = ssl.PEM_cert_to_DER_cert((certificate.parent / "cert.pem").read_text())
    options = {
        "ca": certificate.parent / "cert.pem" if how == "ca" else None,
        "fingerprint": hashlib.sha256(der).hexdigest() if how == "fingerprint" else None,
    }
    connection = await connect(endpoint(str(where), TOKEN, **options), "query")  # type: ignore[arg-type]
    await connection.request(List(limit=1), Listing)
    connection.close()
    wrong = endpoint(str(where), TOKEN, ca=None, fingerprint="00" * 32)
    with pytest.raises(PeerError, match="fingerprint"):
        await connect(wrong, "query")
    with pytest.raises(PeerError):
        await connect(where, "query")
    await served.stop()


@pytest.mark.parametrize(
    ("ca", "fingerprint", "error"),
    [
        (Path("x"), "00" * 32, UsageError),
        (None, "00" * 31, UsageError),
        (None, "not hex", UsageError),
        (Path("/nonexistent/ca.pem"), None, SetupError),
    ],
)
def test_tls_options_that_cannot_be(ca: Path | None, fingerprint: str | None, error: type[Exception]) -> None:
    """Options that contradict each other, or that name nothing, are refused in words."""
    with pytest.raises(error):
        endpoint("127.0.0.1:1", TOKEN, ca=ca, fingerprint=fingerprint)
