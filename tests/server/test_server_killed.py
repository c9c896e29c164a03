"""The server and its database are killed again and again under runs: the verdicts after the cut are right."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from durability.errors import TargetError
from durability.formats.case import Case, case_from_value
from durability.protocol.auth import APPLICATION
from durability.protocol.local_address import socket_name
from durability.protocol.messages import CaseFile, Export, Invite, Invited
from durability.units import format_run, parse_address
from durability_client.link.endpoint import Endpoint, endpoint
from durability_client.link.server_connection import Connection, connect
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import RunSummary, run
from durability_client.verify.verify_command import VerifyOptions, verify
from durability_lab.drive.faults import FlushIgnored, Honest
from durability_lab.simulated_rig.simulated_storage import SimulatedStorage
from durability_lab.support.local_server import join_server
from durability_lab.support.postgresql import PostgreSQL
from tests.armed_runs import armed_runs
from tests.waiting import DEADLINE_S

COMMAND = str(Path(sys.executable).with_name("durability"))
KILLS = int(os.environ.get("DURABILITY_SERVER_KILLS", "10"))
MODELS = (FlushIgnored(), FlushIgnored(), Honest(), Honest())  # of the drives of four clients
OPERATIONS = (0, 1, 2, 10, 100, 300, 1000, 3000)  # of all runs between two kills
LAST_OPERATIONS = 2000  # of each run between the last restart and the cut
SIZE_BYTES = 16 << 20
SYNC_S = 0.001

Client = asyncio.Task[RunSummary]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # starts the server again and again


class KillableServer:
    """`durability serve` as a process that can be killed and started again on the same port and store."""

    def __init__(self, directory: Path, store_url: str) -> None:
        self._directory = directory
        self._store_url = store_url
        self._listen = "127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it; returns when it listens."""
        command = [COMMAND, "serve", "--listen", self._listen]
        command += ["--store", self._store_url]
        environment = {**os.environ, "XDG_STATE_HOME": str(self._directory)}
        log_file = self._directory / "server.log"
        with log_file.open("a") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        found = re.fullmatch(r"Listening on (\S+)\.\n", said)
        assert found, said + log_file.read_text()
        self._listen = found[1]

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            with self._process as process:
                process.kill()

    async def join(self) -> None:
        """Join it, once."""
        _, port = parse_address(self._listen)
        local = Endpoint(local=self._directory / APPLICATION / socket_name(port))
        with closing(await connect(local, "operate")) as operator:
            invited = await operator.request(Invite(role="client", name=""), Invited)
        await join_server(invited, self._listen, self._credential)

    @property
    def endpoint(self) -> Endpoint:
        return endpoint(self._listen, self._credential)

    @property
    def _credential(self) -> Path:
        return self._directory / "credential.json"


async def case_of(query: Connection, run_id: int) -> Case:
    """The run as the server has it in memory."""
    return case_from_value((await query.request(Export(run=run_id), CaseFile)).case)


async def received(query: Connection, runs: Sequence[int]) -> int:
    """How many acknowledgements of `runs` the server has."""
    return sum([sum((await case_of(query, run_id)).frontiers) for run_id in runs])


async def until_acked(
    server: KillableServer, runs: Sequence[int], clients: Sequence[Client], count: int
) -> None:
    """Wait until the server has received `count` acknowledgements more of `runs` together."""
    query = await connect(server.endpoint, "query")
    wanted = await received(query, runs) + count
    async with asyncio.timeout(DEADLINE_S):
        while await received(query, runs) < wanted:
            assert not any(client.done() for client in clients)
    query.close()


async def verdict(server: KillableServer, storage: SimulatedStorage, run_id: int) -> dict[str, Any]:
    """The document of `verify --json`."""
    answer = io.StringIO()
    options = VerifyOptions(
        target=None, endpoint=server.endpoint, run=run_id, attest_cut="the drive was cut", json=True
    )
    await verify(options, storage=storage, out=answer)
    document: dict[str, Any] = json.loads(answer.getvalue())
    return document


async def kill_under_load(
    server: KillableServer,
    runs: Sequence[int],
    clients: Sequence[Client],
    deaths: Sequence[Callable[[], None]],
    chance: random.Random,
) -> None:
    """End the server and its database by `deaths`, in an order and at moments that `chance` draws, and start
    the server again, each time."""
    for _ in range(KILLS):
        await until_acked(server, runs, clients, chance.randrange(1 + chance.choice(OPERATIONS)))
        for die in chance.sample(deaths, len(deaths)):
            await asyncio.to_thread(die)
        await asyncio.to_thread(server.start)


@pytest.fixture
def server(tmp_path: Path, store_url: str) -> Iterator[KillableServer]:
    """A server that has not been started yet; killed at the end."""
    server = KillableServer(tmp_path, store_url)
    yield server
    server.kill()


@pytest.fixture
def deaths(
    server: KillableServer, store_url: str, request: pytest.FixtureRequest
) -> list[Callable[[], None]]:
    """What ends the server, and its PostgreSQL, which is then started again."""
    if store_url.startswith("sqlite"):
        return [server.kill]
    database: PostgreSQL = request.getfixturevalue("postgresql")

    def crash() -> None:
        database.stop()
        database.start()

    return [server.kill, crash]


async def test_a_server_that_is_killed_costs_no_verdict(
    server: KillableServer, deaths: list[Callable[[], None]]
) -> None:
    """After many kills of the server at random acknowledgements of four runs, all go on. A cut makes honest
    drives durable and liars a loss. No run has more than its client acknowledged: each record that the
    server counts as acknowledged is on an honest drive."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    models = {
        SimulatedStorage(model, seed=seed + number, size_bytes=SIZE_BYTES, sync_s=SYNC_S): model
        for number, model in enumerate(MODELS)
    }
    drives = sorted(models, key=lambda drive: str(drive.path))  # as `armed_runs` has them
    await asyncio.to_thread(server.start)
    await server.join()
    options = RunOptions(endpoint=server.endpoint, size_bytes=SIZE_BYTES, destroy_data=True)
    clients = [asyncio.create_task(run(options, drive, io.StringIO())) for drive in drives]
    runs = await armed_runs(server.endpoint, clients)

    await kill_under_load(server, runs, clients, deaths, random.Random(seed))

    for drive, run_id, client in zip(drives, runs, clients, strict=True):
        await until_acked(server, [run_id], [client], LAST_OPERATIONS)
        drive.cut()
        with pytest.raises(TargetError):
            await client
    query = await connect(server.endpoint, "query")
    for run_id in runs:
        case = await case_of(query, run_id)
        assert (case.session_end, case.tainted) == ("target-error", ""), format_run(run_id)
    for drive, run_id in zip(drives, runs, strict=True):
        drive.power_on()
        document = await verdict(server, drive, run_id)
        assert document["verdict"] == ("durable" if models[drive].honest else "loss"), document
        assert document["at_risk"]["ms1000"] > 0, document
