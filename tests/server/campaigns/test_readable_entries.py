"""Entries of a campaign's log that the store keeps: each can be read again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from durability.campaign.log_entries import Checked, CutDue, Resumed, StrangerHeard
from durability.errors import FormatError
from durability.formats.documents import TEXT_CHARACTERS_MAX
from durability_server.campaigns.campaign_logs import CampaignLog
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread

NAME = "trial"


class _Kept:
    """A store, and the log of its campaign as each server reads it."""

    def __init__(self, url: str) -> None:
        self.store = Store(url)
        self.thread = StoreThread()

    def log(self) -> CampaignLog:
        return CampaignLog(NAME, self.store.campaigns, self.thread, boot_id="boot")


@pytest.fixture
async def kept(sqlite_url: str) -> AsyncIterator[_Kept]:
    """A store without campaigns."""
    kept = _Kept(sqlite_url)
    await kept.thread.call(kept.store.open)
    yield kept
    await kept.thread.close(kept.store.close)


async def test_a_text_that_is_too_long_is_cut(kept: _Kept) -> None:
    """However many sentences it was made of, the log is read again after it."""
    log = kept.log()
    assert await log.begin(lambda _: StrangerHeard(machine="shelf", text="1"), home="here", after=0)
    text = "x" * (TEXT_CHARACTERS_MAX + 1)
    await log.add(lambda _: [StrangerHeard(machine="shelf", text=text), Checked(problems=(text,))])
    again = await kept.log().refresh()
    assert again.number == 3
    shown = f"{text[: TEXT_CHARACTERS_MAX - 1]}…"
    assert (again.strangers["shelf"], log.state.strangers["shelf"]) == (("1", shown), ("1", shown))


async def test_an_entry_that_could_not_be_read_is_not_stored(kept: _Kept) -> None:
    """It is refused, and the log goes on without it."""
    log = kept.log()
    unfit = CutDue(in_s=-1.0)
    with pytest.raises(FormatError, match="in_s"):
        await log.begin(lambda _: unfit, home="here", after=0)
    assert await log.begin(lambda _: StrangerHeard(machine="shelf", text="1"), home="here", after=0)
    with pytest.raises(FormatError, match="in_s"):
        await log.add(lambda _: [unfit])
    await log.add(lambda _: [Resumed()])
    assert (await kept.log().refresh()).number == 2
