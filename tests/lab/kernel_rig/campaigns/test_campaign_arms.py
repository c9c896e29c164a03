"""Campaigns of real parts whose power goes at other moments than under load."""

from __future__ import annotations

import pytest

from durability.campaign.results import results
from durability_lab.campaign_rig.lab_campaign_command import TIMES
from durability_lab.kernel_rig.real_campaign import real_campaign
from tests.lab.kernel_rig.campaigns.campaign_steps import (
    NOTHING_AT_RISK,
    assert_is_counted_right,
    log_of,
    over,
    start,
)

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.slow, pytest.mark.timeout(600)]
ARMS = """
[[arm]]
name = "idle"
moment = "idle"
idle_s = 2
[[arm]]
name = "prefill"
moment = "prefill"
cut_after_s = [0, 0]
[[arm]]
name = "again"
again_after_s = [0.2, 1]
[[arm]]
name = "short"
off_s = [0.1, 0.3]
"""
LEFT = {
    "the target had been filled before the power went",
    "the writers still had credit when the power went",
    NOTHING_AT_RISK,
}


async def test_each_arm_counts_apart() -> None:
    """Each arm of a campaign has its own counts: idle, prefill, a short off, and a second off during
    recovery. The honest drive loses nothing. A drive that acknowledges 500 ms early loses data under load."""
    async with real_campaign(["honest", "early-ack:delay_ms=500"], seed=3) as campaign:
        lines = f'cuts = 4\nstop_at = "end"\nseed = 7\n{TIMES}'
        campaign.write_file(campaign=lines, file_system="ext4", arms=ARMS)
        await start(campaign)
        state = await over(campaign)
        assert (state.state, state.reason) == ("ended", "complete"), await log_of(campaign)
        await assert_is_counted_right(campaign)
        honest, liar = results(state)
        for result in (honest, liar):
            idle, prefill, _, _ = result.arms
            assert prefill.kept + prefill.tally.losses == prefill.tally.cuts, await log_of(campaign)
            assert prefill.tally.cuts or prefill.left_out, await log_of(campaign)
            assert idle.kept + idle.tally.losses == idle.tally.cuts > 0, await log_of(campaign)
        assert honest.tally.losses == 0, await log_of(campaign)
        assert {text for _, _, text in honest.left_out} <= LEFT, await log_of(campaign)
        # Where a busy machine has written nothing for 500 ms, a cut takes nothing from the liar.
        assert any(arm.tally.losses for arm in liar.arms[2:]), await log_of(campaign)
