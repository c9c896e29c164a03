"""Campaigns on a machine behind a BMC: fence agent, BMC, machine, drives and agent are all real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from durability.campaign.campaign_state import CampaignState
from durability.campaign.results import DriveResult, results
from durability.errors import EXIT_ENVIRONMENT
from durability.evidence.verdict import REASONS
from durability_lab.campaign_rig.campaign_command import GUEST_TIMES
from durability_lab.vm_rig.guest_campaign import GuestCampaign, guest_campaign
from tests.lab.support.processes import naming
from tests.waiting import wait_for

pytestmark = [pytest.mark.usefixtures("campaign_machine"), pytest.mark.slow]

CUTS = 3
ARM = "[[arm]]\n"  # one writer: of others a slow guest may have nothing at risk
# On a busy machine a guest may stand still for a second before its cut; then a short delay loses nothing.
LIARS = ["early-ack:delay_ms=5000", "rollback:interval_ms=5000", "flush-skipped:one_in=2"]
WORKING_RIG = """
import asyncio
from durability_lab.vm_rig.guest_campaign import guest_campaign

async def main():
    async with guest_campaign(["honest"], seed=1) as campaign:
        print(campaign.directory, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.timeout(3600)
async def test_each_drive_of_a_guest_gets_what_it_deserves() -> None:
    """Three cuts: the honest drive is durable in each, in class `vm`. Each liar is named in the cycle of its
    first loss; the last one, which skips half of the flushes, may have luck. A cycle whose guest was too slow
    to have records at risk is repeated."""
    async with guest_campaign(["honest", *LIARS], seed=21) as campaign:
        campaign.write_file(campaign=f"cuts = {CUTS}\nseed = 7\n{GUEST_TIMES}", file_system="ext4", arms=ARM)
        started = await campaign.campaign("start", str(campaign.file), "--yes")
        assert started.err.count("ALL DATA ARE LOST") == 1 + len(LIARS), started
        state = await campaign.until(lambda state: state.state != "running")
        while state.state == "paused" and state.reason.endswith(REASONS["nothing-at-risk"]):
            await campaign.do("resume", campaign.name)  # the guest was too slow for five cycles in a row
            state = await campaign.until(lambda state: state.state != "running")
        assert (state.state, state.reason) == ("ended", "complete"), await said(campaign)
        honest, *liars = results(state)
        assert honest.tally.cuts >= CUTS and not honest.tally.losses, await said(campaign)
        left_out = {text for one in results(state) for _, _, text in one.left_out}
        assert left_out <= {REASONS["nothing-at-risk"]}, await said(campaign)
        assert honest.left_out or honest.tally.bound == pytest.approx(1 - 0.05 ** (1 / honest.tally.cuts))
        shown = (await campaign.do("show", campaign.name)).out
        for liar in liars:
            assert liar.tally.losses or liar is liars[-1], (liar, await said(campaign))
            assert not liar.tally.losses or lost_in(liar) in shown, (liar, await said(campaign))
        assert "drive-1 lost" not in shown
        judged = [one for past in state.cycles for one in past.judged.values()]
        assert {one.cut_class for one in judged} == {"vm"}
        cycles = [past for past in state.cycles if past.began.cycle]
        assert campaign.guest.boots == 2 + len(cycles)  # by hand, in the check, in each cycle


@pytest.mark.timeout(3600)
async def test_a_campaign_goes_on_after_each_trouble_of_its_bmc() -> None:
    """A BMC that hangs while the machine is off, one that was killed: each ends in the pause that the guide
    names, and goes on with `resume` once it is mended."""
    async with guest_campaign(["honest"], seed=31, bus="nvme") as campaign:
        campaign.request_s = 15.0
        times = "cut_after_s = [1, 2]\noff_s = [4, 5]\nboot_within_s = 900"
        campaign.write_file(campaign=f"cuts = 1\nseed = 7\n{times}", arms=ARM)
        await campaign.do("start", str(campaign.file), "--yes")

        await campaign.until(rests)
        boots = campaign.guest.boots
        os.kill(campaign.bmc.process_id, signal.SIGSTOP)
        await paused(campaign, "the power cannot be switched on again: ")
        campaign.kill_bmc()
        await campaign.do("resume", campaign.name)
        await paused(campaign, "the power cannot be switched on again: ")
        await campaign.start_bmc()
        await campaign.do("resume", campaign.name)

        state = await campaign.until(lambda state: state.state != "running")
        assert (state.state, state.reason) == ("ended", "complete"), await said(campaign)
        (honest,) = results(state)
        assert (honest.tally.cuts, honest.tally.losses) == (1, 0), honest
        # On a busy machine the guest may be too slow for a cycle, which is then left out.
        assert honest.left_out or (
            honest.tally.bound == pytest.approx(0.95) and campaign.guest.boots == boots + 1
        ), "troubles of a switch void nothing"


@pytest.mark.timeout(3600)
async def test_a_bmc_that_lies_and_a_machine_that_does_not_boot() -> None:
    """The check finds the BMC. The machine is switched on twice; after somebody has mended it and it has
    booted, `resume` goes on."""
    async with guest_campaign(["honest"], seed=41, bus="nvme") as campaign:
        machine = campaign.guest
        await heard(campaign, 1)
        times = "cut_after_s = [1, 2]\noff_s = [0.1, 0.2]\nboot_within_s = 20"
        campaign.write_file(campaign=f"cuts = 1\nseed = 7\n{times}", arms=ARM)
        machine.trouble("lies")
        check = await campaign.campaign("check", str(campaign.file), "--yes")
        assert check.exit_code == EXIT_ENVIRONMENT, check
        assert "the switch said that it was off, and machine guest" in check.out + check.err, check
        assert machine.boots == 1
        machine.trouble("dead")
        started = await campaign.campaign("start", str(campaign.file), "--yes")
        reason = "machine guest did not come back within 20 s, though it was switched on 2 times"
        await paused(campaign, reason)
        assert started.exit_code == EXIT_ENVIRONMENT and reason in started.out, started
        assert machine.boots == 3
        machine.trouble("")
        await campaign.replug_machine()
        await heard(campaign, 2)
        await campaign.do("resume", campaign.name)
        state = await campaign.until(lambda state: state.checked is not None or state.state != "running")
        assert state.checked is not None and not state.checked.problems, await said(campaign)
        await campaign.do("stop", campaign.name)


@pytest.mark.timeout(300)
def test_machine_bmc_and_server_go_with_the_process_that_started_them() -> None:
    """SIGKILL of a rig whose machine boots: QEMU, its drives, the BMC and the server end, no file stays."""
    with subprocess.Popen([sys.executable, "-c", WORKING_RIG], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        directory = Path(process.stdout.readline().strip())
        wanted = {"nbdkit", "ipmi_sim", "qemu-system-x86_64"}
        try:
            wait_for(lambda: wanted <= programs(directory), lambda: programs(directory))
        finally:
            process.kill()
    wait_for(lambda: not naming(directory) and not directory.exists(), lambda: naming(directory))


def programs(directory: Path) -> set[str]:
    """The names of the programs that were started with the directory in their command line."""
    return {Path(line[0]).name for line in naming(directory)}


def in_cycle(state: CampaignState, cycle: int, phase: str) -> bool:
    """Whether that cycle is in that phase; also where the campaign does not run any more."""
    now = state.cycle
    return state.state != "running" or (now is not None and (now.began.cycle, now.phase) == (cycle, phase))


def rests(state: CampaignState) -> bool:
    """Whether the machine is without power, between off and on; also where the campaign does not run."""
    return state.state != "running" or (state.cycle is not None and state.cycle.phase == "rest")


def lost_in(result: DriveResult) -> str:
    """The sentence that names the drive's first loss."""
    if result.first_loss is None:
        return "a loss"
    cycle, run = result.first_loss
    return f"{result.drive} lost data in cycle {cycle}: `durability show {run}`"


async def paused(campaign: GuestCampaign, reason: str) -> None:
    """Wait until the campaign has paused for a reason that begins so."""
    state = await campaign.until(lambda state: state.state != "running")
    assert state.state == "paused" and state.reason.startswith(reason), (
        state.reason,
        await said(campaign),
    )


async def heard(campaign: GuestCampaign, times: int) -> None:
    """Wait until the agent has said that often that it is connected."""
    await campaign.until_console(lambda console: console.count("connected to the server") >= times)


async def said(campaign: GuestCampaign) -> str:
    """The campaign's log, and what machine and server said, for a failure."""
    shown = await campaign.campaign("show", campaign.name, "--log")
    parts = (shown.out, shown.err, campaign.guest.console, campaign.server.log.read_text())
    return "\n".join(parts)
