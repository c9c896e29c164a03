"""For how long a phase has gone on that a server on another machine began: clocks of two machines do not
compare."""

from __future__ import annotations

from durability.campaign.cycles import draw_cycle
from durability.campaign.log_entries import Paused, Resumed
from durability_server import clock
from durability_server.campaigns.campaign_logs import CampaignLog
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread
from tests.core.campaign.test_entries import BEGAN

NAME = "trial"
S = 1_000_000_000


async def age_s(log: CampaignLog) -> float:
    """For how long the phase has gone on, as far as the server with this log knows."""
    state = await log.refresh()
    assert state.cycle is not None
    return log.moment(began_ns=0).age_min_s(state.cycle.since)


async def test_a_phase_of_another_server_counts_from_when_it_is_read(sqlite_url: str) -> None:
    """The age of another server's phase counts from when this server reads it, and again from a later
    resume."""
    store, thread = Store(sqlite_url), StoreThread()
    await thread.call(store.open)
    theirs, mine = (
        CampaignLog(NAME, store.campaigns, thread, boot_id=boot_id) for boot_id in ("theirs", "mine")
    )
    assert await theirs.begin(lambda _: BEGAN, home="here", after=0)
    drives = tuple(drive.name for drive in BEGAN.settings.drives)
    await theirs.add(lambda _: [draw_cycle(BEGAN.settings, 1, drives), Paused(reason="")])

    before_ns = clock.now_ns()
    first_s = await age_s(mine)
    assert 0 <= first_s <= (clock.now_ns() - before_ns) / S
    assert first_s < await age_s(mine) <= (clock.now_ns() - before_ns) / S  # it goes on from there

    before_ns = clock.now_ns()
    await theirs.add(lambda _: [Resumed()])
    assert 0 <= await age_s(mine) <= (clock.now_ns() - before_ns) / S
    await thread.close(store.close)
