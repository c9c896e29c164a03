"""Measure how open event streams of the live page slow down a run: lag of acks, and waits for heartbeats.

Each round measures without a live page, and with one that many readers have open; the order alternates. Each
reader holds an event stream of the first page and reads all its data. The heartbeats are those of `--idle`
clients in a separate process, whose runs acknowledge nothing. All of them share this machine's processors
with server, run and drive.

    python benchmarks/live_page.py [--directory DIR] [--writers 1] [--seconds 10] [--rounds 5] [--streams 50]
        [--idle 20]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from ack_lag import measure
from serving import Server

from durability_server.connections.connection_manager import heartbeat_interval_ns
from server import LATE_S, idle_clients

FIGURES = ("commits/s", "lag p50 us", "lag p99 us", "longest gap ms", "longest wait for a heartbeat ms")


async def _browse(port: int, streams: int, opened: Event) -> None:
    async def read() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        waiting.discard(asyncio.current_task())
        if not waiting:
            opened.set()
        while await reader.read(1 << 16):
            pass

    waiting: set[asyncio.Task[None] | None] = set()
    tasks = [asyncio.create_task(read()) for _ in range(streams)]
    waiting.update(tasks)
    await asyncio.gather(*tasks)


def _read_streams(port: int, streams: int, opened: Event) -> None:
    asyncio.run(_browse(port, streams, opened))


@contextmanager
def readers(page: str, *, streams: int) -> Iterator[None]:
    """For the duration of the block, `streams` event streams of the page are open."""
    context = multiprocessing.get_context("spawn")
    opened = context.Event()
    port = urlsplit(page).port
    process = context.Process(target=_read_streams, args=(port, streams, opened), daemon=True)
    process.start()
    if not opened.wait(60):
        raise SystemExit("the page does not answer")
    try:
        yield
    finally:
        process.kill()
        process.join()


@contextmanager
def listeners(server: Server, *, idle: int, waits: list[float], streams: int) -> Iterator[None]:
    """For the duration of the block, there are `idle` idle clients and `streams` readers. The times between
    the clients' heartbeats, in s, are added to `waits`."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=idle_clients, args=(server.endpoints, 1, idle, theirs), daemon=True)
    with readers(server.page, streams=streams) if streams else nullcontext():
        process.start()
        ours.recv()
        ours.send(None)
        yield
        ours.send(None)
        waits += ours.recv()
        process.join()


def round_of(
    directory: Path, writers: int, seconds: float, *, idle: int, streams: int
) -> tuple[tuple[float, ...], list[float]]:
    """The figures of one run, and the waits for heartbeats in s. `streams` 0: without a live page."""
    waits: list[float] = []
    beside = partial(listeners, idle=idle, waits=waits, streams=streams)
    web = "127.0.0.1:0" if streams else None
    lag, acks = measure(directory, writers, seconds, web=web, beside=beside)
    p50, p99 = np.percentile(lag, (50, 99)) / 1000
    gap_ms = float(np.diff(acks).max()) / 1e6
    return (len(lag) / seconds, float(p50), float(p99), gap_ms, max(waits) * 1e3), waits


def main() -> None:
    """Print the figures of each round, then the medians of the paired ratios and the numbers of late
    heartbeats."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--writers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--idle", type=int, default=20)
    arguments = parser.parse_args()
    ratios: list[list[float]] = [[] for _ in FIGURES]
    waits: dict[int, list[float]] = {0: [], arguments.streams: []}
    for number in range(arguments.rounds):
        found: dict[int, tuple[float, ...]] = {}
        order = (0, arguments.streams) if number % 2 == 0 else (arguments.streams, 0)
        for streams in order:
            found[streams], waited = round_of(
                arguments.directory,
                arguments.writers,
                arguments.seconds,
                idle=arguments.idle,
                streams=streams,
            )
            waits[streams] += waited
            figures = "  ".join(
                f"{name} {value:,.0f}" for name, value in zip(FIGURES, found[streams], strict=True)
            )
            print(f"round {number + 1}, {streams:3} event streams: {figures}", flush=True)
        for index, values in enumerate(ratios):
            values.append(found[arguments.streams][index] / found[0][index])
    for name, values in zip(FIGURES, ratios, strict=True):
        print(f"{name}: {statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")
    shares = [_print_late(streams, waited, arguments.idle) for streams, waited in waits.items()]
    if shares[0]:
        print(f"share of late heartbeats: {shares[1] / shares[0]:.2f}")


def _print_late(streams: int, waits: list[float], idle: int) -> float:
    """Print and return the share of late heartbeats."""
    due_s = heartbeat_interval_ns(idle + 1) / 1e9
    late = sum(wait > due_s + LATE_S for wait in waits)
    share = late / len(waits)
    print(
        f"{streams} event streams: {late} of {len(waits):,} heartbeats more than {LATE_S * 1e3:.0f} ms late"
        f" ({share:.2%})"
    )
    return share


if __name__ == "__main__":
    main()
