"""A database that has lost what was durable, as after a failover to a standby that lacked the last commits:
what a server still has of a run in memory is durable again before it grants anything, or the run is given
up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, event

from durability.errors import RefusedError
from durability.formats.documents import to_value
from durability_server import clock
from durability_server.runs.committer import Committer
from durability_server.runs.run import Run
from durability_server.store.records import MovedError, Unsaved
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread
from durability_server.store.target_keys import series_key, target_keys
from tests.server.standby import Standby
from tests.waiting import DEADLINE_S

if TYPE_CHECKING:
    from tests.server.store.conftest import StoreFixture

RUN = 1


def _take(store: Store) -> Run:
    run = Run(store.load(RUN), boot_id="boot")
    run.attached(clock.now_ns(), "test")
    return run


def _save(store: Store, run: Run) -> dict[int, Unsaved]:
    snapshot = run.snapshot(timeline=True)
    unsaved = store.save([snapshot])
    if not unsaved:
        run.saved(snapshot, clock.now_ns())
    return unsaved


def _arm(fixture: StoreFixture, run: Run) -> None:
    facts = fixture.lab.facts()
    stored = replace(
        run.stored,
        armed=to_value(facts),
        keys=target_keys(facts),
        series=series_key(run.plan, facts),
        snapshot=run.snapshot(timeline=False),
    )
    fixture.store.arm(stored)
    run.arm(clock.now_ns(), stored)


def _acknowledge(run: Run, seq: int) -> None:
    at_ns = clock.now_ns()
    run.heard(at_ns, ran_ns=at_ns)
    run.acknowledge(at_ns, (seq,) * run.plan.writers, 0)


def test_a_run_whose_arming_is_gone_is_stored_whole(store_fixture: StoreFixture) -> None:
    """A frontier is granted only when the store has the arming again, with the drives, the series and all
    events: after the cut the run is judged as armed."""
    store = store_fixture.store
    store_fixture.register(RUN)
    run = _take(store)
    _save(store, run)
    standby = Standby(store)
    _arm(store_fixture, run)
    _acknowledge(run, 5)
    _save(store, run)
    before = store.load(RUN)
    standby.take_over()
    assert store.load(RUN).armed is None
    _acknowledge(run, 7)
    assert _save(store, run) == {RUN: "behind"}
    assert run.frontiers.grants == (5, 5)
    run.gone_back()
    assert _save(store, run) == {}
    assert run.frontiers.grants == (7, 7)
    found = store.load(RUN)
    assert found.snapshot.frontiers == (7, 7)
    assert found.snapshot.events == before.snapshot.events == tuple(run.events)
    assert replace(found, snapshot=before.snapshot) == before
    assert Run(found, boot_id="boot").state == "armed"
    assert [row["verdict"] for row in store.drive_listing(10, client=None)] == [""]
    _acknowledge(run, 8)
    assert _save(store, run) == {}
    assert run.snapshot(timeline=False).whole is None


def test_a_run_as_it_was_before_it_was_taken_is_stored_whole(store_fixture: StoreFixture) -> None:
    """The store has lost all that this server saved of it, and nothing that it had loaded."""
    store = store_fixture.store
    store_fixture.register(RUN)
    standby = Standby(store)
    run = _take(store)
    _save(store, run)
    _arm(store_fixture, run)
    standby.take_over()
    _acknowledge(run, 5)
    assert _save(store, run) == {RUN: "behind"}
    run.gone_back()
    assert _save(store, run) == {}
    assert store.load(RUN).armed is not None


def test_a_commit_that_is_heard_of_late_hides_no_arming_that_is_gone(store_fixture: StoreFixture) -> None:
    """A commit of many runs takes a while to tell each of them. One that is armed meanwhile was saved later:
    a store that lacks the arming alone is behind."""
    store = store_fixture.store
    store_fixture.register(RUN)
    run = _take(store)
    before = run.snapshot(timeline=True)
    assert store.save([before]) == {}
    standby = Standby(store)
    _arm(store_fixture, run)
    run.saved(before, clock.now_ns())
    standby.take_over()
    assert _save(store, run) == {RUN: "behind"}


def test_the_mark_of_another_server_hides_nothing(store_fixture: StoreFixture) -> None:
    """A server that starts after the failover marks the run as left live: its holder still sees that the
    store lacks one commit."""
    store = store_fixture.store
    store_fixture.register(RUN)
    run = _take(store)
    _save(store, run)
    standby = Standby(store)
    _arm(store_fixture, run)
    standby.take_over()
    holder, store.leases.me = store.leases.me, "another"
    store._marked = False
    store.mark_left_live()
    assert store.load(RUN).snapshot.session_end == "server-down"
    store.leases.me = holder
    assert _save(store, run) == {RUN: "behind"}


def test_a_store_that_still_has_all_gets_nothing_twice(store_fixture: StoreFixture) -> None:
    """Commits whose outcome this server does not know, and the mark of another server, are no failover."""
    store = store_fixture.store
    store_fixture.register(RUN)
    run = _take(store)
    _save(store, run)
    store.save([run.snapshot(timeline=False)])  # the answer was lost
    _arm(store_fixture, run)
    store.save([run.snapshot(timeline=False)])
    _acknowledge(run, 5)
    assert _save(store, run) == {}
    assert len(store.load(RUN).snapshot.events) == len(run.events)


def test_only_frontiers_that_rose_are_written(store_fixture: StoreFixture) -> None:
    """A commit writes only the frontiers that rose since the last one, as few of many writers advance. After
    a commit of unknown outcome its frontiers are written again; after a failover all are."""
    store = store_fixture.store
    store_fixture.register(RUN)
    run = _take(store)
    _arm(store_fixture, run)
    standby = Standby(store)
    _save(store, run)
    written: list[int] = []

    def note(_connection: object, _cursor: object, statement: str, rows: Any, *_: object) -> None:
        if statement.startswith("UPDATE frontiers"):
            written.append(len(rows) if isinstance(rows, list) else 1)

    with listening(note):
        _save(store, run)
        run.acknowledge(clock.now_ns(), (5, 0), 0)
        _save(store, run)
        run.acknowledge(clock.now_ns(), (5, 9), 0)
        store.save([run.snapshot(timeline=False)])  # the answer was lost
        run.acknowledge(clock.now_ns(), (6, 9), 0)
        _save(store, run)
        assert written == [1, 1, 2]
        assert store.load(RUN).snapshot.frontiers == (6, 9)
        standby.take_over()
        assert _save(store, run) == {RUN: "behind"}
        run.gone_back()
        assert _save(store, run) == {}
    assert written == [1, 1, 2, 2]
    assert store.load(RUN).snapshot.frontiers == (6, 9)


@contextmanager
def listening(note: Callable[..., None]) -> Iterator[None]:
    """`note` gets each statement to a database."""
    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@pytest.mark.parametrize("was_registered", [True, False])
def test_a_run_that_is_gone_is_given_up(store_fixture: StoreFixture, *, was_registered: bool) -> None:
    """The store lacks that this server loaded it: another server may have more of it by now."""
    store = store_fixture.store
    if was_registered:
        store_fixture.register(RUN)
    standby = Standby(store)
    if not was_registered:
        store_fixture.register(RUN)
    _save(store, _take(store))
    run = _take(store)
    _save(store, run)
    standby.take_over()
    assert _save(store, run) == {RUN: "gone"}
    run.gone_back()
    assert _save(store, run) == {RUN: "gone"}


@asynccontextmanager
async def _working(store: Store, lost: list[Run]) -> AsyncIterator[tuple[Committer, StoreThread]]:
    thread = StoreThread()
    mine = Committer(
        store,
        thread,
        saved=lambda run, rose: None,
        lost=lost.append,
        unfit=lost.append,
        outage=lambda failure: None,
    )
    work = asyncio.create_task(mine.work())
    yield mine, thread
    mine.close()
    await work


async def test_a_commit_writes_anew_what_the_database_has_lost(
    store_fixture: StoreFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """Who waits for the run gets it when all of it is durable, and the log says it once."""
    store = store_fixture.store
    store_fixture.register(RUN)
    run = _take(store)
    lost: list[Run] = []
    async with _working(store, lost) as (mine, thread), asyncio.timeout(DEADLINE_S):
        await mine.flush(run)
        standby = await thread.call(Standby, store)
        await thread.call(_arm, store_fixture, run)
        _acknowledge(run, 5)
        await mine.flush(run)
        await thread.call(standby.take_over)
        with caplog.at_level(logging.ERROR):
            _acknowledge(run, 6)
            await mine.flush(run)
            _acknowledge(run, 7)
            await mine.flush(run)
        found = await thread.call(store.load, RUN)
    assert not lost
    assert (found.armed is not None, found.snapshot.frontiers) == (True, (7, 7))
    assert found.snapshot.events == tuple(run.events)
    assert [
        f"1 run ({RUN:016x})" in one.message and "gone back" in one.message for one in caplog.records
    ] == [True]


async def test_a_run_that_is_given_up_is_said(
    store_fixture: StoreFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that the store lost in a failover is given up with MovedError and an error in the log. Its client
    connects again."""
    store = store_fixture.store
    standby = Standby(store)
    store_fixture.register(RUN)
    run = _take(store)
    lost: list[Run] = []
    async with _working(store, lost) as (mine, thread), asyncio.timeout(DEADLINE_S):
        await mine.flush(run)
        await thread.call(standby.take_over)
        with caplog.at_level(logging.ERROR), pytest.raises(MovedError):
            await mine.flush(run)
        with pytest.raises(RefusedError, match="knows of no run"):
            await thread.call(store.load, RUN)
    assert lost == [run]
    assert ["given up" in one.message for one in caplog.records] == [True]
