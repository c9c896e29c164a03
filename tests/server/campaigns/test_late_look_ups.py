"""A verdict that is looked up while the log goes on: it is added to the state that asked for it, or not at
all."""

from __future__ import annotations

from durability.campaign.log_entries import (
    Checked,
    Entry,
    Happening,
    JudgedLate,
    entry_from_value,
    entry_to_value,
)
from durability.campaign.steps import LookUp
from durability.errors import FormatError
from durability.formats.case import Case
from durability_server.campaigns.campaign_logs import CampaignLog
from durability_server.campaigns.campaign_task import CampaignTask
from durability_server.campaigns.notifications import News
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread
from tests.core.campaign.test_late_verdicts import back_too_late
from tests.core.campaign.told_campaign import OTHER_RUN, RUN, ToldCampaign, judged, part, told_settings
from tests.server.campaigns.test_unreadable_runs import _NoSwitches


class Recorded(ToldCampaign):
    """A campaign that keeps its entries."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []

    def add(self, *happenings: Happening) -> None:
        """These happen."""
        for happening in happenings:
            super().add(happening)
            assert self.state.last is not None
            self.entries.append(self.state.last)


def told_late() -> Recorded:
    """A campaign that is to look up the run of its first cycle, in its second one."""
    told = Recorded()
    told.begin(told_settings())
    told.add(Checked(problems=()))
    told.note()
    told.say()
    told.say(part("armed", run=RUN))
    told.note()
    told.cut()
    back_too_late(told)
    told.say(part("armed", run=OTHER_RUN), boot="boot-2")
    assert told.steps() == [LookUp("d0", RUN)]
    return told


async def test_a_verdict_that_another_server_added_meanwhile_is_not_added_to_the_next_cycle(
    sqlite_url: str,
) -> None:
    """It would stand there as that of the run which this cycle cuts, so that is never looked up."""
    told = told_late()
    store, thread = Store(sqlite_url), StoreThread()
    await thread.call(store.open)
    log = CampaignLog("told", store.campaigns, thread, boot_id="server")
    assert await log.begin(lambda _: told.entries[0].happening, home="here", after=0)
    for entry in told.entries[1:]:
        value = entry_to_value(entry)
        assert await thread.call(store.campaigns.append, "told", entry.number, value, attested=())

    async def looked_up_late(run: int) -> Case:
        late = JudgedLate(cycle=1, judged=judged("d0", RUN, "durable"))
        assert await log.add(lambda _: [late])
        raise FormatError("it says no more")

    async def yes(*_: object) -> bool:
        return True

    task = CampaignTask(
        log,
        _NoSwitches(),
        claim=yes,
        case=looked_up_late,
        hold=lambda run: None,
        is_still=yes,
        news=News(log, store.campaigns, thread, announce=lambda who, what: None),
        shared=False,
    )
    await task._step()
    rows = await thread.call(store.campaigns.entries, "told", after=len(told.entries))
    assert [type(entry_from_value(row).happening) for row in rows] == [JudgedLate]
    assert log.state.cycle is not None and log.state.cycle.judged == {}
    await thread.close(store.close)
