"""Work that takes much longer than usual: people are told of it long before the campaign pauses."""

from __future__ import annotations

from datetime import datetime, timedelta

from durability.campaign.delays import LONG_CYCLES, LONG_S, long_at_work
from durability.campaign.next_steps import next_steps
from durability.campaign.progress import expected_cycle_s
from durability.campaign.server_time import ServerTime
from durability.campaign.steps import WaitFor
from tests.core.campaign.told_campaign import NEW_YEAR, RUN, S, ToldCampaign, begun, cut_under_load, part


def told_after(told: ToldCampaign, seconds: float) -> str:
    """What people are told so long after the phase began. The campaign itself only waits."""
    assert told.state.cycle is not None
    now_ns = told.state.cycle.since.at_ns + int(seconds * S)
    moment = ServerTime(now_ns=now_ns, boot_id="server", silent_s={"b": 0.0})
    assert all(isinstance(step, WaitFor) for step in next_steps(told.state, moment))
    return long_at_work(told.state, moment)


def test_an_hour_of_making_ready_is_told() -> None:
    """A cycle is expected to take some minutes, so an hour is long; a minute less is not."""
    told = begun()
    told.say(part("working"))
    assert LONG_CYCLES * expected_cycle_s(told.state.plan) < LONG_S
    assert told_after(told, LONG_S - 60) == ""
    assert told_after(told, LONG_S + 60) == (
        "cycle 1 (0): making the targets ready for 61 min, much longer than usual: look at the agent's log"
    )


def test_time_without_a_server_does_not_count() -> None:
    """The server was away for two hours, so its agents could not go on."""
    told = begun()
    told.say(part("working"))
    assert told.state.cycle is not None
    began_ns = told.state.cycle.since.at_ns + int(2 * LONG_S * S)
    for seconds, is_told in ((LONG_S - 60, False), (LONG_S + 60, True)):
        now_ns = began_ns + int(seconds * S)
        moment = ServerTime(now_ns=now_ns, boot_id="server", silent_s={"b": 0.0}, began_ns=began_ns)
        assert bool(long_at_work(told.state, moment)) == is_told


def test_an_hour_of_verify_is_told() -> None:
    """The machine is back, and its drive does not finish its verify."""
    told = cut_under_load()
    told.say(part("working", run=RUN), boot="boot-3")
    assert told_after(told, LONG_S - 60) == ""
    assert "cycle 1 (0): booting and verifying for 61 min" in told_after(told, LONG_S + 60)


def test_campaign_of_long_cycles_is_told_of_longer_ones() -> None:
    """Cycles of a large target take 40 minutes each, and a pause of a day lies between two of them: an hour
    is no news, and four cycles are."""
    told, length = begun(), timedelta(minutes=40)
    for cycle in range(1, 6):
        told.say(part("armed", run=f"{cycle:016x}"), boot=f"boot-{cycle + 1}")
        told.note()
        told.cut()
        told.say(boot=f"boot-{cycle + 2}")
        told.say(part("done", run=f"{cycle:016x}"), boot=f"boot-{cycle + 2}")
        told.judge(verdict="durable")
        days = timedelta(days=cycle >= 3)
        told.wall = (datetime.fromisoformat(NEW_YEAR) + days + cycle * length).isoformat()
        told.ended()
        told.note()
    told.say(part("working"), boot="boot-7")
    assert told_after(told, LONG_CYCLES * 2400 - 60) == ""
    assert "cycle 6 (0): making the targets ready for 2 h 41 min" in told_after(told, LONG_CYCLES * 2400 + 60)


def test_campaign_that_waits_for_people_or_its_cut_is_not_told_of() -> None:
    """Under load only the drawn time passes, which may be a day."""
    told = begun()
    told.say(part("armed", run=RUN))
    told.note()
    assert told.state.cycle is not None and told.state.cycle.phase == "load"
    moment = ServerTime(now_ns=told.now_ns + int(30 * LONG_S * S), boot_id="server", silent_s={"b": 0.0})
    assert long_at_work(told.state, moment) == ""
