"""Messages and joined sessions for the core's tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from durability.formats.packing import Value
from durability.protocol import messages
from durability.protocol.messages import Message
from durability.protocol.state_machine import ClientProtocol, ServerProtocol

STATISTICS: dict[str, Value] = {
    "elapsed_s": 1.5,
    "operations": [9, 9],
    "latency_ns": {"buckets": [288, 290], "counts": [17, 1], "max": [9000]},
    "drives": [{"name": "sda", "flushes": 18}, {"name": "sdb", "flushes": None}],
}
SAMPLES: tuple[Message, ...] = (
    messages.Hello(versions=(3,), purpose="run", client="c1", secret=bytes(32), software="durability 1"),
    messages.Welcome(
        version=3,
        server_id="server",
        name="shelf 3",
        role="client",
        servers=("192.0.2.8:7420", "[2001:db8::1]:7420"),
    ),
    messages.Failure(code="run-live", text="the run is live\nstop it first"),
    messages.Ping(sent_ns=1),
    messages.Pong(sent_ns=1),
    messages.Register(
        run=1, plan=b"plan", facts={"path": "/x"}, secret=bytes(32), label="shelf 3", force=False
    ),
    messages.Resume(run=1, secret=bytes(32)),
    messages.Accepted(run=1, frontiers=(3, 5), grants=(2, 4)),
    messages.ArmRun(facts={"drives": [{"size": 1}, {"size": None}]}),
    messages.Armed(),
    messages.Ack(frontiers=(7, 1 << 40), control=12),
    messages.Credit(grants=(7, 6)),
    messages.Notice(code="store-unavailable", text="the disk is full"),
    messages.TargetFailed(errno=5, writer=1, seq=8, text="Input/output error"),
    messages.DriveSeen(error_age_us=3_000_000, drive="dead", text="sda does not answer"),
    messages.ClientFailed(text="out of memory"),
    messages.Stop(frontiers=(9, 9), control=13, statistics=STATISTICS),
    messages.Progress(statistics=STATISTICS),
    messages.Stopped(),
    messages.Fetch(run=0, facts={}, end=True),
    messages.Examine(run=1, facts={}, answers=True, attested="pulled the plug", cut_class="power"),
    messages.CaseFile(case={"timeline": [[1, [2, 3]]]}),
    messages.Evidence(run=1, name="lost-000", data=b"\x00\xff"),
    messages.Stored(),
    messages.GiveVerdict(run=1, document={"verdict": "durable"}),
    messages.KeepResult(summary={"mode": "quick"}, body=b"x"),
    messages.ResultKept(result="0123456789ab"),
    messages.List(limit=10),
    messages.Listing(rows=({"run": "1"}, {"run": "2"})),
    messages.Export(run=1),
    messages.Show(run=1),
    messages.Shown(document={"case": {}, "verdicts": []}),
    messages.ListCampaigns(),
    messages.CampaignNames(names=("ssd", "shelf-3")),
    messages.ShowCampaign(name="ssd", after=12),
    messages.Campaign(entries=({"number": 13},), silent_s={"b": 0.5}, note="elsewhere"),
    messages.ListResults(limit=10, drive="990 PRO", identity="sha256:0123456789abcdef", host="b"),
    messages.FetchResult(result="0123456789ab"),
    messages.ListClaims(drives=("sha256:0123456789abcdef",)),
    messages.KeptResult(row={"result": "0123456789ab"}, body=b"x"),
    messages.AgentStatus(status={"task": 3, "drives": []}),
    messages.AgentTask(task={"kind": "wait", "number": 0}),
    messages.ListClients(),
    messages.Clients(rows=({"client": "c1"},)),
    messages.Invite(role="viewer", name="office"),
    messages.Invited(line="durability join 192.0.2.7:7420 CODE", expires="2026-11-22T15:00:00Z"),
    messages.Rename(client="c1", name="shelf 4"),
    messages.Revoke(client="shelf 4"),
    messages.StartCampaign(settings={"name": "ssd"}, check_only=True),
    messages.SteerCampaign(name="ssd", action="pause"),
    messages.InviteMachines(name="shelf", machines=16, valid_s=86_400),
    messages.Revoked(campaigns=("ssd",)),
    messages.Join(name="b7"),
    messages.JoinMachine(name="live-3", machine="0123456789abcdef"),
    messages.Joined(client="c1", secret=bytes(32), name="b7", role="client"),
)


@pytest.fixture(scope="session")
def samples() -> dict[type[Message], Message]:
    """One valid message of every kind."""
    return {type(message): message for message in SAMPLES}


@pytest.fixture(scope="session")
def make_ends() -> Callable[..., tuple[ClientProtocol, ServerProtocol]]:
    """A function that makes both ends of a connection, not joined yet."""

    def make(purpose: str = "run") -> tuple[ClientProtocol, ServerProtocol]:
        client = ClientProtocol(purpose, client="c1", secret=b"s" * 32, software="durability test")
        return client, ServerProtocol()

    return make


def welcome(server: ServerProtocol) -> None:
    """The server has found out who the client is."""
    server.welcome(server_id="server", name="shelf 3", role="client")


@pytest.fixture(scope="session")
def make_open(
    make_ends: Callable[..., tuple[ClientProtocol, ServerProtocol]],
) -> Callable[..., tuple[ClientProtocol, ServerProtocol]]:
    """A function that makes both ends of a connection whose handshake is over."""

    def make(purpose: str = "run") -> tuple[ClientProtocol, ServerProtocol]:
        client, server = make_ends(purpose)
        client.start()
        server.receive(client.outgoing())
        welcome(server)
        client.receive(server.outgoing())
        assert client.authenticated and server.authenticated
        return client, server

    return make
