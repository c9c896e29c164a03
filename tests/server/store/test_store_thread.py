"""The store's threads: who waits for whom."""

from __future__ import annotations

import asyncio
import threading

from durability_server.store.database import Database
from durability_server.store.store_thread import StoreThread
from tests.waiting import DEADLINE_S, until


async def test_what_is_looked_up_waits_for_no_question() -> None:
    """While a question takes its time, changes and look-ups go on."""
    thread = StoreThread()
    over = threading.Event()
    question = asyncio.create_task(thread.ask(over.wait))
    async with asyncio.timeout(DEADLINE_S):
        assert await thread.look_up(lambda: "looked up") == "looked up"
        assert await thread.call(lambda: "changed") == "changed"
        assert not question.done()
        over.set()
        assert await question
        await thread.close(lambda: None)


async def test_a_call_whose_caller_is_gone_is_taken_back_or_goes_on() -> None:
    """If the caller is gone, a waiting call is dropped and a call that has begun is completed."""
    thread = StoreThread()
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def change(what: str) -> None:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        done.append(what)

    calls = [asyncio.create_task(thread.call(change, what)) for what in ("begun", "waits")]
    await until(begun.is_set)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    go_on.set()
    await thread.close(lambda: None)
    assert done == ["begun"]


async def test_two_threads_read_while_a_third_writes(sqlite_url: str) -> None:
    """Each has a connection of its own, and sees what was committed before it began."""
    database, thread = Database(sqlite_url), StoreThread()
    both = threading.Barrier(2, timeout=DEADLINE_S)

    def write(value: int) -> None:
        with database.transaction() as db:
            db.exec_driver_sql("CREATE TABLE IF NOT EXISTS numbers (number INTEGER)")
            db.exec_driver_sql(f"INSERT INTO numbers VALUES ({value})")

    def read() -> list[int]:
        with database.reading() as db:
            both.wait()
            found = [row[0] for row in db.exec_driver_sql("SELECT number FROM numbers")]
            both.wait()
            return found

    await thread.call(write, 1)
    async with asyncio.timeout(DEADLINE_S):
        one, other = await asyncio.gather(thread.ask(read), thread.look_up(read))
    assert one == other == [1]
    await thread.call(write, 2)
    await thread.close(database.close)
    with Database(sqlite_url).transaction() as db:
        assert len(db.exec_driver_sql("SELECT number FROM numbers").all()) == 2
