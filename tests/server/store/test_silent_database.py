"""A network to PostgreSQL that falls silent is noticed soon, whatever was on its way."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from durability.errors import StoreError
from durability_server.store.database import Database
from tests.server.front import front
from tests.waiting import DEADLINE_S, wait_for


@pytest.mark.lab
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
async def test_a_question_that_was_taken_does_not_wait_for_ever(store_url: str) -> None:
    """Nothing is unacknowledged, so only the kernel's questions can find out that no answer will come; by
    itself it asks the second one after more than a minute."""
    direct = Database(store_url)
    async with front(store_url) as way:
        database = Database(way.url("127.0.0.1"))

        def ask() -> None:
            with database.reading() as db:
                db.execute(text("SELECT pg_sleep(3600)"))

        def is_asked() -> bool:
            with direct.reading() as db:
                asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
                return bool(db.execute(text(asleep)).scalar_one())

        asking = asyncio.create_task(asyncio.to_thread(ask))
        await asyncio.to_thread(wait_for, is_asked)
        way.fall_silent()
        with pytest.raises(StoreError):
            await asyncio.wait_for(asking, DEADLINE_S)
        database.close()
    direct.close()
