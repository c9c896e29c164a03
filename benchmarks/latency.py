"""Measure how a slow network affects a writer, which should be unaffected as long as its credit lasts.

The same run goes through proxies that add 0, 0.2 and 2 ms to the round trip. Rounds are interleaved, and each
is compared with the round without delay, which also uses a proxy. Pairs are compared because a drive's rate
drifts by more than the difference. A round in which the writer waited for credit is marked: its rate is the
server's, not the writer's.

    python benchmarks/latency.py [--directory DIR] [--rounds 5] [--seconds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from serving import serving

from durability.units import parse_address
from durability_client.link.endpoint import Endpoint
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import run
from durability_client.run.sender import run_in_fine_loop
from durability_client.target.kernel_storage import KernelStorage
from durability_lab.support.tcp_proxy import TcpProxy

ADDED_MS = (0.0, 0.2, 2.0)  # to the round trip


@contextlib.contextmanager
def proxies(address: str, added_ms: Sequence[float]) -> Iterator[list[str]]:
    """The addresses of one proxy per delay; all proxies run in a separate process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_proxies, args=(address, added_ms, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def _serve_proxies(address: str, added_ms: Sequence[float], pipe: Connection) -> None:
    async def serve() -> None:
        async with contextlib.AsyncExitStack() as stack:
            started = [
                await stack.enter_async_context(TcpProxy(*parse_address(address), delay_s=added / 2000))
                for added in added_ms
            ]
            pipe.send([proxy.address for proxy in started])
            await asyncio.Event().wait()

    run_in_fine_loop(serve())


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of each round."""

    target: Path
    writers: int
    size_bytes: int
    seconds: float


def measure(load: Load, where: Endpoint) -> tuple[float, bool]:
    """The acknowledged rate of one run, and whether it reported that it waited for credit."""
    options = RunOptions(
        endpoint=where,
        size_bytes=load.size_bytes,
        writers=load.writers,
        duration_s=load.seconds,
        force=True,
        json=True,
    )
    lines = io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()):
        summary = run_in_fine_loop(run(options, KernelStorage(load.target), lines))
    states = {json.loads(line)["state"] for line in lines.getvalue().splitlines()}
    return sum(summary.frontiers) / summary.elapsed_s, "waiting for credit" in states


def compare(load: Load, *, rounds: int) -> dict[float, float]:
    """Print the rounds; returns, for each delay, the median of the paired ratios to no delay."""
    ratios: dict[float, list[float]] = {added: [] for added in ADDED_MS}
    with serving() as server, proxies(server.address, ADDED_MS) as addresses:

        def through(address: str) -> Endpoint:
            return replace(server.endpoint, addresses=(parse_address(address),))

        measure(load, through(addresses[0]))  # makes the file, whose cost must not count
        for number in range(rounds):
            # The order rotates, because the first run of a round may find the drive rested.
            order = [ADDED_MS[(number + place) % len(ADDED_MS)] for place in range(len(ADDED_MS))]
            results = {added: measure(load, through(addresses[ADDED_MS.index(added)])) for added in order}
            for added, (rate, waited) in sorted(results.items()):
                ratios[added].append(rate / results[0.0][0])
                print(
                    f"round {number + 1}  +{added:3.1f} ms  {rate:9,.0f}/s  ratio {ratios[added][-1]:.3f}"
                    f"{'  waited for credit' if waited else ''}",
                    flush=True,
                )
    return {added: statistics.median(its_ratios) for added, its_ratios in ratios.items()}


def main() -> None:
    """Print the rounds, and the median ratio for each added round trip."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--directory", type=Path, default=Path("/var/tmp"), help="on the drive to be measured"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--writers", type=int, default=1)
    parser.add_argument("--size", type=int, default=64 << 20, help="bytes of the file")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is not idle (load {load:.1f}): ratios will scatter", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as place:
        medians = compare(
            Load(
                target=Path(place) / "durability.dat",
                writers=arguments.writers,
                size_bytes=arguments.size,
                seconds=arguments.seconds,
            ),
            rounds=arguments.rounds,
        )
    for added, median in medians.items():
        print(f"+{added:3.1f} ms round trip  {median:.3f} of the rate without")


if __name__ == "__main__":
    main()
