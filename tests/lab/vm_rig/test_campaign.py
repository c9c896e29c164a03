"""Campaigns on a machine behind a BMC: fence agent, BMC, machine, drives and agent are all real."""

from __future__ import annotations

import json

import pytest

from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycles import arm_of
from durability.campaign.results import DriveResult, results
from durability.errors import EXIT_INCONCLUSIVE, EXIT_LOSS, EXIT_OK
from durability.evidence.verdict import REASONS
from durability_lab.campaign_rig.lab_campaign_command import GUEST_TIMES
from durability_lab.support.operated_campaign import Answer
from durability_lab.vm_rig.guest_campaign import GuestCampaign, guest_campaign
from tests.lab.vm_rig.guest_logs import said

pytestmark = [pytest.mark.usefixtures("campaign_machine"), pytest.mark.slow]

CUTS = 3
ARM = "[[arm]]\n"  # one writer: of others a slow guest may have nothing at risk
# On a busy machine a guest may stand still for a second before its cut; then a short delay loses nothing.
LIARS = ["early-ack:delay_ms=5000", "rollback:interval_ms=5000", "flush-skipped:one_in=2"]

MOMENTS = """
[[arm]]
name = "rest"
moment = "idle"
idle_s = 2

[[arm]]
name = "fill"
moment = "prefill"

[[arm]]
name = "clean"
moment = "shutdown"

[[arm]]
name = "twice"
again_after_s = [20, 40]
"""

EXIT_CODES = {"pass": EXIT_OK, "refuse": EXIT_LOSS, "not shown": EXIT_INCONCLUSIVE}

PROFILE = """
[profile]
title = "A drive of a guest"

[[criterion]]
kind = "clean-cuts"
limit = {limit}
cut_class = "vm"
reason = "The campaign makes three cuts."

[[criterion]]
kind = "always-there"
reason = "It must come back."
"""


@pytest.mark.timeout(3600)
async def test_each_drive_of_a_guest_gets_what_it_deserves() -> None:
    """In a guest's campaign, the honest drive is durable in class `vm`, and each drive that lost data is
    named with the cycle of its first loss. Only the drive that skips flushes may keep all by chance.
    `accept` passes the honest drive, if each of its cuts has a verdict, and refuses drives that lost data."""
    async with guest_campaign(["honest", *LIARS], seed=21) as campaign:
        campaign.write_file(campaign=f"cuts = {CUTS}\nseed = 7\n{GUEST_TIMES}", file_system="ext4", arms=ARM)
        started = await campaign.campaign("start", str(campaign.file), "--yes")
        assert started.err.count("ALL DATA WILL BE LOST") == 1 + len(LIARS), started
        state = await until_over(campaign)
        assert (state.state, state.reason) == ("ended", "complete"), await said(campaign)
        honest, *liars = results(state)
        assert honest.tally.cuts >= CUTS and not honest.tally.losses, await said(campaign)
        left_out = {text for one in results(state) for _, _, text in one.left_out}
        assert left_out <= {REASONS["nothing-at-risk"]}, await said(campaign)
        assert honest.left_out or honest.tally.bound == pytest.approx(1 - 0.05 ** (1 / honest.tally.cuts))
        shown = (await campaign.do("show", campaign.name)).out
        for liar in liars:
            assert liar.tally.losses or liar is liars[-1], f"{liar}\n{await said(campaign)}"
            assert not liar.tally.losses or lost_in(liar) in shown, f"{liar}\n{await said(campaign)}"
        assert "drive-1 lost" not in shown
        judged = [one for past in state.cycles for one in past.judged.values()]
        assert {one.cut_class for one in judged} == {"vm"}
        cycles = [past for past in state.cycles if past.began.cycle]
        assert campaign.guest.boots == 2 + len(cycles)  # by hand, in the check, in each cycle

        for limit in (CUTS, 59):
            deserved = [decision(one, limit=limit) for one in (honest, *liars)]
            assert await decisions(campaign, limit=limit) == deserved, await said(campaign)

        if honest.tally.bound is not None:  # else the guest was too slow for a cut: its outcome is not known
            passed = await accepted(campaign, limit=CUTS, serial=serials(campaign)[0])
            decided = (passed.exit_code, decisions_in(passed))
            assert decided == (EXIT_OK, ["pass"]), f"{passed}\n{await said(campaign)}"


@pytest.mark.timeout(3600)
async def test_an_honest_drive_of_a_guest_keeps_all_at_every_moment() -> None:
    """The power of a guest goes at idle, in the prefill, after a clean shutdown, and a second time while the
    guest boots. The drive keeps everything, and only the cut under load counts in its bound."""
    async with guest_campaign(["honest"], seed=22) as campaign:
        campaign.write_file(campaign=f"cuts = 4\nseed = 8\n{GUEST_TIMES}", file_system="ext4", arms=MOMENTS)
        await campaign.do("start", str(campaign.file), "--yes")
        state = await until_over(campaign)
        assert (state.state, state.reason) == ("ended", "complete"), await said(campaign)
        (result,) = results(state)
        # A guest that stands still may have nothing at risk, or lose its connection before the cut.
        expected = {REASONS["nothing-at-risk"], "the run's client had ended before the power went"}
        assert {text for _, _, text in result.left_out} <= expected, await said(campaign)
        assert {one.arm for one in result.arms if one.kept} == {"rest", "fill", "clean"}, await said(campaign)
        *_, twice = result.arms
        assert twice.clean or result.left_out, await said(campaign)
        assert (result.tally.cuts, result.tally.losses) == (twice.clean, 0), await said(campaign)
        cycles = [past.began.cycle for past in state.cycles if past.began.cycle]
        again = [cycle for cycle in cycles if arm_of(state.plan, cycle).again_after_s is not None]
        assert campaign.guest.boots == 2 + len(cycles) + len(again), await said(campaign)


async def until_over(campaign: GuestCampaign) -> CampaignState:
    """Wait for the end of the campaign, which goes on after pauses for a slow guest."""
    state = await campaign.until(lambda state: state.state != "running")
    while state.state == "paused" and state.reason.endswith(REASONS["nothing-at-risk"]):
        await campaign.do("resume", campaign.name)  # the guest was too slow for five cycles in a row
        state = await campaign.until(lambda state: state.state != "running")
    return state


def serials(campaign: GuestCampaign) -> list[str]:
    """The serials of the drives, by which `accept` knows them."""
    return [drive.device.name for drive in campaign.tested]


def decision(result: DriveResult, *, limit: int) -> str:
    """What the drive deserves of somebody who asks for that many clean cuts. A cut without a verdict, as of a
    guest that was too slow, leaves it open."""
    if result.tally.losses:
        return "refuse"
    return "pass" if result.tally.cuts >= limit and result.tally.bound is not None else "not shown"


async def decisions(campaign: GuestCampaign, *, limit: int) -> list[str]:
    """What `accept` says of each drive, if that many clean cuts are asked for."""
    answer = await accepted(campaign, limit=limit)
    decided = decisions_in(answer)
    assert answer.exit_code == (EXIT_LOSS if "refuse" in decided else EXIT_INCONCLUSIVE), answer
    for serial, decision in zip(serials(campaign), decided, strict=True):
        alone = await accepted(campaign, limit=limit, serial=serial)
        assert (alone.exit_code, decisions_in(alone)) == (EXIT_CODES[decision], [decision]), alone
    return decided


async def accepted(campaign: GuestCampaign, *, limit: int, serial: str = "") -> Answer:
    """The answer of `accept` if that many clean cuts are asked for, of all drives or of one."""
    profile = campaign.directory / f"cuts-{limit}.toml"
    profile.write_text(PROFILE.format(limit=limit))
    words = ("--drive", serial) if serial else ()
    return await campaign.durability("accept", str(profile), "--campaign", campaign.name, "--json", *words)


def decisions_in(answer: Answer) -> list[str]:
    """The decision on each drive in an answer of `accept`."""
    return [drive["decision"] for drive in json.loads(answer.out)["drives"]]


def lost_in(result: DriveResult) -> str:
    """The sentence that names the drive's first loss."""
    if result.first_loss is None:
        return "a loss"
    cycle, run = result.first_loss
    return f"{result.drive} lost data in cycle {cycle}: `durability show {run}`"
