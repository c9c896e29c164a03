"""Campaigns of real parts while what they run on fails: killed processes, a network that is gone, a full
disk."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from durability.campaign.campaign_state import CampaignState
from durability.campaign.results import results
from durability_lab.campaign_rig.lab_campaign_command import TIMES
from durability_lab.kernel_rig.real_campaign import RealCampaign, real_campaign
from tests.lab.kernel_rig.campaigns.campaign_steps import (
    DEADLINE_S,
    assert_is_counted_right,
    in_phase,
    log_of,
    over,
    reach,
    start,
)
from tests.server.campaigns.test_campaign_kills import controllers_of
from tests.server.conftest import SmallDisk
from tests.waiting import wait_for

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.slow, pytest.mark.timeout(1000)]
CUTS = int(os.environ.get("DURABILITY_CUTS_WITH_KILLS", "3"))
FEW_CUTS = 2
LIAR = "early-ack:delay_ms=500"
CAUSES = ("agent", "not-armed", "inconclusive")
KILL_RATE = 0.5
KILLS_MIN = 6  # on a machine so busy that it passes over moments
CONTROLLER_KILLS_MAX = 2  # in a cycle: three failures of a request are an answer, and leave the cycle out
STORE_MIB = 32
GONE_S = float(os.environ.get("DURABILITY_NETWORK_GONE_S", "0"))  # how long the network stays away in a pause


class Killer:
    """Kills a process of the campaign when its log has grown, as drawn from a seed, and starts it again."""

    def __init__(self, campaign: RealCampaign, seed: int) -> None:
        self._campaign = campaign
        self._draw = random.Random(seed)
        self._controller_kills: dict[int, int] = {}
        self.kills: list[str] = []

    async def look(self, state: CampaignState) -> None:
        """Kill, or not. In every other cycle only after the cut, so that there are cuts that count."""
        cycle = state.cycle
        if cycle is None or self._draw.random() >= KILL_RATE:
            return
        number = cycle.began.cycle
        if number and number % 2 == 0 and not cycle.offs:
            return
        victim = self._draw.choice(["server", "agent", "controller"])
        if victim == "controller":
            if self._controller_kills.setdefault(number, 0) >= CONTROLLER_KILLS_MAX:
                return
            self._controller_kills[number] += 1
        await self._kill(victim)
        self.kills.append(f"{victim} in {cycle.phase} of cycle {number}")

    async def _kill(self, victim: str) -> None:
        campaign = self._campaign
        if victim == "server":
            await asyncio.to_thread(campaign.server.kill)
            await campaign.start_server()
        elif victim == "agent":
            await asyncio.to_thread(campaign.agent.kill)
            campaign.start_agents()
        else:
            for process in controllers_of(campaign.server.pid):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


@pytest.mark.timeout(1000 * CUTS)
async def test_kills_of_every_process(seed: int) -> None:
    """Server, agent and power controller are killed again and again: all cuts are made, each is counted
    once, each armed run has a verdict, and only the drive that lies is named."""
    async with real_campaign(["honest", LIAR], seed=seed) as campaign:
        campaign.write_file(campaign=f"cuts = {CUTS}\nseed = {seed}\n{TIMES}", file_system="ext4")
        await start(campaign)
        killer = Killer(campaign, seed)
        try:
            async with asyncio.timeout(DEADLINE_S * CUTS):
                async for _, state in campaign.follow():
                    if state.state != "running":
                        break
                    await killer.look(state)
        except TimeoutError:
            pytest.fail(f"{killer.kills}\n{await log_of(campaign)}")
        print(killer.kills)
        state = await assert_is_counted_right(campaign)
        assert (state.state, state.reason) == ("ended", "complete"), await log_of(campaign)
        assert len(killer.kills) >= KILLS_MIN
        honest, liar = results(state)
        assert (honest.tally.cuts, honest.tally.losses, honest.left) == (CUTS, 0, ""), honest
        assert liar.tally.losses == 1 and liar.left.startswith("loss in cycle"), await log_of(campaign)
        for past in state.cycles:
            for mine in past.drives:
                if mine.word == "nothing":  # a run may have found no server to begin with
                    assert mine.cause in CAUSES or "cannot connect" in mine.text, mine
                assert not mine.run or past.judged[mine.drive].verdict, (mine, await log_of(campaign))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """Between the server, at `address`, and the machine under test, which is the namespace `namespace`."""

    namespace: str
    address: str

    def plug(self) -> None:
        """Plug it in."""
        ip("-n", self.namespace, "link", "set", "cable", "up")

    def pull(self) -> None:
        """Pull it out: nothing says so to either end."""
        ip("-n", self.namespace, "link", "set", "cable", "down")


@pytest.fixture
def cable() -> Iterator[Cable]:
    """A machine under test with a network of its own, and a cable to it, plugged in."""
    pid = os.getpid()
    cable = Cable(
        namespace=f"durability-c-{pid}", address=f"198.18.{pid % 100}.1"
    )  # a network of this process
    ip("netns", "add", cable.namespace)
    try:
        end = f"dur{pid}"
        ip("link", "add", end, "type", "veth", "peer", "name", "cable", "netns", cable.namespace)
        ip("address", "add", f"{cable.address}/30", "dev", end)
        ip("link", "set", end, "up")
        ip("-n", cable.namespace, "address", "add", f"198.18.{pid % 100}.2/30", "dev", "cable")
        cable.plug()
        yield cable
    finally:
        ip("netns", "delete", cable.namespace)


def ip(*arguments: str) -> None:
    """Raises CalledProcessError."""
    subprocess.run(("ip", *arguments), check=True, capture_output=True, timeout=60)


@pytest.mark.timeout(1000 + 2 * GONE_S)
async def test_a_network_that_is_gone(cable: Cable) -> None:
    """A machine that is not heard is not cut, and its run is verified once the network is back; one that
    stays away pauses the campaign, which goes on when it is resumed."""
    times = TIMES.replace("boot_within_s = 300", "boot_within_s = 40")
    times = times.replace("cut_after_s = [0.3, 1]", "cut_after_s = [20, 20]")  # unheard for long by then
    address, namespace = f"{cable.address}:0", cable.namespace
    async with real_campaign(["honest"], seed=16, address=address, namespace=namespace) as campaign:
        campaign.write_file(campaign=f"cuts = {FEW_CUTS}\nseed = 7\n{times}")
        await start(campaign)
        await reach(campaign, in_phase("load", 1))
        cable.pull()
        await reach(campaign, in_phase("back", 1))
        cable.plug()
        await reach(campaign, in_phase("load", 2))
        cable.pull()
        paused = await over(campaign)
        assert paused.state == "paused", await log_of(campaign)
        assert paused.reason.startswith("machine b has not asked for its task for 40 s"), paused.reason
        await asyncio.sleep(GONE_S)
        cable.plug()
        await campaign.do("resume", campaign.name)
        state = await over(campaign)
        assert (state.state, state.reason) == ("ended", "complete"), await log_of(campaign)
        (result,) = results(state)
        assert (result.tally.cuts, result.tally.losses) == (FEW_CUTS, 0), result
        assert {cause for _, cause, _ in result.left_out} <= {"agent", "inconclusive"}, result
        await assert_is_counted_right(campaign)


@pytest.fixture
def small_store(tmp_path: Path) -> Iterator[SmallDisk]:
    """A small file system for the server's store."""
    options = ("-o", f"size={STORE_MIB}m,mode=700")
    subprocess.run(("mount", "-t", "tmpfs", *options, "small", tmp_path), check=True, timeout=60)
    try:
        yield SmallDisk(tmp_path)
    finally:
        subprocess.run(("umount", tmp_path), check=True, timeout=60)


async def test_a_full_disk_of_the_server(small_store: SmallDisk) -> None:
    """While the server's disk is full the campaign takes no step; with room again it goes on by itself."""
    async with real_campaign(["honest"], seed=17, store=small_store.store_url) as campaign:
        campaign.write_file(campaign=f"cuts = {FEW_CUTS}\nseed = 7\n{TIMES}")
        await start(campaign)
        await reach(campaign, in_phase("load", 1))
        small_store.fill()
        said = await reach_errors(campaign)
        before = await campaign.entries()
        await reach_errors(campaign, more_than=said)
        assert await campaign.entries() == before
        small_store.free()
        state = await over(campaign)
        assert (state.state, state.reason) == ("ended", "complete"), await log_of(campaign)
        (result,) = results(state)
        assert (result.tally.cuts, result.tally.losses) == (FEW_CUTS, 0), result
        assert {cause for _, cause, _ in result.left_out} <= {"inconclusive"}, result
        await assert_is_counted_right(campaign)


async def reach_errors(campaign: RealCampaign, *, more_than: int = 0) -> int:
    """How often the campaign could not take a step, once that is more often."""

    def said() -> int:
        return campaign.server.log.read_text().count(f"campaign {campaign.name}: ")

    await asyncio.to_thread(wait_for, lambda: said() > more_than, campaign.server.log.read_text)
    return said()
