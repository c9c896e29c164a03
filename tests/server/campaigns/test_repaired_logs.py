"""A campaign's log that could not be read, and can be again: it was repaired, or the store has gone back."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import update

from durability.campaign.log_entries import (
    CycleEnded,
    Entry,
    Happening,
    Resumed,
    StrangerHeard,
    entry_to_value,
)
from durability.errors import FormatError
from durability.formats.packing import Value, pack
from durability_server.campaigns.campaign_logs import CampaignLog
from durability_server.store import tables
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread
from durability_server.web.campaign_watch import CampaignWatch
from tests import waiting
from tests.server.campaigns.played_machine import Machine
from tests.server.campaigns.test_campaigns import begin, living, settings_of, until
from tests.server.conftest import Lab
from tests.server.standby import Standby
from tests.waiting import DEADLINE_S

NAME = "trial"
UNKNOWN: Value = {"number": 2, "happening": {"kind": "from-a-later-version"}}


def row(happening: Happening) -> Value:
    """The second entry of a log, as it is stored."""
    return entry_to_value(Entry(number=2, at_ns=1, boot_id="boot", wall="2027", happening=happening))


class _Kept:
    """A store with a campaign whose log has one entry, and a server's copy of the log."""

    def __init__(self, url: str) -> None:
        self.store = Store(url)
        self.thread = StoreThread()
        self.log = CampaignLog(NAME, self.store.campaigns, self.thread, boot_id="boot")

    async def append(self, value: Value) -> None:
        """Stores it as the second entry, whatever it is."""
        assert await self.thread.call(self.store.campaigns.append, NAME, 2, value)

    def change(self, value: Value) -> None:
        """The second entry is another one from now on. Belongs to the thread that changes the store."""
        entries = tables.campaign_entries
        with self.store._database.transaction() as db:
            db.execute(update(entries).where(entries.c.number == 2).values(data=pack(value)))


@pytest.fixture
async def kept(sqlite_url: str) -> AsyncIterator[_Kept]:
    """A store with a campaign."""
    kept = _Kept(sqlite_url)
    await kept.thread.call(kept.store.open)
    began = StrangerHeard(machine="shelf", text="1")
    assert await kept.log.begin(lambda _: began, home="here", after=0)
    yield kept
    await kept.thread.close(kept.store.close)


# An end without a beginning: it is found when a part of it was taken in.
UNFIT = {"unknown": UNKNOWN, "unfit": row(CycleEnded(cycle=1, drives=()))}


@pytest.mark.parametrize("what", UNFIT)
async def test_a_log_is_read_once_its_entry_was_repaired(kept: _Kept, what: str) -> None:
    """Before that it cannot be read, however often it is tried, and nothing is added to it."""
    await kept.append(UNFIT[what])
    for _ in range(2):
        with pytest.raises(FormatError):
            await kept.log.refresh()
    with pytest.raises(FormatError):
        await kept.log.add(lambda _: [Resumed()])
    await kept.thread.call(kept.change, row(StrangerHeard(machine="shelf", text="2")))
    assert (await kept.log.refresh()).strangers == {"shelf": ("1", "2")}
    await kept.log.add(lambda _: [StrangerHeard(machine="shelf", text="3")])
    assert kept.log.state.number == 3


@pytest.mark.parametrize("what", UNFIT)
async def test_a_log_is_read_once_its_store_has_gone_back(kept: _Kept, what: str) -> None:
    """A standby that lacks the entry has taken over."""
    standby = await kept.thread.call(Standby, kept.store)
    await kept.append(UNFIT[what])
    with pytest.raises(FormatError):
        await kept.log.refresh()
    await kept.thread.call(standby.take_over)
    async with asyncio.timeout(DEADLINE_S):
        await kept.log.add(lambda _: [StrangerHeard(machine="shelf", text="b")])
    assert kept.log.state.strangers == {"shelf": ("1", "b")}


@pytest.mark.parametrize("what", UNFIT)
async def test_a_page_shows_a_log_once_its_entry_was_repaired(kept: _Kept, what: str) -> None:
    """Before that it shows why it cannot, and shows the rest."""
    page = CampaignWatch(kept.store.campaigns)
    await kept.append(UNFIT[what])
    for _ in range(2):
        (watched,) = await kept.thread.ask(page.read)
        assert "cannot be read" in watched.note and watched.state.strangers == {"shelf": ("1",)}
    await kept.thread.call(kept.change, row(StrangerHeard(machine="shelf", text="2")))
    (watched,) = await kept.thread.ask(page.read)
    assert (watched.note, watched.state.strangers) == ("", {"shelf": ("1", "2")})


@pytest.mark.slow
@pytest.mark.parametrize("what", UNFIT)
async def test_a_campaign_goes_on_once_its_log_was_repaired(
    lab: Lab, sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """A server that could not read a campaign's log tries again by itself, without a restart."""
    power = tmp_path / "power"
    power.write_text("on\n")
    first = await lab.start(sqlite_url)
    await begin(lab, first, settings_of(power), check_only=True)
    await until(lab, first, lambda state: state.cycle is not None)
    await first.server.stop()

    def replaced(data: bytes) -> bytes:
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), timeout=DEADLINE_S) as db:
            (before,) = db.execute("SELECT data FROM campaign_entries WHERE number = 2").fetchone()
            db.execute("UPDATE campaign_entries SET data = ? WHERE number = 2", [data])
        db.close()
        return bytes(before)

    right = replaced(pack(UNFIT[what]))
    with caplog.at_level(logging.WARNING):
        again = await lab.start(sqlite_url)
        await waiting.until(lambda: "the log of campaign trial cannot be read" in caplog.text)
        replaced(right)
        await waiting.until(lambda: "the log of campaign trial can be read again" in caplog.text)
    async with living(Machine(lab, again.address, power)):
        state = await until(lab, again, lambda state: state.state == "ended")
    assert state.reason == "checked"
    assert caplog.text.count("cannot be read") == 1
