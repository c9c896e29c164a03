"""A campaign whose BMC or machine fails, and the end of the rig, all made of real parts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from durability.campaign.campaign_state import CampaignState
from durability.campaign.results import results
from durability.errors import EXIT_ENVIRONMENT
from durability.evidence.verdict import REASONS
from durability_lab.vm_rig.guest_campaign import GuestCampaign, guest_campaign
from tests.lab.support.processes import naming
from tests.lab.vm_rig.guest_logs import said
from tests.waiting import wait_for

pytestmark = [pytest.mark.usefixtures("campaign_machine"), pytest.mark.slow]

CUTS = int(os.environ.get("DURABILITY_CUTS_WITH_BMC_KILLS", "1"))
TOO_SLOW = REASONS["nothing-at-risk"]
ARM = "[[arm]]\n"  # one writer: of others a slow guest may have nothing at risk
WORKING_RIG = """
import asyncio
from durability_lab.vm_rig.guest_campaign import guest_campaign

async def main():
    async with guest_campaign(["honest"], seed=1) as campaign:
        print(campaign.directory, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.timeout(3600 * CUTS)
async def test_a_campaign_goes_on_after_each_trouble_of_its_bmc() -> None:
    """A BMC is killed at every step of a cycle and started again, and hangs while the machine is off:
    once it is mended, the machine is on, and the campaign goes on by itself."""
    async with guest_campaign(["honest"], seed=31, bus="nvme") as campaign:
        campaign.request_s = 15.0
        times = "cut_after_s = [1, 2]\noff_s = [4, 5]\nboot_within_s = 900"
        campaign.write_file(campaign=f"cuts = {CUTS}\nseed = 7\n{times}", arms=ARM)
        await campaign.do("start", str(campaign.file), "--yes")

        killed = await kill_bmc_at_every_step(campaign, until=rests)
        boots = campaign.guest.boots
        os.kill(campaign.bmc.process_id, signal.SIGSTOP)
        await campaign.until(fails_to_go_on)
        killed += await kill_bmc_at_every_step(campaign, until=over)

        print(killed)
        state = await campaign.until(over)
        assert (state.state, state.reason) == ("ended", "complete"), await said(campaign)
        assert {"run", "load", "off", "on", "back"} <= {step.split()[0] for step in killed}, killed
        (honest,) = results(state)
        assert (honest.tally.cuts, honest.tally.losses) == (CUTS, 0), honest
        # On a busy machine the guest may be too slow for a cycle, which is then left out.
        assert honest.left_out or campaign.guest.boots == boots + CUTS, "troubles of a switch void nothing"


@pytest.mark.timeout(3600)
async def test_a_bmc_that_lies_and_a_machine_that_does_not_boot() -> None:
    """The check finds a BMC that lies. A machine that does not boot is switched on twice. After it was
    repaired and has booted, `resume` continues to the end, and its cut is counted."""
    async with guest_campaign(["honest"], seed=41, bus="nvme") as campaign:
        machine, began_s = campaign.guest, time.monotonic()
        await heard(campaign, 1)
        within_s = round(max(20.0, 2 * (time.monotonic() - began_s)))  # a busy machine boots slowly
        times = f"cut_after_s = [2, 4]\noff_s = [0.1, 0.2]\nboot_within_s = {within_s}"
        campaign.write_file(campaign=f"cuts = 1\nseed = 7\n{times}", arms=ARM)
        machine.trouble("lies")
        check = await campaign.campaign("check", str(campaign.file), "--yes")
        assert check.exit_code == EXIT_ENVIRONMENT, check
        assert "the switch said that it was off, and machine guest" in check.out + check.err, check
        assert machine.boots == 1
        machine.trouble("dead")
        started = await campaign.campaign("start", str(campaign.file), "--yes")
        missing = f"machine guest did not come back within {within_s} s, though it was switched on"
        reason = f"{missing} 2 times"
        await paused(campaign, reason)
        assert started.exit_code == EXIT_ENVIRONMENT and reason in started.out, started
        assert machine.boots == 3
        machine.trouble("")
        await campaign.replug_machine()
        await heard(campaign, 2)
        await campaign.do("resume", campaign.name)
        state = await campaign.until(over)
        # On a busy machine a later boot may take longer than the first one, or the load be too slow.
        while state.state == "paused" and (missing in state.reason or TOO_SLOW in state.reason):
            await campaign.do("resume", campaign.name)
            state = await campaign.until(over)
        assert (state.state, state.reason) == ("ended", "complete"), await said(campaign)
        (honest,) = results(state)
        assert (honest.tally.cuts, honest.tally.losses) == (1, 0), await said(campaign)


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


async def kill_bmc_at_every_step(
    campaign: GuestCampaign, *, until: Callable[[CampaignState], bool]
) -> list[str]:
    """Kill the BMC and start it again as soon as the log says that another step has begun, until `until`;
    returns the steps."""
    killed: list[str] = []
    async for _, state in campaign.follow():
        if until(state):
            return killed
        cycle = state.cycle
        step = "" if cycle is None else f"{cycle.phase} of cycle {cycle.began.cycle}"
        if step and step not in killed:
            campaign.kill_bmc()
            await campaign.start_bmc()
            killed.append(step)
    raise AssertionError("a log is followed for ever")


def over(state: CampaignState) -> bool:
    """Whether the campaign does not run."""
    return state.state != "running"


def rests(state: CampaignState) -> bool:
    """Whether the machine is without power, between off and on; also where the campaign does not run."""
    return state.state != "running" or (state.cycle is not None and state.cycle.phase == "rest")


def fails_to_go_on(state: CampaignState) -> bool:
    """Whether the switch was asked to go on, and has failed; also where the campaign does not run."""
    cycle = state.cycle
    return state.state != "running" or (
        cycle is not None and cycle.phase == "on" and cycle.switches[0].attempts > 0
    )


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
