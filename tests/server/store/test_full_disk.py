"""A store that can no longer be written while clients write."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import make_url

from durability.errors import RefusedError
from durability.protocol import messages

if TYPE_CHECKING:
    from tests.server.conftest import Client, Lab, ServerProcess, SmallDisk


async def _until_told(client: Client) -> tuple[int, ...]:
    """Acknowledges until the server says that it cannot save; the last frontiers that it granted."""
    granted: tuple[int, ...] = (0, 0)
    for seq in range(2, 1000):
        client.say(messages.Ack(frontiers=(seq, seq), control=0))
        news = await client.get(messages.ServerMessage)
        if isinstance(news, messages.Notice):
            assert news.code == "store-unavailable"
            return granted
        assert isinstance(news, messages.Credit)
        granted = news.grants
    raise AssertionError("the server did not notice that it cannot save")


def _integrity(store_url: str) -> str:
    with closing(sqlite3.connect(str(make_url(store_url).database))) as database:
        return str(database.execute("PRAGMA integrity_check").fetchone()[0])


def _log_bytes(store_url: str) -> int:
    return Path(f"{make_url(store_url).database}-wal").stat().st_size


@pytest.mark.usefixtures("no_silence")
async def test_a_full_disk_pauses_credit_and_loses_nothing(small_disk: SmallDisk, lab: Lab) -> None:
    """Without space no credit is given, clients are told, requests refused; with space all is granted."""
    running = await lab.start(small_disk.store_url)
    plan, facts = lab.plan(), lab.facts()
    client = await lab.connect(running.address)
    await client.begin(plan, facts)
    await client.acknowledge(1, 1)
    small_disk.fill()
    granted = await _until_told(client)
    last = granted[0] + 100
    client.say(messages.Ack(frontiers=(last, last), control=0))
    for role, code in (("run", "store-unavailable"), ("verify", "run-live")):
        other = await lab.connect(running.address, role)
        with pytest.raises(RefusedError) as refused:
            if role == "run":
                await other.register(lab.plan(run=9), lab.facts(serial="S9"))
            else:
                await other.fetch(plan.run, facts, end=True)
        assert refused.value.code == code
    case = await lab.exported(running.address, plan.run, lambda case: case.frontiers == (last, last))
    assert case.grants[0] < last
    assert not any(isinstance(message, messages.Credit) for message in client.received)

    small_disk.free()
    assert (await client.get(messages.Credit)).grants == (last, last)
    assert (await client.get(messages.Notice)).code == "store-recovered"
    await running.server.stop()
    assert _integrity(small_disk.store_url) == "ok"
    running = await lab.start(small_disk.store_url)
    case = await lab.exported(running.address, plan.run, lambda case: True)
    assert case.frontiers == (last, last)


async def test_verify_is_refused_what_cannot_be_saved(small_disk: SmallDisk, lab: Lab) -> None:
    """A verify does not begin before the newest frontiers are durable (rule 4)."""
    running = await lab.start(small_disk.store_url)
    plan, facts = lab.plan(), lab.facts()
    client = await lab.connect(running.address)
    await client.begin(plan, facts)
    small_disk.fill()
    await _until_told(client)
    await client.close()
    verifier = await lab.connect(running.address, "verify")
    with pytest.raises(RefusedError) as refused:
        await verifier.fetch(plan.run, facts, end=True)
    assert refused.value.code == "store-unavailable"
    small_disk.free()
    verifier = await lab.connect(running.address, "verify")
    case = await verifier.fetch(plan.run, facts, end=True)
    assert case.frontiers == case.grants


async def test_a_killed_server_on_a_full_disk_comes_back(
    small_disk: SmallDisk, lab: Lab, server_process: Callable[[str], Awaitable[ServerProcess]]
) -> None:
    """Killed while it could not save, the server starts with what it had granted, and goes on."""
    server = await server_process(small_disk.store_url)
    plan = lab.plan()
    client = await lab.connect(server.address)
    await client.begin(plan, lab.facts())
    small_disk.fill()
    granted = await _until_told(client)
    server.end()
    small_disk.free()
    server.start()
    client = await lab.connect(server.address)
    assert (await client.resume(plan.run)).frontiers >= granted
    await client.acknowledge(900, 900)


async def test_a_database_file_that_may_not_grow(
    lab: Lab, server_process: Callable[[str], Awaitable[ServerProcess]], sqlite_url: str
) -> None:
    """A write that fails in any other way than for lack of space is survived in the same way."""
    server = await server_process(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(server.address)
    await client.begin(plan, lab.facts())
    assert server.process is not None
    hard = resource.RLIM_INFINITY
    size = _log_bytes(sqlite_url)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, hard))
    granted = await _until_told(client)
    assert not any(isinstance(message, messages.Credit) for message in client.received)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert (await client.get(messages.Credit)).grants > granted
    server.end()
    assert _integrity(sqlite_url) == "ok"
