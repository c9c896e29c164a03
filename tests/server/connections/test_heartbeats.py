"""How often a client has its heartbeat, and what the server notes where that is seldom."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import pytest

from durability import limits
from durability.formats.case import SessionEnd
from durability.protocol import messages
from durability.protocol.secure_stream import PlainStream
from durability_server import clock
from durability_server.access.caller import Caller
from durability_server.connections import connection_manager
from durability_server.connections.client_connection import ClientConnection, Services
from durability_server.connections.connection_manager import ConnectionManager, heartbeat_interval_ns
from tests.waiting import DEADLINE_S, until

if TYPE_CHECKING:
    from tests.server.conftest import Lab, ServerProcess

SELDOM_NS = 3600 * 10**9  # longer than a test takes
STOOD_NS = connection_manager.PAUSE_NS + 10**8  # that counts as a pause


def test_the_interval_grows_with_the_connections() -> None:
    """Up to some hundreds it is what the evidence counts on; then the server's work stays the same."""
    assert heartbeat_interval_ns(1) == heartbeat_interval_ns(250) == limits.HEARTBEAT_NS
    assert heartbeat_interval_ns(1500) == 300_000_000


@pytest.mark.slow
@pytest.mark.usefixtures("no_silence")
async def test_a_rare_heartbeat_widens_the_cut(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut may be as long after the last frame as the next was due, which no gap has shown yet."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    monkeypatch.setattr(connection_manager, "heartbeat_interval_ns", lambda connections: SELDOM_NS)
    case = await lab.exported(running.address, plan.run, lambda case: case.gap_max_ns >= SELDOM_NS)
    assert case.heartbeat_ns == limits.HEARTBEAT_NS
    assert case.session_end == "live"


@pytest.mark.slow
@pytest.mark.usefixtures("no_silence")
async def test_a_server_that_stood_still_keeps_its_clients(
    lab: Lab, sqlite_url: str, server_process: Callable[[str], Awaitable[ServerProcess]]
) -> None:
    """A server that stood still sent no heartbeat meanwhile, so it misses no answer. Data that waited in its
    sockets gets the time at which it arrived."""
    server = await server_process(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(server.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(1, 1)
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    client.say(messages.Ack(frontiers=(2, 2), control=0))
    await asyncio.sleep(limits.DEAD_PEER_NS * 1.1 / 1e9)
    still_until_ns = clock.now_ns()
    server.process.send_signal(signal.SIGCONT)
    async with asyncio.timeout(DEADLINE_S):
        for seq in range(3, 6):
            await client.acknowledge(seq, seq)
    case = await lab.exported(server.address, plan.run, lambda case: case.frontiers == (5, 5))
    assert case.session_end == "live"
    assert [event.kind for event in case.events] == ["session", "armed"]
    assert all(receipt.at_ns > still_until_ns for receipt in case.timeline if receipt.frontiers >= (2, 2))
    assert case.gap_max_ns > limits.DEAD_PEER_NS
    assert "did not run for" in server.log


@pytest.mark.slow
@pytest.mark.parametrize("end", ["rst", "server-down"])
async def test_a_run_that_ends_after_a_pause_of_the_server_was_silent(
    lab: Lab, sqlite_url: str, server_process: Callable[[str], Awaitable[ServerProcess]], end: str
) -> None:
    """The first heartbeat after the pause is answered by an RST, as the kernel of a machine does that was cut
    and has booted meanwhile; or the server stops before anything comes."""
    server = await server_process(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(server.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(1, 1)
    client.vanish()
    await asyncio.wait([client.reading])
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(limits.SILENCE_NS * 1.2 / 1e9)
    with suppress(TimeoutError):  # what was sent before the pause
        async with asyncio.timeout(0.1):
            while await client.reader.read(1 << 16):
                pass
    server.process.send_signal(signal.SIGCONT)
    async with asyncio.timeout(DEADLINE_S):
        assert await client.reader.read(1), "the first heartbeat"
    if end == "rst":
        client.reset()
    else:
        server.end(signal.SIGTERM)
        server.start()
    case = await lab.exported(server.address, plan.run, lambda case: case.session_end != "live")
    assert case.session_end == "silence"
    assert [event.kind for event in case.events] == ["session", "armed", "silence", end]


async def test_after_a_pause_only_silence_is_not_looked_for(lab: Lab, sqlite_url: str) -> None:
    """After a pause of the server, a heartbeat does not end a session for silence, but still records the
    gap."""
    running = await lab.start(sqlite_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(), lab.facts())
    (session,) = running.server.sessions
    connection, run, now_ns = session.channel, session.run, clock.now_ns()
    assert isinstance(connection, ClientConnection)
    run.last_receipt_ns = now_ns - 2 * limits.SILENCE_NS
    connection.stood_still(now_ns, 2 * limits.SILENCE_NS)
    connection.tick(now_ns, SELDOM_NS)
    assert run.gap_max_ns >= SELDOM_NS
    assert run.session_end == "live"


def test_a_stranger_of_the_pause_has_the_time_of_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that came amid a pause of the server has the time for its handshake once, from the end of
    the pause on."""
    failed: list[str] = []
    monkeypatch.setattr(ClientConnection, "fail", lambda self, code, text: failed.append(code))
    services, timeout_ns = cast(Services, None), int(limits.HANDSHAKE_TIMEOUT_S * 1e9)
    connection = ClientConnection(services, ConnectionManager(), PlainStream(), local=False)
    until_ns = clock.now_ns() + 10**9
    connection.stood_still(until_ns, 60 * 10**9)
    connection.tick(until_ns + timeout_ns, limits.HEARTBEAT_NS)
    assert not failed
    connection.tick(until_ns + timeout_ns + 1, limits.HEARTBEAT_NS)
    assert failed == ["timeout"]


class _Beaten:
    """A connection that keeps the times of its heartbeats."""

    def __init__(self) -> None:
        self.name = "beaten"
        self.caller: Caller | None = None
        self.beats_ns: list[int] = []

    def tick(self, now_ns: int, interval_ns: int) -> None:
        """The heartbeat."""
        self.beats_ns.append(now_ns)

    def stood_still(self, until_ns: int, pause_ns: int) -> None:
        """It never does here."""

    def fail(self, code: str, text: str) -> None:
        """It never does here."""

    def hang_up(self, end: SessionEnd, text: str) -> None:
        """It never does here."""

    def abort(self) -> None:
        """It never does here."""


class _Stander(_Beaten):
    """A connection in whose first heartbeat the server stands still, and which keeps how long that was."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses_ns: list[int] = []
        self.beats_before: list[int] = []

    def tick(self, now_ns: int, interval_ns: int) -> None:
        """The heartbeat."""
        super().tick(now_ns, interval_ns)
        if len(self.beats_ns) == 1:
            time.sleep(STOOD_NS / 1e9)

    def stood_still(self, until_ns: int, pause_ns: int) -> None:
        """The server has seen that it did."""
        self.pauses_ns.append(pause_ns)
        self.beats_before.append(len(self.beats_ns))


async def test_a_pause_in_the_last_heartbeat_of_a_round_counts() -> None:
    """The server sees it before the next heartbeat, by which clients would seem silent."""
    manager, stander = ConnectionManager(), _Stander()
    manager.enter(stander)
    watching = asyncio.create_task(manager.watch())
    await until(lambda: len(stander.beats_ns) >= 2)
    watching.cancel()
    assert any(pause_ns >= STOOD_NS for pause_ns in stander.pauses_ns)
    assert 1 in stander.beats_before


class _Clock:
    """A clock that a test puts forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = 10**9
        monkeypatch.setattr(clock, "now_ns", lambda: self.ns)


def _serve_until(manager: ConnectionManager, time: _Clock, end_ns: int) -> None:
    """Lets the server run until `end_ns`, with a read every 5 ms."""
    while time.ns < end_ns:
        time.ns += connection_manager.STEP_NS
        manager.ran_ns = time.ns
        manager.serve_between_reads(time.ns)


def _most_together(connections: list[_Beaten], since_ns: int) -> int:
    beats = Counter(at_ns for one in connections for at_ns in one.beats_ns if at_ns > since_ns)
    return max(beats.values())


def test_heartbeats_of_many_connections_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 clients that come at once get their heartbeats throughout the interval, also after a time in
    which all were late."""
    time = _Clock(monkeypatch)
    manager, clients = ConnectionManager(), [_Beaten() for _ in range(1000)]
    for one in clients:
        manager.enter(one)
    interval_ns = heartbeat_interval_ns(len(clients))
    group_ns = manager._group_ns + connection_manager.STEP_NS
    at_once = len(clients) * group_ns / (interval_ns - manager._group_ns)  # if they were spread exactly
    entered_ns = time.ns
    _serve_until(manager, time, entered_ns + 3 * interval_ns)
    assert max(one.beats_ns[0] for one in clients) <= entered_ns + interval_ns + connection_manager.STEP_NS
    settled_ns = time.ns
    _serve_until(manager, time, settled_ns + 4 * interval_ns)
    assert _most_together(clients, settled_ns) <= 3 * at_once < len(clients)
    gaps = [late - early for one in clients for early, late in pairwise(one.beats_ns) if early > settled_ns]
    assert max(gaps) <= interval_ns + 2 * connection_manager.STEP_NS

    time.ns += 4 * interval_ns // 5
    late_ns = time.ns
    _serve_until(manager, time, late_ns + 5 * interval_ns)
    assert _most_together(clients, late_ns + interval_ns) <= 3 * at_once
    gaps = [late - early for one in clients for early, late in pairwise(one.beats_ns) if early >= late_ns]
    assert max(gaps) <= interval_ns + 2 * connection_manager.STEP_NS, "`tick` was told one interval"


def test_no_client_is_judged_by_frames_that_wait_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between reads, no heartbeat is sent if the event loop's turn has lasted for long: `tick` would find a
    client silent whose frames this turn has yet to read."""
    time = _Clock(monkeypatch)
    manager, one = ConnectionManager(), _Beaten()
    manager.enter(one)
    manager.ran_ns = time.ns
    time.ns += connection_manager.UNREAD_NS
    manager.serve_between_reads(time.ns)
    assert one.beats_ns == []
    manager.ran_ns = time.ns
    manager.serve_between_reads(time.ns)
    assert one.beats_ns == [time.ns]
    assert manager.ran_ns == time.ns


@pytest.mark.slow
async def test_a_server_that_reads_sends_heartbeats(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the server's own round of heartbeats, a client that acknowledges still lets others have
    theirs."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    monkeypatch.setattr(ConnectionManager, "_stood_still", lambda manager, now_ns: True)
    other = _Beaten()
    manager = running.server._manager
    manager.enter(other)
    async with asyncio.timeout(DEADLINE_S):
        for seq in itertools.count(1):
            manager.ran_ns = clock.now_ns()
            await client.acknowledge(seq, seq)
            if len(other.beats_ns) >= 3:
                break
    manager.leave(other)
