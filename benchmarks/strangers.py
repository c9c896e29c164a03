"""Measure how unknown connections and greedy clients burden a server and slow down its honest clients.

    python benchmarks/strangers.py [--only NAME] [--held 12000] [--seconds 10] [--runs 10000]

Each load has a real `durability serve`. Beside it, an honest client has a live run, and honest clients
connect one after the other over a round trip of 20 ms. (A proxy delays each direction by 10 ms; the kernel's
own delay, netem, is not available everywhere.) The unknown connections come from four addresses of the
loopback network and are made by a separate process:

    quiet         none: shows the load of the machine itself
    silent        --held connections that send nothing; the server's closed ones are replaced
    byte          as `silent`, but each sends the first byte of TLS and then nothing
    half          as `silent`, but each sends half of the first TLS message
    hello         as `silent`, but each sends the whole first TLS message and then nothing
    rate          4,000 new silent connections a second
    rate-hello    4,000 a second that begin a handshake
    listing       four operators that list --runs runs without pause
    maps          a client that sends one frame of 4 M empty maps, again and again

For each load, the benchmark prints resident and proportional memory (MiB) and descriptors, before and at
most. It also prints the number of successful honest connects and the slowest of them, the live run's longest
waits for a heartbeat and for credit, bytes of log per second, and the server's share of a processor. The
exit code is 1 if a load missed an aim: unknown connections take at most 64 MiB more memory, every honest
connect succeeds, and no heartbeat and no credit takes more than 0.1 s.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from serving import MEMORY

from durability import limits
from durability.errors import PeerError
from durability.formats.facts import Facts, Host
from durability.formats.packing import pack
from durability.protocol import messages
from durability.protocol.auth import APPLICATION
from durability.protocol.frame import FrameDecoder, frame
from durability.units import parse_address
from durability_client.link import server_connection
from durability_client.link.endpoint import Endpoint, endpoint
from durability_lab.support import flood
from durability_lab.support.flood import Flood, RunningFlood
from durability_lab.support.local_server import join_server
from durability_lab.support.tcp_proxy import TcpProxy
from durability_server import clock
from durability_server.store.records import Registration
from durability_server.store.store import Store
from durability_server.store.target_keys import TargetKeys
from server import Client, begin, connect

SERVE = (sys.executable, "-c", "from durability_cli.main import main; main()", "serve")
LISTEN = "127.0.0.1:0"
TARGET = Facts(
    host=Host(
        machine_id="machine", boot_id="boot", uptime_ns=1, kernel="", virtualisation="none", hostname="host"
    ),
    path="/target",
    path_in_file_system="",
    kind="file",
    size_bytes=1 << 30,
    offset_bytes=None,
    file_system=None,
    layers=(),
    drives=(),
    warnings=(),
)
ONE_WAY_S = 0.010
PACE_S = 0.05  # between acknowledgements of the live run
CONNECT_PACE_S = 0.05
RATE = 4000
MEMORY_BYTES = 64 << 20  # most additional memory for strangers
LATE_S = 0.1  # longest wait for a heartbeat or for credit
OPERATORS = 4
MAPS = 4_000_000
LIVE_RUN = 1 << 30
LOADS = ("quiet", "silent", "byte", "half", "hello", "rate", "rate-hello", "listing", "maps")


@dataclass(slots=True)
class Serve:
    """A `durability serve`, with its files in `directory`."""

    process: subprocess.Popen[str]
    directory: Path
    address: str
    rss_max: int = 0
    pss_max: int = 0
    descriptors_max: int = 0

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return parse_address(self.address)[1]

    @property
    def log_bytes(self) -> int:
        """Bytes that the server has written to its log and its events."""
        return sum((self.directory / name).stat().st_size for name in ("log", "events"))

    @property
    def cpu_s(self) -> float:
        """Processor time that the server has used, in s."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def look(self) -> None:
        """Record the server's present memory and descriptors."""
        rolled = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text(encoding="ascii")
        sizes = {line.split(":")[0]: line.split()[1] for line in rolled.splitlines()[1:]}
        self.rss_max = max(self.rss_max, int(sizes["Rss"]) << 10)
        self.pss_max = max(self.pss_max, int(sizes["Pss"]) << 10)
        descriptors = os.listdir(f"/proc/{self.process.pid}/fd")  # noqa: PTH208 - without the GIL, mostly
        self.descriptors_max = max(self.descriptors_max, len(descriptors))

    @asynccontextmanager
    async def operated(self) -> AsyncIterator[server_connection.Connection]:
        """A connection of the server's operator, over the local socket."""
        (path,) = (self.directory / APPLICATION).glob("*.socket")
        with closing(await server_connection.connect(Endpoint(local=path), "operate")) as connection:
            yield connection

    async def joined(self, name: str, *, role: str = "client") -> Endpoint:
        """Join a new client; returns its endpoint."""
        credential = self.directory / f"{name}.json"
        async with self.operated() as operator:
            invited = await operator.request(messages.Invite(role=role, name=name), messages.Invited)
        await join_server(invited, self.address, credential)
        return endpoint(self.address, credential)


@contextmanager
def serving(runs: int) -> Iterator[Serve]:
    """A running server with its store in memory and `runs` stored runs."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name, ExitStack() as stack:
        directory = Path(name)
        url = f"sqlite:///{directory}/store.sqlite"
        fill(Store(url), runs)
        log = stack.enter_context((directory / "log").open("w"))
        events = stack.enter_context((directory / "events").open("w"))
        process = subprocess.Popen(
            [*SERVE, "--listen", LISTEN, "--store", url],
            stdout=events,
            stderr=log,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": name},
        )
        try:
            while not (said := (directory / "events").read_text()).count("\n"):
                if process.poll() is not None:
                    sys.exit((directory / "log").read_text())
                time.sleep(0.01)
            address = said.splitlines()[0].removeprefix("Listening on ").rstrip(".")
            yield Serve(process, directory, address)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


@dataclass(slots=True)
class Honest:
    """The results of the honest clients."""

    connects: list[float | None] = field(default_factory=list)  # duration in s, None for a failed connect
    credits: list[float] = field(default_factory=list)  # waits of the live run for credit, in s
    over: bool = False


async def live(client: Client, honest: Honest) -> None:
    """The live run: acknowledges one operation and waits for its grant, without end."""
    while True:
        before = time.monotonic()
        await client.acknowledge(1)
        while client.grant < client.seq:
            client.news.clear()
            await client.news.wait()
        honest.credits.append(time.monotonic() - before)
        await asyncio.sleep(PACE_S)


async def connecting(where: Endpoint, honest: Honest) -> None:
    """Connects and closes again and again, until `honest.over`."""
    while not honest.over:
        before = time.monotonic()
        try:
            with closing(await server_connection.connect(where, "query")):
                honest.connects.append(time.monotonic() - before)
        except PeerError as error:
            print(f"an honest client was kept out: {error}", file=sys.stderr)
            honest.connects.append(None)
        await asyncio.sleep(CONNECT_PACE_S)


async def listing(where: Endpoint, counted: list[int]) -> None:
    """An operator that lists all runs without pause."""
    stream, _, reader, writer = await connect(where, "query")
    frames = FrameDecoder(limits.FRAME_BYTES_MAX)
    while True:
        stream.send(frame(messages.encode(messages.List(limit=limits.LISTING_ROWS_MAX))))
        writer.write(stream.outgoing())
        answered = False  # answers are not decoded: that would take time from the honest clients here
        while not answered:
            bodies = frames.feed(stream.receive(await reader.read(1 << 20)))
            answered = messages.Listing in {*map(messages.kind_of, bodies)}
        counted.append(1)


async def sending_maps(where: Endpoint) -> None:
    """A client that sends the frame, and connects again when the server has closed its connection."""
    body = bytearray(pack([0x22, 1, "maps", None])[:-1])  # Evidence, without its data
    body += b"\xdd" + MAPS.to_bytes(4, "big") + b"\x80" * MAPS
    while True:
        stream, _, reader, writer = await connect(where, "verify")
        stream.send(frame(bytes(body)))
        writer.write(stream.outgoing())
        with suppress(OSError):
            while await reader.read(1 << 16):
                pass
        writer.close()


def strangers(load: str, port: int, held: int) -> Flood | None:
    """The flood of unknown connections of a load, None if the load has none."""
    hello = flood.client_hello()
    kept = Flood(port=port, held=held, rate=RATE)
    moving = Flood(port=port, held=2 * RATE, rate=RATE, renewed=True)
    return {
        "silent": kept,
        "byte": replace(kept, opening=hello[:2]),
        "half": replace(kept, opening=hello[: len(hello) // 4 * 2]),
        "hello": replace(kept, opening=hello),
        "rate": moving,
        "rate-hello": replace(moving, opening=hello),
    }.get(load)


async def measure(serve: Serve, load: str, options: argparse.Namespace) -> bool:
    """Run one load and print its line. Returns whether it met all aims."""
    me = await serve.joined("honest")
    others = [
        await serve.joined(f"other-{number}", role="operator" if load == "listing" else "client")
        for number in range(OPERATORS)
    ]
    client = await begin([me], LIVE_RUN)
    honest = Honest()
    async with TcpProxy("127.0.0.1", serve.port, delay_s=ONE_WAY_S) as proxy:
        far = replace(me, addresses=(parse_address(proxy.address),))
        tasks = [asyncio.create_task(client.listen()), asyncio.create_task(live(client, honest))]
        connects = asyncio.create_task(connecting(far, honest))
        await asyncio.sleep(1)
        serve.look()
        before = (serve.rss_max, serve.pss_max, serve.descriptors_max)
        client.beats.clear()
        honest.connects.clear()
        honest.credits.clear()
        log_bytes, cpu_s, began = serve.log_bytes, serve.cpu_s, time.monotonic()
        with ExitStack() as stack:
            many = strangers(load, serve.port, options.held)
            counted = None
            listings: list[int] = []
            if many is not None:
                running: RunningFlood = await asyncio.to_thread(stack.enter_context, flood.running(many))
            if load == "listing":
                tasks += [asyncio.create_task(listing(other, listings)) for other in others]
            elif load == "maps":
                tasks.append(asyncio.create_task(sending_maps(others[0])))
            end = time.monotonic() + options.seconds
            while time.monotonic() < end:
                await asyncio.to_thread(serve.look)  # takes up to 60 ms, in which no client may wait
                await asyncio.sleep(0.1)
            if many is not None:
                counted = await asyncio.to_thread(running.counted)
            took_s = time.monotonic() - began
            cpu_s = serve.cpu_s - cpu_s
            gaps = [late - early for early, late in pairwise(client.beats)]
            await asyncio.to_thread(stack.close)
        honest.over = True
        await connects
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    done = [seconds for seconds in honest.connects if seconds is not None]
    met = (
        (many is None or serve.rss_max - before[0] <= MEMORY_BYTES)
        and len(done) == len(honest.connects)
        and max((*gaps, *honest.credits), default=0.0) <= LATE_S
    )
    print(
        f"{load:10} RSS {before[0] >> 20} -> {serve.rss_max >> 20}, PSS {before[1] >> 20} ->"
        f" {serve.pss_max >> 20} MiB, descriptors {before[2]} -> {serve.descriptors_max};"
        f" connects {len(done)} of {len(honest.connects)}, slowest {max(done, default=0) * 1e3:.0f} ms;"
        f" heartbeat {max(gaps, default=0) * 1e3:.0f} ms,"
        f" credit {max(honest.credits, default=0) * 1e3:.0f} ms;"
        f" log {(serve.log_bytes - log_bytes) / took_s:.0f} B/s, processor {cpu_s / took_s:.0%}"
        + (f"; strangers made {counted.made:,} in {took_s:.0f} s" if counted else "")
        + (f"; {len(listings) / took_s:.1f} listings a second" if listings else "")
        + ("" if met else "; MISSED"),
        flush=True,
    )
    return met


def fill(store: Store, runs: int) -> None:
    """Register `runs` runs of the operator."""
    store.open()
    for number in range(1, runs + 1):
        registration = Registration(
            run=number,
            client="",
            label="benchmark",
            plan=bytes(200),
            secret=bytes(32),
            facts=TARGET,
            keys=TargetKeys(drive=f"{number}", file_system="", path=""),
            path=f"/mnt/disk-{number}/target",
            host=f"machine-{number}",
            wall=clock.wall(),
            writers=4,
        )
        store.register(registration, force=True)
    store.close()


def main() -> int:
    """Measure each load on a new server. Returns 1 if one missed an aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", choices=LOADS)
    parser.add_argument("--held", type=int, default=12_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--runs", type=int, default=10_000, help="that the operators list")
    options = parser.parse_args()
    met = True
    for load in options.only or LOADS:
        with serving(options.runs if load == "listing" else 0) as serve:
            met &= asyncio.run(measure(serve, load, options))
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
