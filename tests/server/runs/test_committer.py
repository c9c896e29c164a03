"""Waiting for a run to be durable, and how the timelines of many are packed and saved."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from durability.errors import StoreError
from durability.formats.documents import to_value
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability.protocol import messages
from durability.protocol.timeline import Timeline, TimelineCopy
from durability_server import clock
from durability_server.runs import committer, requests
from durability_server.runs.committer import Committer
from durability_server.runs.run import Run
from durability_server.store.records import MovedError, Registration, RunSnapshot, Unsaved
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread
from durability_server.store.target_keys import series_key, target_keys
from tests.server.conftest import SECRET
from tests.server.store.test_gone_back import listening
from tests.waiting import DEADLINE_S, until

if TYPE_CHECKING:
    from tests.server.conftest import Lab

RUNS = 3


class _Store(Store):
    """A store that can be told to fail."""

    failures = 0  # of the next calls of `save`

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.given: list[RunSnapshot] = []  # to `save`

    def save(self, changed: Sequence[RunSnapshot]) -> dict[int, Unsaved]:
        if self.failures:
            self.failures -= 1
            raise StoreError("no room")
        self.given += changed
        return super().save(changed)


@pytest.fixture
def store(sqlite_url: str, lab: Lab) -> Iterator[_Store]:
    """A store with some runs."""
    opened = _Store(sqlite_url)
    opened.open()
    facts = lab.facts()
    for run in range(1, RUNS + 1):
        new = Registration(
            run=run,
            client="",
            label="",
            plan=lab.plan(run=run).encode(),
            secret=b"s" * 32,
            facts=facts,
            keys=target_keys(facts),
            path=facts.path,
            host="host",
            wall="2026-01-01T00:00:00Z",
            writers=2,
        )
        opened.register(new, force=True)
    yield opened


def _run(store: Store, run: int) -> Run:
    """The run, as a server has it that takes it now and hears of more operations."""
    taken = Run(store.load(run), boot_id="boot")
    taken.attached(clock.now_ns(), "test")
    _hear(taken)
    return taken


def _hear(run: Run) -> None:
    at_ns = clock.now_ns()
    run.heard(at_ns, ran_ns=at_ns)
    run.acknowledge(at_ns, tuple(seq + 1 for seq in run.frontiers.acked), 0)


@asynccontextmanager
async def _working(store: Store) -> AsyncIterator[tuple[Committer, StoreThread]]:
    """A committer that works, and the thread in which it saves."""
    thread = StoreThread()
    mine = Committer(
        store,
        thread,
        saved=lambda run, rose: None,
        lost=lambda run: None,
        unfit=lambda run: None,
        outage=lambda failure: None,
    )
    work = asyncio.create_task(mine.work())
    yield mine, thread
    mine.close()
    await work
    await thread.close(store.close)


async def test_who_waits_for_a_run_is_told_that_another_server_has_it(store: Store) -> None:
    """Each waiter for a run that moved to another server gets MovedError. This includes a waiter that came
    while the commit was under way."""
    run = _run(store, 1)
    store.save([run.snapshot(timeline=True)])
    store.save([_run(store, 1).snapshot(timeline=True)])
    _hear(run)
    async with _working(store) as (mine, thread), asyncio.timeout(DEADLINE_S):
        go_on = threading.Event()
        before = asyncio.create_task(thread.call(go_on.wait))
        first = asyncio.create_task(mine.flush(run))
        await until(lambda: not run.timeline_changed)  # what is to be saved has been taken
        second = asyncio.create_task(mine.flush(run))
        await asyncio.sleep(0)
        go_on.set()
        await before
        for waiting in (first, second):
            with pytest.raises(MovedError):
                await waiting


async def test_who_asks_while_a_commit_waits_to_begin_is_answered(store: Store) -> None:
    """That commit takes the timeline that the caller wants, and does not answer: the next one must."""
    run = _run(store, 1)
    async with _working(store) as (mine, _), asyncio.timeout(DEADLINE_S):
        async with mine.in_order:  # as while another run is armed
            mine.touch(run)
            await until(lambda: run in mine._saving)
            asked = asyncio.create_task(mine.flush(run))
            await asyncio.sleep(0)
        await asked


async def test_timelines_that_many_wait_for_are_spread_over_commits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit takes as many as are not too long together, one at least; who waits for another one waits for
    a later commit."""
    monkeypatch.setattr(committer, "TIMELINES_NUMBERS_MAX", 0)
    runs = [_run(store, run) for run in range(1, RUNS + 1)]
    async with _working(store) as (mine, _), asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*map(mine.flush, runs))
        assert mine.commits == RUNS
        assert not any(map(mine.is_dirty, runs))
        for run in runs:
            assert store.load(run.id).snapshot.timeline == run.timeline.pack()


async def test_timelines_are_packed_elsewhere_than_in_the_event_loop(
    store: _Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what comes meanwhile is not in them: frontiers and timeline of a commit are of the same moment. The
    next commit has the rest."""
    run = _run(store, 1)
    packing, go_on = threading.Event(), threading.Event()
    packed_by: list[threading.Thread] = []
    pack = TimelineCopy.pack

    def pack_seen(timeline: TimelineCopy) -> bytes:
        packed_by.append(threading.current_thread())
        packing.set()
        assert go_on.wait(DEADLINE_S)
        return pack(timeline)

    monkeypatch.setattr(TimelineCopy, "pack", pack_seen)
    async with _working(store) as (mine, _), asyncio.timeout(DEADLINE_S):
        first = asyncio.create_task(mine.flush(run))
        await until(packing.is_set)
        _hear(run)
        go_on.set()
        await first
        await mine.flush(run)
    assert [one.frontiers for one in store.given] == [(1, 1), (2, 2)]
    timelines = [Timeline.unpack(one.timeline or b"").receipts() for one in store.given]
    assert [receipts[-1].frontiers for receipts in timelines] == [(1, 1), (2, 2)]
    assert packed_by and threading.current_thread() not in packed_by


async def test_a_timeline_that_cannot_be_packed_keeps_no_other_run_from_its_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run is set aside, as one that cannot be saved."""
    bad, good = _run(store, 1), _run(store, 2)
    bad.timeline_wanted = True
    pack = TimelineCopy.pack

    def pack_some(timeline: TimelineCopy) -> bytes:
        if timeline.receipts == bad.timeline.receipts():
            raise ValueError("a defect")
        return pack(timeline)

    monkeypatch.setattr(TimelineCopy, "pack", pack_some)
    async with _working(store) as (mine, _), asyncio.timeout(DEADLINE_S):
        mine.touch(bad)
        await mine.flush(good)
        await until(lambda: not mine.is_dirty(bad))
        assert (bad.lost, good.lost) == (True, False)


def test_a_timeline_of_another_boot_never_stays_beside_times_of_this_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of the machine, the first commit of a run includes its new timeline, even beyond the
    budget. So a run of a server that is killed then can be loaded."""
    monkeypatch.setattr(committer, "TIMELINES_NUMBERS_MAX", 0)
    old_ns = clock.now_ns() + 10**18  # that boot has lasted for longer
    for number in range(1, RUNS + 1):
        timeline = Timeline(2)
        timeline.add(old_ns, (1, 1))
        earlier = replace(store.load(number).snapshot, frontiers=(1, 1), timeline=timeline.pack())
        store.save([replace(earlier, last_receipt_ns=old_ns, receipt_boot_id="the boot before")])
    runs = [_run(store, number) for number in range(1, RUNS + 1)]
    runs[0].snapshot(timeline=False)  # as for its arming, which saves no timeline
    first, timelines = committer._snapshots(runs, committer._Outcome(), all_wanted=False)
    first |= {run: replace(first[run], timeline=timeline.pack()) for run, timeline in timelines.items()}
    assert store.save(list(first.values())) == {}
    for number in range(1, RUNS + 1):
        stored = store.load(number)
        assert stored.snapshot.receipt_boot_id == "boot"
        receipts = Run(stored, boot_id="boot").timeline.receipts()
        assert receipts[0].at_ns == 0 and receipts[-1].at_ns < old_ns
    for run, snapshot in first.items():
        run.saved(snapshot, clock.now_ns())
        assert run.snapshot(timeline=False).timeline is None
    store.close()


async def test_the_last_commit_takes_all_timelines_that_are_wanted(
    store: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is stopped has no later commit for the others."""
    monkeypatch.setattr(committer, "TIMELINES_NUMBERS_MAX", 0)
    runs = [_run(store, run) for run in range(1, RUNS + 1)]
    async with _working(store) as (mine, _):
        mine.close()
        for run in runs:
            run.timeline_wanted = True
            mine.touch(run)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as left:
        kept = dict(left.execute("SELECT run, data FROM timelines"))
    assert kept == {f"{run.id:016x}": run.timeline.pack() for run in runs}


@pytest.mark.slow
async def test_a_timeline_of_a_failed_commit_is_saved_by_the_next(store: _Store) -> None:
    """After a failed commit, the next commit saves the timeline, even if no caller waits for it."""
    run = _run(store, 1)
    store.failures = 1
    async with _working(store) as (mine, _):
        mine.touch(run)
        await until(lambda: not mine.is_dirty(run))
        assert not store.failures
        assert store.load(run.id).snapshot.timeline == run.timeline.pack()


@pytest.mark.slow
@pytest.mark.usefixtures("no_silence")
async def test_a_connection_that_ends_saves_no_timeline_anew(
    lab: Lab, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing came on it after the word that it goes on, not even the answer to a heartbeat."""
    running = await lab.start(sqlite_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(run=RUNS), lab.facts())
    await client.acknowledge(3, 3)
    await client.close()
    await lab.exported(running.address, RUNS, lambda case: case.session_end == "fin")
    await running.server.stop()
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as kept, kept:
        what = "BEFORE INSERT ON timelines BEGIN SELECT RAISE(ABORT, 'saved anew')"
        kept.execute(f"CREATE TRIGGER refuse {what}; END")

    running = await lab.start(sqlite_url)
    again = await lab.connect(running.address)
    again.vanish()
    again.say(messages.Resume(run=RUNS, secret=SECRET))
    await lab.exported(running.address, RUNS, lambda case: case.session_end == "live")
    await again.close()
    await lab.exported(running.address, RUNS, lambda case: case.session_end != "live")
    await running.server.stop()
    assert "saved anew" not in caplog.text


@pytest.mark.usefixtures("no_silence")
async def test_a_run_is_armed_after_the_commit_that_is_under_way(
    lab: Lab, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose timelines are being packed, and whose number is lower: the number in the store only rises, so a
    standby that lacks one of the two has a lower one."""
    running = await lab.start(store_url)
    client = await lab.connect(running.address)
    await client.register(lab.plan(), lab.facts())
    (run,) = running.server.runs
    mine = running.server._registry.committer
    packing, arming = threading.Event(), threading.Event()
    pack = TimelineCopy.pack
    saves: list[int] = []

    def pack_slowly(timeline: TimelineCopy) -> bytes:
        packing.set()
        assert arming.wait(DEADLINE_S)
        return pack(timeline)

    def key_seen(plan: Plan, facts: Facts) -> str:
        arming.set()
        return series_key(plan, facts)

    def note(_connection: object, cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE runs"):
            before = cursor.connection.cursor()
            before.execute("SELECT saves FROM runs")
            saves.append(before.fetchone()[0])

    monkeypatch.setattr(TimelineCopy, "pack", pack_slowly)
    monkeypatch.setattr(requests, "series_key", key_seen)
    async with asyncio.timeout(DEADLINE_S):
        with listening(note):
            first = asyncio.create_task(mine.flush(run))
            await until(packing.is_set)
            await client.ask(messages.ArmRun(facts=to_value(lab.facts())), messages.Armed)
            await first
            await mine.flush(run)
    assert saves == sorted(saves)
    assert len(set(saves)) > 2


@pytest.mark.parametrize(("at_once_ns", "turns"), [(3600 * 10**9, 1), (-1, RUNS)])
async def test_all_runs_are_told_in_one_turn_unless_that_takes_long(
    at_once_ns: int, turns: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn may take long where clients send without pause: many runs must not wait for many turns."""
    monkeypatch.setattr(committer, "AT_ONCE_NS", at_once_ns)
    turn, told = 0, []

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(next_turn)

    loop = asyncio.get_running_loop()
    async with _working(store) as (mine, _), asyncio.timeout(DEADLINE_S):
        monkeypatch.setattr(mine, "_saved", lambda run, rose: told.append(turn))
        next_turn()
        await asyncio.gather(*(mine.flush(_run(store, run)) for run in range(1, RUNS + 1)))
    assert len(told) == RUNS and len(set(told)) == turns


@pytest.mark.usefixtures("no_silence")
async def test_clients_are_told_of_a_store_that_hangs(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises nothing, while heartbeats go on. When it goes on, they are told, and have their credit."""
    monkeypatch.setattr(committer, "HANGS_S", 3600.0)  # however slow this machine is
    running = await lab.start(sqlite_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(), lab.facts())
    await client.acknowledge(1, 1)
    monkeypatch.setattr(committer, "HANGS_S", 0.1)
    go_on = threading.Event()
    hanging = asyncio.create_task(running.server._thread.call(go_on.wait))
    await asyncio.sleep(0)
    client.say(messages.Ack(frontiers=(3, 3), control=0))
    async with asyncio.timeout(DEADLINE_S):
        try:
            assert (await client.get(messages.Notice)).code == "store-unavailable"
            assert not any(isinstance(message, messages.Credit) for message in client.received)
        finally:
            go_on.set()
            await hanging
        assert (await client.get(messages.Credit)).grants == (3, 3)
        assert (await client.get(messages.Notice)).code == "store-recovered"
