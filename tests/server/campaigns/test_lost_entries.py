"""A store that has lost the newest entries of a campaign's log, as after a failover to a standby that lacked
them: whoever has a copy of the log begins anew from what the store has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from durability.campaign.log_entries import PauseAsked, Resumed, StrangerHeard, entry_from_value
from durability.formats.packing import Value
from durability_server.campaigns.campaign_logs import CampaignLog
from durability_server.campaigns.notifications import News
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread
from durability_server.web.campaign_watch import CampaignWatch
from tests.server.standby import Standby
from tests.waiting import DEADLINE_S, until

NAME = "trial"


class _Shared:
    """A store, with as many copies of the log as a test wants, as servers have them."""

    def __init__(self, url: str) -> None:
        self.store = Store(url)
        self.thread = StoreThread()

    def log(self) -> CampaignLog:
        return CampaignLog(NAME, self.store.campaigns, self.thread, boot_id="boot")

    async def say(self, log: CampaignLog, *texts: str) -> None:
        for text in texts:
            await log.add(lambda _, text=text: [StrangerHeard(machine="shelf", text=text)])  # type: ignore[misc]

    async def said(self) -> list[str]:
        """The texts in the store."""
        rows = await self.thread.ask(self.store.campaigns.entries, NAME, after=0)
        return [getattr(entry_from_value(row).happening, "text", "pause") for row in rows]


@pytest.fixture
async def shared(store_url: str) -> AsyncIterator[_Shared]:
    """A store with a campaign whose log has one entry."""
    shared = _Shared(store_url)
    await shared.thread.call(shared.store.open)
    began = StrangerHeard(machine="shelf", text="1")
    assert await shared.log().begin(lambda _: began, home="here", after=0)
    yield shared
    await shared.thread.close(shared.store.close)


async def test_a_log_that_has_lost_entries_goes_on(shared: _Shared, caplog: pytest.LogCaptureFixture) -> None:
    """The next entry follows the last one that the store has, and the server says once what happened."""
    log = shared.log()
    await shared.say(log, "2", "3")
    standby = await shared.thread.call(Standby, shared.store)
    await shared.say(log, "4", "5")
    await shared.thread.call(standby.take_over)
    before = log.state
    with caplog.at_level(logging.ERROR):
        async with asyncio.timeout(DEADLINE_S):
            assert await log.add(lambda state: [PauseAsked(stop=True)] if state is not before else [])
            assert (await log.refresh()).number == 4
    assert await shared.said() == ["1", "2", "3", "pause"]
    assert ["lacks entry 5" in one.message for one in caplog.records] == [True]


async def test_other_entries_with_known_numbers_are_read(shared: _Shared) -> None:
    """Another server has added entries since, so the numbers of a copy say nothing."""
    log, page = shared.log(), CampaignWatch(shared.store.campaigns)
    standby = await shared.thread.call(Standby, shared.store)
    await shared.say(log, "2", "3")
    (watched,) = await shared.thread.ask(page.read)
    assert watched.state.strangers == {"shelf": ("1", "2", "3")}
    await shared.thread.call(standby.take_over)
    await shared.say(shared.log(), "b", "c", "d")
    async with asyncio.timeout(DEADLINE_S):
        assert (await log.refresh()).strangers == {"shelf": ("1", "b", "c", "d")}
        (watched,) = await shared.thread.ask(page.read)
    assert watched.state.strangers == {"shelf": ("1", "b", "c", "d")}
    assert (watched.note, watched.state.number) == ("", 4)


async def test_a_page_follows_a_log_that_has_become_shorter(shared: _Shared) -> None:
    """The page shows what the store has."""
    page = CampaignWatch(shared.store.campaigns)
    standby = await shared.thread.call(Standby, shared.store)
    await shared.say(shared.log(), "2", "3")
    await shared.thread.ask(page.read)
    await shared.thread.call(standby.take_over)
    (watched,) = await shared.thread.ask(page.read)
    assert (watched.state.number, watched.note) == (1, "")


async def test_news_of_lost_entries_are_not_looked_for_without_end(
    shared: _Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the log still has them: who conducts the campaign is to notice that. Then news go on."""
    log = shared.log()
    await log.refresh()
    standby = await shared.thread.call(Standby, shared.store)
    await shared.say(log, "2", "3")
    await shared.thread.call(standby.take_over)
    await shared.thread.call(shared.store.campaigns.set_notified, NAME, 1)
    looks = 0
    entries = shared.store.campaigns.entries

    def counted(name: str, *, after: int) -> tuple[Value, ...]:
        nonlocal looks
        looks += 1
        return entries(name, after=after)

    monkeypatch.setattr(shared.store.campaigns, "entries", counted)
    told: list[str] = []
    news = News(log, shared.store.campaigns, shared.thread, announce=lambda _, text: told.append(text))
    work = asyncio.create_task(news.work())
    try:
        async with asyncio.timeout(DEADLINE_S):
            await until(lambda: looks > 0)
            for _ in range(20):  # each thread of the store, in turn with what the news ask of it
                await shared.thread.look_up(shared.store.campaigns.names)
                await shared.thread.call(shared.store.campaigns.names)
            assert (looks, told) == (1, [])
            await log.add(lambda _: [Resumed()])
            assert log.state.number == 2
            await until(lambda: told == ["resumed"])
    finally:
        work.cancel()


async def test_news_of_entries_after_a_loss_are_told(shared: _Shared) -> None:
    """News of entries made after a takeover is sent, even if an entry reuses a number that was reported
    before."""
    log = shared.log()
    await log.refresh()
    await shared.thread.call(shared.store.campaigns.set_notified, NAME, 1)
    told: list[str] = []
    news = News(log, shared.store.campaigns, shared.thread, announce=lambda _, text: told.append(text))
    standby = await shared.thread.call(Standby, shared.store)
    work = asyncio.create_task(news.work())
    try:
        async with asyncio.timeout(DEADLINE_S):
            for count in (1, 2):
                await log.add(lambda _: [Resumed()])
                await until(lambda count=count: told == ["resumed"] * count)  # type: ignore[misc]
            await shared.thread.call(standby.take_over)
            await log.add(lambda _: [Resumed()])
            assert log.state.number == 2
            await until(lambda: told == ["resumed"] * 3)
    finally:
        work.cancel()
