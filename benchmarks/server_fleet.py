"""Test several servers on one PostgreSQL while servers are killed and PostgreSQL is restarted.

    python benchmarks/server_fleet.py [--servers 3] [--clients 900] [--processes 2] [--minutes 10]
        [--kill-every 20] [--restarts 2] [--pace 1]

Each client is the product's own link to a server, with the product's heartbeats. It has one run, which
acknowledges every `--pace` seconds. Every `--kill-every` seconds one server, in turn, is killed with SIGKILL
and started again 3 s later. In between, PostgreSQL is stopped at once and started again `--restarts` times.

The benchmark prints how long clients had no server: from the loss of their connection, or from the return of
PostgreSQL, until they had resumed. Then every run in the store is compared with its client. A frontier must
not be above the client's acknowledgements or below its grants. Half of the runs are ended by any server, as
`verify` ends them; half are stopped by their client. The exit code is 1 if a frontier is wrong, a client has
no server at the end, or a client was without a server for more than 5 s.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from serving import RUNS_OF_ONE

from durability.errors import DurabilityError
from durability.formats.case import Case
from durability.units import counted
from durability_client.link.endpoint import Endpoint
from durability_lab.support.postgresql import PostgreSQL, postgresql_server
from durability_lab.support.server_fleet import AckingClient, Fleet, case_at, contradiction

RESUMED_S = 5.0
DOWN_S = 3.0  # time until a killed server is started again
STARTED_AT_ONCE = 16
SETTLED_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The work of one process: `count` runs, numbered from `first`."""

    where: tuple[Endpoint, ...]  # the joined clients, used in turn
    first: int
    count: int
    pace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of one process of clients."""

    # Start and end of each time in which a client had no server, in s of CLOCK_MONOTONIC.
    outages: tuple[tuple[float, float], ...]
    acks: int
    wrong: tuple[str, ...]  # contradictions between store and clients, as sentences


def clients_process(load: Load, pipe: Connection) -> None:
    """Begin the runs, report that, go on until told to stop, and send the outcome."""
    pipe.send(asyncio.run(clients(load, pipe)))


async def clients(load: Load, pipe: Connection) -> Outcome:
    """Run the clients of one process."""
    every = [
        AckingClient(number, pace_s=load.pace_s) for number in range(load.first, load.first + load.count)
    ]
    places = asyncio.Semaphore(STARTED_AT_ONCE)

    async def begin(client: AckingClient) -> None:
        where = load.where[client.plan.run % len(load.where)]
        turn = client.plan.run % len(where.addresses)
        async with places:
            await client.begin(replace(where, addresses=(*where.addresses[turn:], *where.addresses[:turn])))

    await asyncio.gather(*map(begin, every))
    for client in every:
        client.link.outages.clear()
    pipe.send(None)
    await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
    with suppress(TimeoutError):
        async with asyncio.timeout(SETTLED_S):
            while any(client.link.trouble for client in every):  # noqa: ASYNC110 - the links have no event
                await asyncio.sleep(0.05)
    wrong = [
        f"run {client.plan.run:016x} has no server: {client.link.trouble}"
        for client in every
        if client.link.trouble
    ]
    acks = sum(client.acked for client in every)
    checked = await asyncio.gather(*(check(client, load.where[0], places) for client in every))
    return Outcome(
        outages=tuple((one.since_s, one.until_s) for client in every for one in client.link.outages),
        acks=acks,
        wrong=(*wrong, *filter(None, checked)),
    )


async def check(client: AckingClient, where: Endpoint, places: asyncio.Semaphore) -> str:
    """Ends the run, and compares the store's case with the client. Returns the contradiction, or ""."""
    turn = client.plan.run // 2 % len(where.addresses)
    elsewhere = replace(where, addresses=(where.addresses[turn],))
    async with places:
        try:
            if client.plan.run % 2:
                await client.finish()
                case = await case_at(elsewhere, client.plan.run)
            else:
                await client.vanish()
                case = await ended(elsewhere, client)
        except DurabilityError as error:
            return f"run {client.plan.run:016x}: {error}"
    return contradiction(case, granted=client.granted, acked=client.acked)


async def ended(where: Endpoint, client: AckingClient) -> Case:
    """The case as `verify` gets it. A server may not have noticed yet that the client is gone."""
    async with asyncio.timeout(SETTLED_S):
        while True:
            try:
                return await case_at(where, client.plan.run, end=True)
            except DurabilityError:
                await asyncio.sleep(0.2)


async def start(fleet: Fleet, runs: int) -> tuple[Endpoint, ...]:
    """Start the servers, and join as many clients as the runs need. The clients are operators, so any of them
    may query any run."""
    first = await fleet.start()
    names = (f"lab-{number}" for number in range(2, -(-runs // RUNS_OF_ONE) + 1))
    return first, *[await fleet.join(name) for name in names]


@contextmanager
def loads(where: tuple[Endpoint, ...], options: argparse.Namespace) -> Iterator[list[Connection]]:
    """Start the processes of the clients; yields their pipes once all runs are armed."""
    context = multiprocessing.get_context("spawn")
    share, rest = divmod(options.clients, options.processes)
    pipes, processes, first = [], [], 1
    for number in range(options.processes):
        ours, theirs = context.Pipe()
        load = Load(where=where, first=first, count=share + (number < rest), pace_s=options.pace)
        first += load.count
        process = context.Process(target=clients_process, args=(load, theirs), daemon=True)
        process.start()
        pipes.append(ours)
        processes.append(process)
    try:
        for pipe in pipes:
            pipe.recv()
        yield pipes
    finally:
        for process in processes:
            process.kill()
            process.join()


async def trouble(fleet: Fleet, database: PostgreSQL, options: argparse.Namespace) -> list[float]:
    """Kills servers in turn and restarts PostgreSQL; returns the times at which PostgreSQL was back."""
    begun_s = time.monotonic()
    lasts_s = options.minutes * 60
    restarts = [lasts_s * (number + 1) / (options.restarts + 1) for number in range(options.restarts)]
    back_s: list[float] = []
    next_kill_s, turn = options.kill_every, 0
    while (now_s := time.monotonic() - begun_s) < lasts_s:
        if restarts and now_s >= restarts[0]:
            restarts.pop(0)
            await asyncio.to_thread(database.stop)
            await asyncio.to_thread(database.start)
            back_s.append(time.monotonic())
            print(f"{now_s:5.0f} s  PostgreSQL restarted", flush=True)
        elif now_s >= next_kill_s:
            next_kill_s += options.kill_every
            server = fleet.servers[turn % len(fleet.servers)]
            turn += 1
            await asyncio.to_thread(server.end)
            await asyncio.sleep(DOWN_S)
            await asyncio.to_thread(server.start)
            print(f"{now_s:5.0f} s  {server.address} killed", flush=True)
        await asyncio.sleep(0.1)
    return back_s


def without(outage: tuple[float, float], back_s: list[float]) -> float:
    """Duration of an outage, in s, from the time at which PostgreSQL was last back, if that is in it."""
    since_s, until_s = outage
    return until_s - max([since_s, *(back for back in back_s if since_s < back < until_s)])


def report(outcomes: list[Outcome], back_s: list[float], options: argparse.Namespace) -> int:
    """Prints the figures; returns the exit code."""
    times = sorted(without(outage, back_s) for outcome in outcomes for outage in outcome.outages)
    wrong = [text for outcome in outcomes for text in outcome.wrong]
    late = sum(one > RESUMED_S for one in times)
    print(f"{counted(options.clients, 'client')}, {counted(sum(one.acks for one in outcomes), 'operation')}")
    if times:
        p50, p99 = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
        print(
            f"{counted(len(times), 'lost connection')}: without a server p50 {p50:.2f} s, p99 {p99:.2f} s,"
            f" at most {times[-1]:.2f} s; {late} for more than {RESUMED_S:g} s"
        )
    print(f"{counted(len(wrong), 'run')} with a frontier that cannot be, or without a server")
    for text in wrong[:20]:
        print(f"  {text}")
    return int(bool(wrong) or late > 0)


def main() -> int:
    """Prints events and figures; returns 1 if a frontier is wrong, or a client was late or has no server."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--servers", type=int, default=3)
    arguments.add_argument("--clients", type=int, default=900)
    arguments.add_argument("--processes", type=int, default=2)
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--kill-every", type=float, default=20.0)
    arguments.add_argument("--restarts", type=int, default=2)
    arguments.add_argument("--pace", type=float, default=1.0)
    options = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="durability-fleet-") as directory,
        postgresql_server() as database,
    ):
        fleet = Fleet(database.new_database(), Path(directory), count=options.servers)
        try:
            where = asyncio.run(start(fleet, options.clients))
            with loads(where, options) as pipes:
                print("all runs are armed", flush=True)
                back_s = asyncio.run(trouble(fleet, database, options))
                for pipe in pipes:
                    pipe.send(None)
                outcomes = [pipe.recv() for pipe in pipes]
        finally:
            fleet.end()
    return report(outcomes, back_s, options)


if __name__ == "__main__":
    sys.exit(main())
