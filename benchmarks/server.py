"""Measure the server's capacity: many clients, acknowledgements per CPU second, memory and heartbeats.

    python benchmarks/server.py [--clients 200] [--idle 0] [--seconds 10]

There are two phases of equal length over real sockets on loopback, each with a server in a separate process.
*Paced*: every client acknowledges 20 times a second, and no heartbeat may be late. *Flat out*: every client
sends without pause, on the same cores; the result is the number of acknowledgements per second of the
server's CPU time. In both phases, `--idle` more clients in a separate process have one run each and
acknowledge nothing. With `--idle`, only the heartbeats of these clients count. The benchmark fails if some
acknowledgements are not granted within 60 s. The exit code is 1 if a heartbeat was late while paced: more
than 0.1 s after it was due.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import resource
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import cast

from serving import RUNS_OF_ONE, serving

from durability import limits
from durability.formats.plan import Plan
from durability.protocol import messages
from durability.protocol.frame import frame
from durability.protocol.messages import Ack, Credit, Message, encode
from durability.protocol.secure_stream import SecureStream, client_context
from durability.protocol.state_machine import ClientProtocol
from durability_client.link.endpoint import Endpoint
from durability_lab.support.server_fleet import facts_of
from durability_server.connections.connection_manager import heartbeat_interval_ns

PACE_S = 0.05
CONTEXT = client_context()
BATCH = 64  # acknowledgements per write, flat out
IN_FLIGHT = 4096  # most acknowledgements of a client that are not granted yet; `run` sends one for many
LATE_S = 0.1
CREDITED_S = 60


@dataclass(slots=True)
class Client:
    """One client of the load. `beats`: the times at which heartbeats arrived."""

    stream: SecureStream
    session: ClientProtocol
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    plan: Plan
    seq: int = 0
    grant: int = 0
    beats: list[float] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def receive(self) -> list[Message]:
        """The next messages. Raises ConnectionError if the server closed the connection."""
        data = await self.reader.read(1 << 16)
        if not data:
            raise ConnectionError("the server closed the connection")
        received = self.session.receive(self.stream.receive(data))
        answer = self.session.outgoing()
        if answer:  # heartbeats are answered by the session
            self.beats.append(time.monotonic())
            self.write(answer)
        for message in received:
            if isinstance(message, Credit):
                self.grant = message.grants[0]
        self.news.set()
        return received

    def write(self, data: bytes) -> None:
        """Sends `data` over TLS."""
        self.stream.send(data)
        self.writer.write(self.stream.outgoing())

    async def ask(self, request: Message) -> Message:
        """Sends a request; returns the answer."""
        self.session.send(request)
        self.write(self.session.outgoing())
        while True:
            for message in await self.receive():
                return message

    async def listen(self) -> None:
        """Receives messages without end."""
        while True:
            await self.receive()

    async def acknowledge(self, count: int) -> None:
        """Sends `count` acknowledgements in one write, once few enough are in flight."""
        while self.seq + count > self.grant + IN_FLIGHT:
            self.news.clear()
            await self.news.wait()
        seqs = range(self.seq + 1, self.seq + count + 1)
        self.write(b"".join(frame(encode(Ack(frontiers=(seq,), control=0))) for seq in seqs))
        self.seq += count
        await self.writer.drain()
        await asyncio.sleep(0)  # lets the other clients run and answer heartbeats


async def connect(
    where: Endpoint, purpose: str
) -> tuple[SecureStream, ClientProtocol, asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, and complete the handshake."""
    reader, writer = await asyncio.open_connection(*where.addresses[0])
    stream = SecureStream.client_end(CONTEXT, fingerprint=where.fingerprint)
    session = ClientProtocol(
        purpose, client=where.client, secret=where.secret, software="durability benchmark"
    )
    session.start()
    stream.send(session.outgoing())
    while not session.authenticated:
        writer.write(stream.outgoing())
        session.receive(stream.receive(await reader.read(1 << 16)))
    return stream, session, reader, writer


async def begin(clients: list[Endpoint], number: int) -> Client:
    """Register and arm run `number`, for the clients in turn."""
    plan = Plan(
        run=number,
        seed=number,
        target=number,
        target_kind="file",
        workload="overwrite",
        pattern="random",
        record_bytes=4096,
        writers=1,
        slots=4 * limits.CREDIT_MAX,
        group=1,
        credit=limits.CREDIT_MAX,
        sync="fdatasync",
        direct=False,
        block_bytes=4096,
        control_slots=0,
        control_interval_us=0,
    )
    facts = facts_of(plan)
    client = Client(*await connect(clients[number % len(clients)], "run"), plan)
    register = messages.Register(
        run=number,
        plan=plan.encode(),
        facts=facts,
        secret=secrets.token_bytes(32),
        label="benchmark",
        force=False,
    )
    await client.ask(register)
    await client.ask(messages.ArmRun(facts=facts))
    return client


async def begin_all(clients: list[Endpoint], numbers: range) -> tuple[list[Client], list[asyncio.Task[None]]]:
    """Begin the runs `numbers`, each of which listens as soon as it has begun."""
    begun, listening = [], []
    for number in numbers:
        begun.append(await begin(clients, number))
        listening.append(asyncio.create_task(begun[-1].listen()))
    return begun, listening


async def load(clients: list[Client], seconds: float, *, flat_out: bool) -> None:
    """Let all clients acknowledge for `seconds`."""
    end = time.monotonic() + seconds

    async def one(number: int, client: Client) -> None:
        await asyncio.sleep(PACE_S * number / len(clients))  # spreads the clients over the pace
        client.beats.clear()
        while time.monotonic() < end:
            if flat_out:
                await client.acknowledge(BATCH)
            else:
                await client.acknowledge(1)
                await asyncio.sleep(PACE_S)

    await asyncio.gather(*(one(number, client) for number, client in enumerate(clients)))


async def credited(clients: list[Client]) -> None:
    """Returns when every acknowledgement has been granted."""
    for client in clients:
        while client.grant < client.seq:
            client.news.clear()
            await client.news.wait()


def usage() -> Callable[[], tuple[float, int]]:
    """In the server's process: a function for its CPU seconds and peak resident bytes at the end."""

    def collect() -> tuple[float, int]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime, used.ru_maxrss << 10

    return collect


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of one phase."""

    acks: int
    seconds: float
    cpu_s: float
    peak_bytes: int
    beat_gap_s: float  # the longest time that any client waited for a heartbeat
    beats_late: int  # heartbeats that arrived more than `LATE_S` after they were due


def idle_clients(where: list[Endpoint], first: int, count: int, pipe: Connection) -> None:
    """In a separate process: run clients that acknowledge nothing.

    The process reports when all have their runs, and is told when the load begins and ends. It sends the gaps
    between the heartbeats of that time, in s.
    """

    async def work() -> None:
        gc.disable()  # a collection would stop all clients of this process at once
        clients, listening = await begin_all(where, range(first, first + count))
        pipe.send(None)
        await asyncio.to_thread(pipe.recv)
        for client in clients:
            client.beats.clear()
        await asyncio.to_thread(pipe.recv)
        pipe.send(gaps(clients))
        for task in listening:
            task.cancel()

    asyncio.run(work())


def gaps(clients: list[Client]) -> list[float]:
    """The times between successive heartbeats, in s."""
    return [late - early for client in clients for early, late in pairwise(client.beats)]


async def phase(where: list[Endpoint], clients: int, idle: int, seconds: float, *, flat_out: bool) -> Outcome:
    """Run one phase on a new server; the caller fills in the server's CPU time and memory."""
    gc.disable()  # as in `idle_clients`
    started, listening = await begin_all(where, range(1, clients + 1))
    ours, theirs = multiprocessing.Pipe()
    beside = multiprocessing.get_context("spawn").Process(
        target=idle_clients, args=(where, clients + 1, idle, theirs), daemon=True
    )
    if idle:
        beside.start()
        await asyncio.to_thread(ours.recv)
        ours.send(None)
    before = time.monotonic()
    await load(started, seconds, flat_out=flat_out)
    took_s = time.monotonic() - before
    waited = gaps(started)
    if idle:
        ours.send(None)
        waited = await asyncio.to_thread(ours.recv)
        await asyncio.to_thread(beside.join)
    async with asyncio.timeout(CREDITED_S):
        await credited(started)
    for task, client in zip(listening, started, strict=True):
        task.cancel()
        client.writer.close()
    late_s = LATE_S + heartbeat_interval_ns(clients + idle) / 1e9
    return Outcome(
        acks=sum(client.seq for client in started),
        seconds=took_s,
        cpu_s=0.0,
        peak_bytes=0,
        beat_gap_s=max(waited, default=0.0),
        beats_late=sum(gap > late_s for gap in waited),
    )


def measure(clients: int, idle: int, seconds: float, *, flat_out: bool) -> Outcome:
    """Run one phase on a server of its own."""
    with serving(usage, clients=-(-(clients + idle) // RUNS_OF_ONE)) as server:
        outcome = asyncio.run(phase(server.endpoints, clients, idle, seconds, flat_out=flat_out))
        cpu_s, peak_bytes = cast("tuple[float, int]", server.stop())
    return replace(outcome, cpu_s=cpu_s, peak_bytes=peak_bytes)


def main() -> int:
    """Prints one line per phase; returns 1 if a heartbeat was late while paced."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--clients", type=int, default=200)
    arguments.add_argument("--idle", type=int, default=0)
    arguments.add_argument("--seconds", type=float, default=10.0)
    options = arguments.parse_args()
    late = 0
    for name, flat_out in (("paced", False), ("flat out", True)):
        result = measure(options.clients, options.idle, options.seconds, flat_out=flat_out)
        late += 0 if flat_out else result.beats_late
        print(
            f"{name:9} {options.clients} clients, {result.acks:,} acks in {result.seconds:.1f} s"
            f" ({result.acks / result.seconds:,.0f}/s, {result.acks / result.cpu_s:,.0f} per CPU second),"
            f" server CPU {result.cpu_s:.1f} s, peak memory {result.peak_bytes >> 20} MiB,"
            f" longest wait for a heartbeat {result.beat_gap_s * 1e3:.0f} ms, late {result.beats_late}"
        )
    return int(late > 0)


if __name__ == "__main__":
    sys.exit(main())
