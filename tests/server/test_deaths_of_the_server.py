"""The server dies, alone or with its machine's power: what clients were granted is in its store, and the
verdicts on runs that went on meanwhile are right."""

from __future__ import annotations

import asyncio
import io
import os
import pwd
import random
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from durability.errors import DurabilityError, TargetError
from durability.formats.plan import Plan
from durability.protocol.messages import Ack, Credit
from durability_client.link.endpoint import Endpoint
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import RunSummary, run
from durability_lab.drive.faults import FlushIgnored, Honest
from durability_lab.kernel_rig.block_rig import BlockRig
from durability_lab.simulated_rig.simulated_storage import SimulatedStorage
from durability_lab.support.postgresql import PostgreSQL
from tests.armed_runs import armed_runs
from tests.server.conftest import SECRET, Client
from tests.server.test_server_killed import LAST_OPERATIONS, SIZE_BYTES, SYNC_S, until_acked, verdict

if TYPE_CHECKING:
    from tests.server.conftest import Lab, ServerProcess

CLIENTS = 4
CUTS = int(os.environ.get("DURABILITY_SERVER_CUTS", "3"))
KILLS = int(os.environ.get("DURABILITY_SERVER_KILLS", "5"))
ACKS_PER_LIFE = 2000  # of each client
RUN_ACKS_PER_LIFE = 100  # at least, of both runs together
DRIVE_BYTES = 512 << 20

StartServer = Callable[[str], Awaitable["ServerProcess"]]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass(slots=True)
class Acknowledging:
    """A client over all lives of the server: what it said, and what it was granted."""

    plan: Plan
    sent: int = 0
    granted: int = 0

    async def work(self, client: Client, seq: int, reached: asyncio.Event) -> None:
        """Acknowledges without end, as far as credit goes; `reached` is set at the operation `seq`."""
        while True:
            if self.sent == seq:
                reached.set()
            if self.sent < self.granted + self.plan.credit:
                self.sent += 1
                client.say(Ack(frontiers=(self.sent,), control=0))
            if self.sent == self.granted + self.plan.credit or self.sent % 16 == 0:
                self.granted = (await client.get(Credit)).grants[0]

    def note(self, client: Client) -> None:
        """Takes in credit that came before the end."""
        came = (message.grants[0] for message in client.received if isinstance(message, Credit))
        self.granted = max(self.granted, *came, 0)


@dataclass(slots=True, kw_only=True)
class RunsOnDrives:
    """Two runs of the product over all lives of the server, one on a drive that ignores flushes and one on an
    honest drive."""

    where: Endpoint
    drives: tuple[SimulatedStorage, ...]
    clients: list[asyncio.Task[RunSummary]]
    runs: list[int]

    async def acknowledge(self) -> None:
        """Returns once the server has received more acknowledgements of these runs."""
        await until_acked(self.where, self.runs, self.clients, RUN_ACKS_PER_LIFE)

    async def judge(self) -> list[str]:
        """Cuts the power of both drives under load, and returns the verdicts."""
        for drive, run_id, client in zip(self.drives, self.runs, self.clients, strict=True):
            await until_acked(self.where, [run_id], [client], LAST_OPERATIONS)
            drive.cut()
            with pytest.raises(TargetError):
                await client
            drive.power_on()
        documents = [
            await verdict(self.where, drive, run_id)
            for drive, run_id in zip(self.drives, self.runs, strict=True)
        ]
        return [document["verdict"] for document in documents]


async def _begin_runs(lab: Lab, server: ServerProcess, *, seed: int) -> RunsOnDrives:
    """Begins them, as the client that has joined the server; returns once both are armed."""
    me = lab.members[server.address]
    where = Endpoint(
        addresses=(server.address,), fingerprint=me.fingerprint, client=me.client, secret=me.secret
    )
    drives = tuple(
        SimulatedStorage(model, seed=seed + number, size_bytes=SIZE_BYTES, sync_s=SYNC_S)
        for number, model in enumerate((FlushIgnored(), Honest()))  # in the order of their paths
    )
    options = RunOptions(endpoint=where, size_bytes=SIZE_BYTES, destroy_data=True)
    clients = [asyncio.create_task(run(options, drive, io.StringIO())) for drive in drives]
    runs = await armed_runs(where, clients)
    return RunsOnDrives(where=where, drives=drives, clients=clients, runs=runs)


@contextmanager
def _store_on(rig: BlockRig, kind: str) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """The URL of a store on the drive, what ends its database as a power cut does, and what starts it."""
    if kind == "sqlite":
        yield f"sqlite:///{rig.mount_point}/store.sqlite", lambda: None, lambda: None
        return
    home = rig.mount_point / "postgresql"
    home.mkdir()
    account = pwd.getpwnam("postgres")
    os.chown(home, account.pw_uid, account.pw_gid)
    rig.mount_point.parent.chmod(0o711)
    database = PostgreSQL(home)
    os.sync()
    database.start()

    def boot() -> None:
        for lock in ("data/postmaster.pid", ".s.PGSQL.5432.lock"):  # of the boot before
            Path(home, lock).unlink(missing_ok=True)
        database.start()

    try:
        yield database.new_database(), database.kill, boot
    finally:
        database.kill()


async def _outlived(
    lab: Lab,
    server: ServerProcess,
    *,
    deaths: int,
    die: Callable[[], None],
    boot: Callable[[], None],
    beside: RunsOnDrives | None = None,
) -> None:
    """Four clients over so many deaths of the server at random moments, each by `die` and followed by `boot`.
    No frontier is above what was acknowledged or below what was granted, and every client goes on. Runs
    `beside` them have gone on too before each death."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    plan = lab.plan(writers=1, credit=256, slots=1024)
    clients = [Acknowledging(replace(plan, run=number + 1, target=number + 1)) for number in range(CLIENTS)]
    connected = [await lab.connect(server.address) for _ in clients]
    for number, (client, connection) in enumerate(zip(clients, connected, strict=True)):
        await connection.begin(client.plan, lab.facts(serial=f"S{number}", uuid=f"uuid-{number}"))
    for _ in range(deaths):
        reached = asyncio.Event()
        working = [
            asyncio.create_task(
                client.work(connection, client.sent + chance.randrange(ACKS_PER_LIFE), reached)
            )
            for client, connection in zip(clients, connected, strict=True)
        ]
        if beside is not None:
            await beside.acknowledge()
        await reached.wait()
        await asyncio.to_thread(die)
        for client, connection, work in zip(clients, connected, working, strict=True):
            with suppress(DurabilityError, ConnectionError):
                await work
            await connection.ended()
            client.note(connection)
        await asyncio.to_thread(boot)
        server.start()
        connected = [await lab.connect(server.address) for _ in clients]
        for client, connection in zip(clients, connected, strict=True):
            accepted = await connection.resume(client.plan.run, SECRET)
            assert client.granted <= accepted.frontiers[0] <= client.sent, f"seed {seed}"
            client.granted = accepted.grants[0]


@pytest.mark.usefixtures("rig_machine")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_power_cuts_of_the_servers_machine(lab: Lab, server_process: StartServer, kind: str) -> None:
    """The drive of the store loses its power, and the server and its database die with it. After a cut of
    their own drives, the run on an honest one is durable and the run on a lying one a loss."""
    drive_seed = random.randrange(1 << 32)
    print(f"seed of the drive {drive_seed}")
    with ExitStack() as stack:
        rig = stack.enter_context(BlockRig("honest", "ext4", seed=drive_seed, size_bytes=DRIVE_BYTES))
        url, end_database, start_database = stack.enter_context(_store_on(rig, kind))
        server = await server_process(url)

        def die() -> None:
            rig.cut()
            server.end(signal.SIGKILL)
            end_database()

        def boot() -> None:
            rig.power_on()
            rig.mount()
            start_database()

        beside = await _begin_runs(lab, server, seed=drive_seed)
        await _outlived(lab, server, deaths=CUTS, die=die, boot=boot, beside=beside)
        assert await beside.judge() == ["loss", "durable"]
        server.end()


async def test_kills_of_the_server(lab: Lab, server_process: StartServer, store_url: str) -> None:
    """SIGKILL, again and again."""
    server = await server_process(store_url)
    await _outlived(lab, server, deaths=KILLS, die=lambda: _kill(server), boot=lambda: None)


def _kill(server: ServerProcess) -> None:
    server.end(signal.SIGKILL)
