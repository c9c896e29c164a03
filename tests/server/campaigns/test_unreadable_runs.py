"""Runs that a campaign looks up and whose stored rows cannot be read."""

from __future__ import annotations

from durability.campaign.definition.settings import Power
from durability.campaign.log_entries import Operation
from durability.errors import FormatError
from durability.formats.case import Case
from durability_server.campaigns.campaign_logs import CampaignLog
from durability_server.campaigns.campaign_task import CampaignTask
from durability_server.campaigns.notifications import News
from durability_server.power.exchange import SwitchAnswer
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread


class _NoSwitches:
    async def ask(self, power: Power, operation: Operation) -> SwitchAnswer:
        raise AssertionError


async def test_a_run_that_cannot_be_read_has_no_verdict(sqlite_url: str) -> None:
    """The campaign goes on without it."""

    async def unreadable(run: int) -> Case:
        raise FormatError("not a valid Facts: drives: Field required")

    async def mine() -> bool:
        return True

    async def still(run: int) -> bool:
        return True

    store, thread = Store(sqlite_url), StoreThread()
    await thread.call(store.open)
    log = CampaignLog("trial", store.campaigns, thread, boot_id="boot")
    task = CampaignTask(
        log,
        _NoSwitches(),
        claim=mine,
        case=unreadable,
        hold=lambda run: None,
        is_still=still,
        news=News(log, store.campaigns, thread, announce=lambda who, what: None),
        shared=False,
    )
    judged = await task._judged("ssd", "00000000000000ab")
    assert (judged.drive, judged.run, judged.verdict) == ("ssd", "00000000000000ab", "")
    await thread.close(store.close)
