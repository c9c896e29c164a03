"""News that a server was giving when it died."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from durability.campaign.log_entries import StrangerHeard
from durability_server.campaigns.campaign_logs import CampaignLog
from durability_server.campaigns.notifications import News
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread
from tests.core.campaign.test_entries import BEGAN
from tests.waiting import until

NAME = "trial"


async def test_only_the_last_news_come_twice(sqlite_url: str, tmp_path: Path) -> None:
    """The command was called for all those before it, so nobody is called for them again."""
    told, freed = tmp_path / "told", tmp_path / "freed"
    told.touch()
    slow = f"[ -e {freed} ] || case $0 in *two) sleep 1000;; esac"
    notify = f"sh -c 'echo ${{0##* }} >> {told}; {slow}'"
    store, thread = Store(sqlite_url), StoreThread()
    await thread.call(store.open)
    log = CampaignLog(NAME, store.campaigns, thread, boot_id="boot")
    began = replace(BEGAN, settings=replace(BEGAN.settings, notify=notify))
    assert await log.begin(lambda _: began, home="here", after=0)
    await log.add(lambda _: [StrangerHeard(machine="shelf", text=text) for text in ("one", "two", "three")])

    async def give(*expected: str) -> None:
        news = News(log, store.campaigns, thread, announce=lambda who, what: None)
        work = asyncio.create_task(news.work())
        await until(lambda: told.read_text().split() == list(expected))
        work.cancel()
        await asyncio.wait([work])

    await give("one", "two")
    freed.touch()
    await give("one", "two", "two", "three")
    await thread.close(store.close)
