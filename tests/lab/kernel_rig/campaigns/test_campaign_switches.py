"""Campaigns of real parts whose switch or drive fails: each ends in the state that the documentation says."""

from __future__ import annotations

from functools import partial

import pytest

from durability.campaign.results import results
from durability.errors import EXIT_ENVIRONMENT
from durability_lab.campaign_rig.lab_campaign_command import TIMES
from durability_lab.kernel_rig.real_campaign import real_campaign
from tests.lab.kernel_rig.campaigns.campaign_steps import (
    assert_is_counted_right,
    idle_cuts,
    in_phase,
    log_of,
    not_counted,
    over,
    reach,
    start,
)

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.slow, pytest.mark.timeout(1000)]
CUTS = 2
CUT_OF_CYCLE_2 = 3  # the first one is the check's


async def test_a_switch_that_only_says_so() -> None:
    """A switch that says off and does nothing fails the check; one that begins to do so after the first cut
    pauses the campaign, which goes on once it is mended."""
    async with real_campaign(["honest"], seed=13) as campaign:
        campaign.write_file(campaign=f"cuts = {CUTS}\nseed = 7\n{TIMES}")
        campaign.drives.is_welded = True
        check = await campaign.campaign("check", str(campaign.file), "--yes")
        assert check.exit_code == EXIT_ENVIRONMENT, check
        assert "it was not attached anew, so it kept its power" in check.err + check.out, check

        campaign.drives.is_welded = False
        campaign.drives.at_cut[CUT_OF_CYCLE_2] = partial(setattr, campaign.drives, "is_welded", True)
        await start(campaign)
        paused = await over(campaign)
        assert paused.state == "paused", await log_of(campaign)
        assert paused.reason.startswith("the last 2 cuts did not remove power: "), paused.reason
        assert paused.reason in (await campaign.do("status")).out.replace("\n", " ")

        campaign.drives.is_welded = False
        await campaign.do("resume", campaign.name)
        state = await over(campaign)
        assert (state.state, state.reason) == ("ended", "complete"), await log_of(campaign)
        (result,) = results(state)
        assert (result.tally.cuts, result.tally.losses) == (CUTS, 0)
        assert not_counted(result) == [(2, "not-a-cut"), (3, "not-a-cut")]


async def test_a_switch_that_hangs() -> None:
    """If the switch does not answer, the cycle is left out. Once it answers, the power is switched on and the
    other cycles are made."""
    async with real_campaign(["honest"], seed=14) as campaign:
        campaign.write_file(campaign=f"cuts = {CUTS}\nseed = 7\n{TIMES}", power="timeout_s = 5")
        campaign.drives.at_cut[CUT_OF_CYCLE_2] = campaign.drives.answers.clear
        await start(campaign)
        await reach(campaign, in_phase("on", 2))
        campaign.drives.answers.set()
        state = await over(campaign)
        assert (state.state, state.reason) == ("ended", "complete"), await log_of(campaign)
        (result,) = results(state)
        assert (result.tally.cuts, result.tally.losses) == (CUTS, 0)
        assert not_counted(result) == [(2, "switch")]
        await assert_is_counted_right(campaign)


async def test_a_drive_that_does_not_come_back() -> None:
    """A drive that stays away after a cut has no bound and is no longer tested; the other goes on."""
    async with real_campaign(["honest", "honest"], seed=15) as campaign:
        times = TIMES.replace("ready_within_s = 60", "ready_within_s = 20")
        campaign.write_file(campaign=f"cuts = 3\nseed = 7\n{times}")
        campaign.drives.at_cut[CUT_OF_CYCLE_2] = partial(setattr, campaign.drives.drives[1], "returns", False)
        await start(campaign)
        state = await over(campaign)
        assert (state.state, state.reason) == ("ended", "complete"), await log_of(campaign)
        stays, gone = results(state)
        assert (stays.tally.cuts, stays.tally.losses, stays.left) == (3, 0, ""), stays
        assert not_counted(stays) == [] and (stays.left_out or stays.tally.bound is not None), stays
        idle = idle_cuts(gone)  # its first cut, on a busy machine
        assert (gone.tally.cuts, gone.tally.losses, gone.tally.unknown) == (1 - idle, 0, 1 + idle), gone
        assert gone.tally.bound is None and (idle or gone.tally.bound_if_lost is not None), gone
        assert not_counted(gone) == [(2, "drive"), (3, "drive")]
        assert "is not there" in gone.left
        assert "drive-2 is no longer tested" in (await campaign.do("show", campaign.name, "--log")).out
        await assert_is_counted_right(campaign)
