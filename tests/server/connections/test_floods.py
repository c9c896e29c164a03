"""Many strangers and greedy clients, from processes of their own, against a server: what they cost it, and
that an honest client gets in and goes on."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from durability import limits
from durability.errors import RefusedError
from durability.formats.packing import pack
from durability.protocol import messages
from durability.protocol.frame import frame
from durability.protocol.messages import Message
from durability.protocol.state_machine import Undecoded
from durability_lab.support import flood
from durability_lab.support.flood import Flood, RunningFlood
from durability_server.connections.client_connection import ClientConnection
from durability_server.connections.listener import BEGINNING_MAX, WAITING_MAX
from durability_server.connections.turns import LARGE_MAX
from tests.waiting import DEADLINE_S

if TYPE_CHECKING:
    from tests.server.conftest import Client, Lab, Running, ServerProcess

StartServer = Callable[[str], Awaitable["ServerProcess"]]

HELLO = flood.client_hello()
OPENINGS = {
    "silent": "",
    "first-byte": HELLO[:2],
    "half": HELLO[: len(HELLO) // 4 * 2],
    "whole": HELLO,
    "http": b"GET / HTTP/1.1\r\n\r\n".hex(),
}
STRANGERS = WAITING_MAX + 1000
RATE = 4000  # a second at most; a busy machine makes fewer
MEMORY_BYTES_MAX = 64 << 20
OTHER_DESCRIPTORS = 64  # of the process: its store, its threads, the honest clients
LOG_BYTES_MAX = 32 << 10
SEVERAL = 60  # connections of one client, fewer than it may have
HONEST = 8  # connects, one after the other
HANDSHAKE_S = limits.HANDSHAKE_TIMEOUT_S  # before a fixture changes it


def _pid(server: ServerProcess) -> int:
    assert server.process is not None
    return server.process.pid


def _peak_bytes(server: ServerProcess) -> int:
    status = Path(f"/proc/{_pid(server)}/status").read_text(encoding="utf-8")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


def _descriptors(server: ServerProcess) -> int:
    return len([*Path(f"/proc/{_pid(server)}/fd").iterdir()])


async def _live(lab: Lab, server: ServerProcess | Running) -> Client:
    client = await lab.connect(server.address)
    await client.begin(lab.plan(), lab.facts())
    await client.acknowledge(1, 1)
    return client


async def _get_in(lab: Lab, server: ServerProcess | Running, live: Client, first: int) -> None:
    """Honest clients connect one after the other, while the live run goes on."""
    for number in range(HONEST):
        asker = await lab.connect(server.address, "query")
        await asker.ask(messages.List(limit=1), messages.Listing)
        await asker.close()
        await live.acknowledge(first + number, first + number)


@asynccontextmanager
async def _running(many: Flood) -> AsyncIterator[RunningFlood]:
    """The flood, while the event loop goes on."""
    with ExitStack() as stack:
        yield await asyncio.to_thread(stack.enter_context, flood.running(many))
        await asyncio.to_thread(stack.close)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger is sent away as soon as outside of tests."""
    monkeypatch.setattr(limits, "HANDSHAKE_TIMEOUT_S", HANDSHAKE_S)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("opening", OPENINGS)
async def test_strangers_cost_next_to_nothing(
    lab: Lab, sqlite_url: str, server_process: StartServer, opening: str
) -> None:
    """More strangers than there are places: memory, descriptors and log stay within bounds, and honest
    clients of another address get in, though the strangers come back whenever they are sent away."""
    server = await server_process(sqlite_url)
    live = await _live(lab, server)
    before, log_bytes = _peak_bytes(server), len(server.log)
    many = Flood(
        port=server.address[1],
        held=STRANGERS,
        rate=RATE,
        opening=OPENINGS[opening],
        renewed=opening != "silent",
    )
    async with _running(many) as running:
        await _get_in(lab, server, live, 2)
        counted = running.counted()
        assert counted.made >= STRANGERS
        assert _descriptors(server) <= WAITING_MAX + BEGINNING_MAX + OTHER_DESCRIPTORS
    await live.acknowledge(100, 100)
    assert _peak_bytes(server) - before < MEMORY_BYTES_MAX
    assert len(server.log) - log_bytes < LOG_BYTES_MAX


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stranger is ever sent away because of its time, so that only its place can be taken from it."""
    monkeypatch.setattr(limits, "HANDSHAKE_TIMEOUT_S", 3600.0)


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """The system gives this process 300 more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) + 300, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
@pytest.mark.usefixtures("patient", "no_silence")
async def test_unfinished_handshakes_keep_no_other_address_out(lab: Lab, sqlite_url: str) -> None:
    """Unfinished handshakes, many more than the server handles at a time, do not keep out an honest client of
    another address."""
    server = await lab.start(sqlite_url)
    live = await _live(lab, server)
    many = Flood(port=server.address[1], held=3 * BEGINNING_MAX, rate=RATE, opening=HELLO)
    async with asyncio.timeout(DEADLINE_S), _running(many):
        await _get_in(lab, server, live, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("patient", "no_silence", "few_descriptors")
async def test_strangers_leave_descriptors_for_clients(
    lab: Lab, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the system gives fewer descriptors than there are places, the oldest stranger makes way."""
    server = await lab.start(sqlite_url)
    live = await _live(lab, server)
    many = Flood(port=server.address[1], held=1000, rate=RATE)
    async with asyncio.timeout(DEADLINE_S), _running(many):
        await _get_in(lab, server, live, 2)
    assert "Traceback" not in caplog.text


@pytest.mark.slow
async def test_a_message_of_millions_of_maps_is_not_decoded(
    lab: Lab, sqlite_url: str, server_process: StartServer
) -> None:
    """A known client that sends as many empty maps as a frame takes is refused before they take memory."""
    server = await server_process(sqlite_url)
    live = await _live(lab, server)
    greedy = await lab.connect(server.address, "verify")
    before = _peak_bytes(server)
    head = pack([0x22, 1, "maps", None])[:-1]
    for count in (4_000_000, 200_000):
        body = head + b"\xdd" + count.to_bytes(4, "big") + b"\x80" * count
        greedy = await lab.connect(server.address, "verify")
        greedy.say_bytes(frame(body))
        error = await greedy.ended()
        assert isinstance(error, RefusedError)
        assert error.code == "protocol"
    await live.acknowledge(2, 2)
    assert _peak_bytes(server) - before < MEMORY_BYTES_MAX


@pytest.mark.slow
@pytest.mark.usefixtures("no_silence")
async def test_what_takes_long_to_decode_keeps_no_other_client_waiting(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends sixty documents of many maps at once, one on each connection: they are decoded one
    by one, the event loop runs between any two, and another client gets its heartbeats meanwhile."""
    running = await lab.start(sqlite_url)
    live = await _live(lab, running)
    member = await lab.join(running.address, (await running.server.invite()).line, name="greedy")
    several = [await lab.connect(running.address, "verify", member=member) for _ in range(SEVERAL)]
    body = pack([0x24, 1, {"maps": [[{}] * 8000] * 4}])
    loop, turns, begun_in, ended_in, seen = asyncio.get_running_loop(), 0, [-1], [-1], [""]
    decode, tick = Undecoded.decode, ClientConnection.tick

    def turn() -> None:
        nonlocal turns
        turns += 1
        turning = loop.call_soon(turn)
        if len(ended_in) > SEVERAL:
            turning.cancel()

    def decode_seen(message: Undecoded) -> Message:
        assert len(begun_in) == len(ended_in), "one at a time"
        begun_in.append(turns)
        seen.append("decoded")
        try:
            return decode(message)
        finally:
            ended_in.append(turns)

    def tick_seen(connection: ClientConnection, now_ns: int, interval_ns: int) -> None:
        if connection.session is not None:
            seen.append("heartbeat")
        tick(connection, now_ns, interval_ns)

    for client in several:
        client.pause()  # it answers no heartbeat amid the frame
        client.say_bytes(frame(body)[:-1])
    await live.acknowledge(2, 2)
    monkeypatch.setattr(Undecoded, "decode", decode_seen)
    monkeypatch.setattr(ClientConnection, "tick", tick_seen)
    turn()
    async with asyncio.timeout(DEADLINE_S):
        for client in several:
            client.say_bytes(frame(body)[-1:])
            client.go_on()
        errors = await asyncio.gather(*(client.ended() for client in several))
        assert all(isinstance(error, RefusedError) and error.code == "bad-request" for error in errors)
        await live.acknowledge(3, 3)
    assert len(ended_in) == SEVERAL + 1
    assert all(after > before for before, after in zip(ended_in, begun_in[1:], strict=False))
    between = " ".join(seen).split("heartbeat")
    assert max(part.count("decoded") for part in between) < SEVERAL // 2


@pytest.mark.slow
async def test_the_memory_of_unfinished_messages_is_bounded(lab: Lab, sqlite_url: str) -> None:
    """A client that begins large messages on many connections and ends none is refused at some number; the
    others are not, and it has the place of each message that was answered again."""
    running = await lab.start(sqlite_url)
    live = await lab.connect(running.address)
    await live.begin(lab.plan(), lab.facts())
    member = await lab.join(running.address, (await running.server.invite()).line, name="greedy")
    run = lab.plan(run=77)
    owner = await lab.connect(running.address, member=member)
    await owner.register(run, lab.facts(serial="S7", uuid="uuid-7"))
    evidence = messages.Evidence(run=run.run, name="piece", data=bytes(1 << 20))
    half = frame(messages.encode(evidence))[: 1 << 19]
    begun = [await lab.connect(running.address, "verify", member=member) for _ in range(LARGE_MAX + 1)]
    whole = begun.pop()
    for client in begun:
        client.say_bytes(half)
    async with asyncio.timeout(DEADLINE_S):
        errors = {asyncio.create_task(client.ended()): client for client in (whole, *begun)}
        whole.say_bytes(half)
        done, _ = await asyncio.wait(errors, return_when=asyncio.FIRST_COMPLETED)
        (ended,) = done
        error = ended.result()
        assert isinstance(error, RefusedError)
        assert error.code == "busy"
        other = await lab.connect(running.address, "query")
        await other.ask(messages.List(limit=1), messages.Listing)
        await live.acknowledge(1, 1)
        for client in (errors.pop(ended), errors.popitem()[1]):
            await client.close()
        while running.server.connections > len((live, owner, other)) + len(errors):
            await other.ask(messages.List(limit=1), messages.Listing)
        again = await lab.connect(running.address, "verify", member=member)
        for _ in range(2 * LARGE_MAX):
            await again.ask(evidence, messages.Stored)
        for task in errors:
            task.cancel()


@pytest.mark.slow
async def test_a_client_with_many_questions_keeps_no_other_waiting(lab: Lab, sqlite_url: str) -> None:
    """A client that asks on many connections at once is answered one by one; another client's question, which
    came after all of them, is answered among the first, and a client that connects then gets in."""
    running = await lab.start(sqlite_url)
    member = await lab.join(running.address, (await running.server.invite()).line, name="greedy")
    several = [await lab.connect(running.address, "query", member=member) for _ in range(64)]
    honest = await lab.connect(running.address, "query")
    answered: list[Client] = []

    async def ask(client: Client) -> None:
        await client.ask(messages.List(limit=1), messages.Listing)
        answered.append(client)

    async with asyncio.TaskGroup() as group:
        for client in (*several, honest):
            group.create_task(ask(client))
    assert answered.index(honest) < 8
