"""The machine of the server loses its power: what clients were granted is in the store on its drive."""

from __future__ import annotations

import asyncio
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

from durability.errors import DurabilityError
from durability.formats.plan import Plan
from durability.protocol.messages import Ack, Credit
from durability_lab.kernel_rig.block_rig import BlockRig
from durability_lab.support.postgresql import PostgreSQL
from tests.server.conftest import SECRET, Client

if TYPE_CHECKING:
    from tests.server.conftest import Lab, ServerProcess

CLIENTS = 4
CUTS = 3
ACKS_PER_LIFE = 2000  # of each client
DRIVE_BYTES = 512 << 20

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass(slots=True)
class Acknowledging:
    """A client over all lives of the server: what it said, and what it was granted."""

    plan: Plan
    sent: int = 0
    granted: int = 0

    async def work(self, client: Client, cut_at: int, cut: asyncio.Event) -> None:
        """Acknowledges without end, as far as credit goes; `cut` is set at the operation `cut_at`."""
        while True:
            if self.sent == cut_at:
                cut.set()
            if self.sent < self.granted + self.plan.credit:
                self.sent += 1
                client.say(Ack(frontiers=(self.sent,), control=0))
            if self.sent == self.granted + self.plan.credit or self.sent % 16 == 0:
                self.granted = (await client.get(Credit)).grants[0]

    def note(self, client: Client) -> None:
        """Takes in credit that came before the end."""
        came = (message.grants[0] for message in client.received if isinstance(message, Credit))
        self.granted = max(self.granted, *came, 0)


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


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_what_was_granted_is_on_the_servers_drive(
    lab: Lab, server_process: Callable[[str], Awaitable[ServerProcess]], kind: str
) -> None:
    """At random moments under four clients the drive of the store loses its power and the server dies with
    it. No frontier is above what was acknowledged or below what was granted, and every client goes on."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    clients = [
        Acknowledging(replace(lab.plan(writers=1, credit=256, slots=1024), run=number + 1, target=number + 1))
        for number in range(CLIENTS)
    ]
    with ExitStack() as stack:
        rig = stack.enter_context(BlockRig("honest", "ext4", seed=seed, size_bytes=DRIVE_BYTES))
        url, end_database, start_database = stack.enter_context(_store_on(rig, kind))
        server = await server_process(url)
        connected = [await lab.connect(server.address) for _ in clients]
        for number, (client, connection) in enumerate(zip(clients, connected, strict=True)):
            await connection.begin(client.plan, lab.facts(serial=f"S{number}", uuid=f"uuid-{number}"))
        for _ in range(CUTS):
            cut = asyncio.Event()
            working = [
                asyncio.create_task(
                    client.work(connection, client.sent + chance.randrange(ACKS_PER_LIFE), cut)
                )
                for client, connection in zip(clients, connected, strict=True)
            ]
            await cut.wait()
            await asyncio.to_thread(rig.cut)
            server.end(signal.SIGKILL)
            for client, connection, work in zip(clients, connected, working, strict=True):
                with suppress(DurabilityError, ConnectionError):
                    await work
                await connection.ended()
                client.note(connection)
            await asyncio.to_thread(end_database)
            await asyncio.to_thread(rig.power_on)
            await asyncio.to_thread(rig.mount)
            await asyncio.to_thread(start_database)
            server.start()
            connected = [await lab.connect(server.address) for _ in clients]
            for client, connection in zip(clients, connected, strict=True):
                accepted = await connection.resume(client.plan.run, SECRET)
                assert client.granted <= accepted.frontiers[0] <= client.sent, f"seed {seed}"
                client.granted = accepted.grants[0]
        server.end()
