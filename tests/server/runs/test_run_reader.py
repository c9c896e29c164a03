"""Reading runs: many at the same time cost few transactions, and one that cannot be read stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Connection, Engine, event, update

from durability.errors import AuthenticationError, DurabilityError, FormatError, RefusedError
from durability.protocol.messages import Hello
from durability_server.access.authentication import Authentication
from durability_server.runs.run import Run
from durability_server.runs.run_reader import RunReader
from durability_server.runs.run_registry import Registry
from durability_server.store import tables
from durability_server.store.joint_reads import TOGETHER_MAX
from durability_server.store.records import RunHead
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread
from tests.server.store.conftest import StoreFixture
from tests.waiting import DEADLINE_S

if TYPE_CHECKING:
    from tests.server.conftest import Lab


@pytest.fixture
def filled(store_url: str, lab: Lab) -> Iterator[StoreFixture]:
    """A store with 40 runs; the two writers of run n have acknowledged n and 2 n operations."""
    store = Store(store_url)
    store.open()
    fixture = StoreFixture(store, lab)
    for run in range(1, 41):
        fixture.register(run, force=True)
        fixture.arm(run)
        fixture.save(run, frontiers=(run, 2 * run))
    yield fixture
    store.close()


@contextmanager
def _transactions() -> Iterator[list[None]]:
    """One entry for each transaction that begins in the block."""
    begun: list[None] = []

    def note(_: Connection) -> None:
        begun.append(None)

    event.listen(Engine, "begin", note)
    try:
        yield begun
    finally:
        event.remove(Engine, "begin", note)


async def _read(reader: RunReader, *run_ids: int) -> list[Run | BaseException]:
    async with asyncio.timeout(DEADLINE_S):
        return await asyncio.gather(*map(reader.read, run_ids), return_exceptions=True)


async def test_runs_wanted_at_the_same_time_are_read_together(filled: StoreFixture) -> None:
    """Each caller gets its own run, in a few transactions for all."""
    thread = StoreThread()
    reader = RunReader(filled.store, thread, boot_id="boot")
    with _transactions() as begun:
        runs = await _read(reader, *range(1, 41))
    frontiers = [run.frontiers.acked for run in runs if isinstance(run, Run)]
    assert frontiers == [(run, 2 * run) for run in range(1, 41)]
    assert len(begun) == -(-40 // TOGETHER_MAX)

    filled.save(7, frontiers=(70, 71))
    (again,) = await _read(reader, 7)
    assert isinstance(again, Run)
    assert again.frontiers.acked == (70, 71)
    await thread.close(lambda: None)


async def test_clients_that_come_at_the_same_time_are_looked_up_together(filled: StoreFixture) -> None:
    """Who they are, and whose the run is that each resumes: a few transactions each for all."""
    thread = StoreThread()
    authentication = Authentication(filled.store, thread)
    registry = Registry(filled.store, thread, boot_id="boot")
    several = [
        Hello(versions=(4,), purpose="run", client=f"c{number}", secret=bytes(32), software="")
        for number in range(40)
    ]
    with _transactions() as begun:
        async with asyncio.timeout(DEADLINE_S):
            callers = (authentication.caller(hello, local=False) for hello in several)
            found = await asyncio.gather(*callers, return_exceptions=True)
            assert all(isinstance(error, AuthenticationError) for error in found)
            *heads, unknown = await asyncio.gather(
                *map(registry.head, [*range(1, 40), 99]), return_exceptions=True
            )
    assert [head.run for head in heads if isinstance(head, RunHead)] == [*range(1, 40)]
    assert isinstance(unknown, RefusedError)
    assert len(begun) == 2 * -(-40 // TOGETHER_MAX)
    await thread.close(lambda: None)


@pytest.mark.parametrize("column", ["plan", "armed"])
async def test_a_run_that_cannot_be_read_stops_no_other(filled: StoreFixture, column: str) -> None:
    """An unknown run and a run with a broken row are errors of their own callers only."""
    thread = StoreThread()
    reader = RunReader(filled.store, thread, boot_id="boot")
    with filled.store._database.transaction() as db:
        broken_run = tables.runs.c.run == f"{3:016x}"
        db.execute(update(tables.runs).where(broken_run).values({column: b"\xc1broken"}))
    good, broken, unknown, last = await _read(reader, 2, 3, 99, 4)
    assert isinstance(good, Run)
    assert isinstance(broken, FormatError)
    assert isinstance(unknown, RefusedError)
    assert unknown.code == "run-unknown"
    assert isinstance(last, Run)
    await thread.close(lambda: None)


async def test_a_store_that_fails_is_each_callers_error(filled: StoreFixture) -> None:
    """Nobody waits for ever, and the reader works again once the store does."""
    thread = StoreThread()
    reader = RunReader(filled.store, thread, boot_id="boot")
    with filled.store._database.transaction() as db:
        db.exec_driver_sql("ALTER TABLE events RENAME TO gone")
    failed = await _read(reader, 1, 2)
    assert all(isinstance(error, DurabilityError) for error in failed)
    with filled.store._database.transaction() as db:
        db.exec_driver_sql("ALTER TABLE gone RENAME TO events")
    (run,) = await _read(reader, 1)
    assert isinstance(run, Run)
    await thread.close(lambda: None)


async def test_a_caller_that_goes_takes_nothing_from_the_others(filled: StoreFixture) -> None:
    """A cancelled caller does not cancel the read that another one waits for."""
    thread = StoreThread()
    reader = RunReader(filled.store, thread, boot_id="boot")
    gone, stays = (asyncio.create_task(reader.read(5)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    async with asyncio.timeout(DEADLINE_S):
        assert (await stays).frontiers.acked == (5, 10)
    assert gone.cancelled()
    await thread.close(lambda: None)


async def test_no_read_begins_after_the_store_has_closed(filled: StoreFixture) -> None:
    """A server that stops while many clients resume ends the reads under way, and begins no other."""
    thread = StoreThread()
    reader = RunReader(filled.store, thread, boot_id="boot")
    reads = [asyncio.create_task(reader.read(run)) for run in range(1, 41)]
    await asyncio.sleep(0)
    with _transactions() as begun:
        async with asyncio.timeout(DEADLINE_S):
            await thread.close(lambda: begun.append(None))
            closed_at = len(begun)
            results = await asyncio.gather(*reads, return_exceptions=True)
    assert len(begun) == closed_at
    assert {type(result) for result in results} <= {Run, RuntimeError}
