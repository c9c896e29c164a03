"""The server and its database are killed again and again under runs: the verdicts after the cut are right."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from durability.errors import TargetError
from durability.formats.case import Case, case_from_value
from durability.protocol.messages import CaseFile, Export
from durability.units import format_run
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import Connection, connect
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import RunSummary, run
from durability_client.verify.verify_command import VerifyOptions, verify
from durability_lab.drive.faults import FlushIgnored, Honest
from durability_lab.simulated_rig.simulated_storage import SimulatedStorage
from durability_lab.support.postgresql import PostgreSQL
from durability_lab.support.server_fleet import Fleet, FleetServer
from tests.armed_runs import armed_runs
from tests.waiting import DEADLINE_S

KILLS = int(os.environ.get("DURABILITY_SERVER_KILLS", "10"))
MODELS = (FlushIgnored(), FlushIgnored(), Honest(), Honest())  # of the drives of four clients
OPERATIONS = (0, 1, 2, 10, 100, 300, 1000, 3000)  # of all runs between two kills
LAST_OPERATIONS = 2000  # of each run between the last restart and the cut
SIZE_BYTES = 16 << 20
SYNC_S = 0.001

Client = asyncio.Task[RunSummary]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # starts the server again and again


async def case_of(query: Connection, run_id: int) -> Case:
    """The run as the server has it in memory."""
    return case_from_value((await query.request(Export(run=run_id), CaseFile)).case)


async def received(query: Connection, runs: Sequence[int]) -> int:
    """How many acknowledgements of `runs` the server has."""
    return sum([sum((await case_of(query, run_id)).frontiers) for run_id in runs])


async def until_acked(where: Endpoint, runs: Sequence[int], clients: Sequence[Client], count: int) -> None:
    """Wait until the server has received `count` acknowledgements more of `runs` together."""
    query = await connect(where, "query")
    wanted = await received(query, runs) + count
    async with asyncio.timeout(DEADLINE_S):
        while await received(query, runs) < wanted:
            assert not any(client.done() for client in clients)
    query.close()


async def verdict(where: Endpoint, storage: SimulatedStorage, run_id: int) -> dict[str, Any]:
    """The document of `verify --json`."""
    answer = io.StringIO()
    options = VerifyOptions(
        target=None, endpoint=where, run=run_id, attest_cut="the drive was cut", json=True
    )
    await verify(options, storage=storage, out=answer)
    document: dict[str, Any] = json.loads(answer.getvalue())
    return document


async def kill_under_load(
    server: FleetServer,
    where: Endpoint,
    runs: Sequence[int],
    clients: Sequence[Client],
    *,
    deaths: Sequence[Callable[[], None]],
    chance: random.Random,
) -> None:
    """End the server and its database by `deaths`, in an order and at moments that `chance` draws, and start
    the server again, each time."""
    for _ in range(KILLS):
        await until_acked(where, runs, clients, chance.randrange(1 + chance.choice(OPERATIONS)))
        for die in chance.sample(deaths, len(deaths)):
            await asyncio.to_thread(die)
        await asyncio.to_thread(server.start)


@pytest.fixture
def fleet(store_url: str) -> Iterator[Fleet]:
    """One server, not started yet; killed at the end."""
    with tempfile.TemporaryDirectory(prefix="durability-killed-") as directory:
        fleet = Fleet(store_url, Path(directory), count=1)
        yield fleet
        fleet.end()


@pytest.fixture
def deaths(fleet: Fleet, store_url: str, request: pytest.FixtureRequest) -> list[Callable[[], None]]:
    """What ends the server, and its PostgreSQL, which is then started again."""
    (server,) = fleet.servers
    if store_url.startswith("sqlite"):
        return [server.end]
    database: PostgreSQL = request.getfixturevalue("postgresql")

    def crash() -> None:
        database.stop()
        database.start()

    return [server.end, crash]


async def test_a_server_that_is_killed_costs_no_verdict(
    fleet: Fleet, deaths: list[Callable[[], None]]
) -> None:
    """Four runs survive many kills of the server. After a cut, honest drives are durable and lying drives a
    loss. Every record that the server counts as acknowledged is on an honest drive."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    models = {
        SimulatedStorage(model, seed=seed + number, size_bytes=SIZE_BYTES, sync_s=SYNC_S): model
        for number, model in enumerate(MODELS)
    }
    drives = sorted(models, key=lambda drive: str(drive.path))  # as `armed_runs` has them
    where = await fleet.start()
    options = RunOptions(endpoint=where, size_bytes=SIZE_BYTES, destroy_data=True)
    clients = [asyncio.create_task(run(options, drive, io.StringIO())) for drive in drives]
    runs = await armed_runs(where, clients)

    await kill_under_load(fleet.servers[0], where, runs, clients, deaths=deaths, chance=random.Random(seed))

    for drive, run_id, client in zip(drives, runs, clients, strict=True):
        await until_acked(where, [run_id], [client], LAST_OPERATIONS)
        drive.cut()
        with pytest.raises(TargetError):
            await client
    query = await connect(where, "query")
    for run_id in runs:
        case = await case_of(query, run_id)
        assert (case.session_end, case.tainted) == ("target-error", ""), format_run(run_id)
    for drive, run_id in zip(drives, runs, strict=True):
        drive.power_on()
        document = await verdict(where, drive, run_id)
        assert document["verdict"] == ("durable" if models[drive].honest else "loss"), document
        assert document["at_risk"]["ms1000"] > 0, document
