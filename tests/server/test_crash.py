"""The server killed at any instant, stopped in an orderly way, and robbed of its database."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from durability import limits
from durability.errors import StoreError
from durability.formats.packing import Value
from durability.protocol import messages
from durability_server.store.store import Store
from tests.waiting import DEADLINE_S, standstills

if TYPE_CHECKING:
    from durability_lab.support.postgresql import PostgreSQL
    from tests.server.conftest import Lab, ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_silence")]  # starts servers again and again

KILLS = 8
ACKS_PER_LIFE = 400


@pytest.mark.slow
async def test_a_killed_server_goes_on_where_it_was(
    lab: Lab, server_process: Callable[[str], Awaitable[ServerProcess]], store_url: str
) -> None:
    """Killed at random instants under load, the server comes back with the run; no frontier is above what was
    acknowledged or below what was granted, and the client goes on."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    server = await server_process(store_url)
    plan = lab.plan(writers=1, credit=256, slots=1024)
    client = await lab.connect(server.address)
    await client.begin(plan, lab.facts())
    sent = granted = 0
    for _ in range(KILLS):
        kill_at = sent + chance.randrange(ACKS_PER_LIFE)
        async with asyncio.timeout(DEADLINE_S):
            while sent < kill_at:
                if sent < granted + plan.credit:
                    sent += 1
                    client.say(messages.Ack(frontiers=(sent,), control=0))
                if sent == granted + plan.credit or chance.random() < 0.1:
                    granted = (await client.get(messages.Credit)).grants[0]
        server.end(signal.SIGKILL)
        await client.ended()
        granted = max([granted, *(m.grants[0] for m in client.received if isinstance(m, messages.Credit))])
        server.start()
        asker = await lab.connect(server.address, "query")
        case = await asker.export(plan.run)
        assert granted <= case.frontiers[0] <= sent, f"seed {seed}"
        assert case.session_end == "server-down", f"seed {seed}"
        assert case.tainted == "", f"seed {seed}"
        client = await lab.connect(server.address)
        granted = (await client.resume(plan.run)).grants[0]
    await client.acknowledge(sent + 1)


async def test_a_killed_server_keeps_every_run(
    lab: Lab, server_process: Callable[[str], Awaitable[ServerProcess]], store_url: str
) -> None:
    """Every registration, arming and verdict that the server answered before it was killed is still stored
    afterwards."""
    server = await server_process(store_url)
    for run in (1, 2, 3):
        client = await lab.connect(server.address)
        await client.begin(lab.plan(run=run), lab.facts(serial=f"S{run}"))
    await client.acknowledge(5, 6)
    await client.ask(messages.Stop(frontiers=(7, 6), control=0, statistics={}), messages.Stopped)
    await client.close()
    verifier = await lab.connect(server.address, "verify")
    await verifier.fetch(3, lab.facts(serial="S3"), end=True)
    document: dict[str, Value] = {
        "verdict": "inconclusive",
        "cut": {"class": "none"},
        "at_risk": {"ms1000": 0},
        "reasons": [],
    }
    await verifier.ask(messages.GiveVerdict(run=3, document=document), messages.Stored)
    server.end(signal.SIGKILL)
    server.start()
    asker = await lab.connect(server.address, "query")
    rows = (await asker.ask(messages.List(limit=10), messages.Listing)).rows
    found = [(row["state"], row["session_end"], row["verdict"], row["acked"]) for row in rows]
    assert found == [
        ("ended", "stop", "inconclusive", 13),
        ("armed", "server-down", "", 0),
        ("armed", "server-down", "", 0),
    ]


async def test_a_terminated_server_ends_in_time(
    lab: Lab, server_process: Callable[[str], Awaitable[ServerProcess]], sqlite_url: str
) -> None:
    """SIGTERM ends the server with success, with an idle client, one that does not read, and a stranger."""
    server = await server_process(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(server.address)
    await client.begin(plan, lab.facts())
    client.say(messages.Ack(frontiers=(8, 9), control=0))
    await lab.exported(server.address, plan.run, lambda case: case.frontiers == (8, 9))
    deaf = await lab.connect(server.address, "query")
    deaf.vanish()
    _, stranger = await asyncio.open_connection(*server.address)
    loop = asyncio.get_running_loop()
    before = loop.time()
    async with standstills() as stood_s:
        assert await loop.run_in_executor(None, server.end, signal.SIGTERM) == 0, server.log
        took_s = loop.time() - before - stood_s()
    assert took_s < limits.DEAD_PEER_NS / 1e9  # with which each of them would be given up
    stranger.close()
    assert "Traceback" not in server.log
    server.start()
    case = await lab.exported(server.address, plan.run, lambda case: True)
    assert (case.frontiers, case.session_end) == ((8, 9), "server-down")


async def test_a_database_that_crashes_costs_no_frontier(
    lab: Lab, postgresql: PostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    """While PostgreSQL is down no credit is given and the client is told; then everything is granted."""
    running = await lab.start(postgresql.new_database())
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(1, 1)
    postgresql.stop()
    try:
        client.say(messages.Ack(frontiers=(2, 2), control=0))
        notice = await client.get(messages.Notice)
        assert notice.code == "store-unavailable"
        assert not any(isinstance(message, messages.Credit) for message in client.received)
        client.say(messages.Ack(frontiers=(3, 3), control=0))
    finally:
        await asyncio.to_thread(postgresql.start)  # heartbeats go on, however long that takes
    assert (await client.get(messages.Credit)).grants == (3, 3)
    assert (await client.get(messages.Notice)).code == "store-recovered"
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 1


async def test_a_postgresql_that_may_lose_commits_is_refused(postgresql: PostgreSQL) -> None:
    """A database server with fsync=off cannot hold evidence."""
    url = postgresql.new_database()
    postgresql.stop("fast")
    postgresql.start(fsync="off")
    try:
        store = Store(url)
        with pytest.raises(StoreError, match="fsync=off"):
            store.open()
        store.close()
    finally:
        postgresql.stop("fast")
        postgresql.start()
