"""Campaigns end to end: the commands that people type, a server, an agent, drives that lose their power."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from durability.campaign.results import results, sentence
from durability.errors import EXIT_OK
from durability.formats.documents import to_json, to_value
from durability_lab.campaign_rig.lab_campaign_command import TIMES
from durability_lab.kernel_rig.real_campaign import RealCampaign, real_campaign
from tests.chromium import Browser
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

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.slow]
CUTS = 3
LIAR = "early-ack:delay_ms=500"
# Long enough for a command to come before the cut on a busy machine.
TIMES_TO_ACT = TIMES.replace("cut_after_s = [0.3, 1]", "cut_after_s = [12, 12]")


@pytest.mark.timeout(1000)
async def test_the_one_drive_that_lies_is_named(tmp_path: Path) -> None:
    """Check, start, three cuts of two drives on ext4: the honest one is durable in each, the liar named."""
    async with real_campaign(["honest", LIAR], seed=11) as campaign:
        campaign.write_file(campaign=f"cuts = {CUTS}\nseed = 7\n{TIMES}", file_system="ext4")
        check = await campaign.campaign("check", str(campaign.file), "--yes")
        assert check.exit_code == EXIT_OK, check
        assert "Check passed" in check.out and "power went off" in check.err
        started = await campaign.campaign("start", str(campaign.file), "--yes")
        assert started.exit_code == EXIT_OK and "ALL DATA WILL BE LOST" in started.err, started
        state = await over(campaign)
        assert (state.state, state.reason) == ("ended", "complete"), await log_of(campaign)
        honest, liar = results(state)
        assert (honest.tally.cuts, honest.tally.losses, not_counted(honest)) == (CUTS, 0, []), honest
        assert honest.left_out or honest.tally.bound == pytest.approx(1 - 0.05 ** (1 / CUTS))
        assert liar.first_loss is not None and liar.left.startswith("loss in cycle"), liar
        cycle, run = liar.first_loss
        # A busy machine may have had nothing at risk at a cut, which then takes a cycle more.
        cycles = max(past.began.cycle for past in state.cycles)
        assert cycles == CUTS + len(honest.left_out) and campaign.drives.cuts == cycles + 1
        await assert_is_counted_right(campaign)

        shown = (await campaign.do("show", campaign.name)).out
        assert f"drive-2 lost data in cycle {cycle}: `durability show {run}`" in shown
        assert "drive-1 lost" not in shown
        assert "loss" in (await campaign.durability("show", run)).out
        page = (await campaign.do("status")).out
        assert "no loss seen in 3 cuts" in page and f"first in cycle {cycle}" in page

        exported, junit = tmp_path / "campaign.json", tmp_path / "junit.xml"
        await campaign.do("export", campaign.name, "-o", str(exported), "--junit", str(junit))
        document = json.loads(exported.read_text())
        runs = [mine.run for past in state.cycles for mine in past.drives]
        assert sorted(document["runs"]) == sorted(runs) and len(runs) == cycles + cycle
        for case in document["runs"].values():
            assert case["case"]["power_offs"] and case["case"]["verdicts"]
        suites = ElementTree.parse(junit).getroot().findall("testsuite")
        failures = [(suite.get("package"), suite.get("tests"), suite.get("failures")) for suite in suites]
        assert failures == [("drive-1", str(cycles + 1), "0"), ("drive-2", str(cycle + 1), "1")]


@pytest.mark.timeout(1000)
async def test_of_two_machines_with_two_drives_each_the_one_liar_is_named(browser: Browser) -> None:
    """Two agents, each with two drives, are cut together: the liar is named, and no other drive. A browser
    shows the campaign as it goes, and at the end what the commands say."""
    models = ["honest", "honest", LIAR, "honest"]
    async with real_campaign(models, seed=13, machines=["b", "c"], web=True) as campaign:
        campaign.write_file(campaign=f"cuts = {CUTS}\nseed = 7\n{TIMES}", file_system="ext4")
        started = await campaign.campaign("start", str(campaign.file), "--yes")
        assert started.exit_code == EXIT_OK, started
        browsing = asyncio.create_task(show_to_the_end(browser, campaign))
        state = await over(campaign)
        assert (state.state, state.reason) == ("ended", "complete"), await log_of(campaign)
        found = {one.drive: one for one in results(state)}
        (cycle, _) = found["drive-3"].first_loss or (0, "")
        assert cycle, await log_of(campaign)
        shown = (await campaign.do("show", campaign.name)).out
        assert f"drive-3 lost data in cycle {cycle}: " in shown
        for honest in ("drive-1", "drive-2", "drive-4"):
            tally = found[honest].tally
            # A cut more, where another drive had nothing at risk at one.
            assert tally.cuts >= CUTS and not tally.losses, await log_of(campaign)
            assert f"{honest} lost" not in shown
        await assert_is_counted_right(campaign)
        counts, page = await browsing
        assert counts == sorted(counts) and counts[0] < CUTS
        told = json.loads((await campaign.do("show", campaign.name, "--json")).out)["results"]
        assert told == json.loads(to_json([to_value(one) for one in results(state)]))
        for one in results(state):
            assert sentence(one) in page, page
            cells = (
                "all under load",
                "load",
                one.tally.cuts,
                one.tally.cuts - one.tally.losses,
                one.tally.losses,
            )
            assert "\t".join(map(str, (one.drive, *cells))) in page, page


async def show_to_the_end(browser: Browser, campaign: RealCampaign) -> tuple[list[int], str]:
    """The counts of clean cuts of `drive-1` that a page which is loaded once shows as they come, and all of
    its text once the campaign has ended."""
    counts: list[int] = []
    await asyncio.to_thread(browser.open, f"{campaign.page}campaigns/{campaign.name}")
    while True:
        text = str(await asyncio.to_thread(browser.evaluate, "document.body.innerText"))
        if (row := re.search(r"drive-1\tall under load\tload\t(\d+)", text)) and int(row[1]) not in counts:
            counts.append(int(row[1]))
        if "ended: complete" in text:
            return counts, text
        await asyncio.sleep(0.2)


@pytest.mark.timeout(1000)
async def test_an_operator_has_the_drive_in_a_pause(tmp_path: Path) -> None:
    """Paused while runs go, the drive can be read and is not mounted; resumed, it is cut; stopped while runs
    go, it is over for good."""
    async with real_campaign(["honest"], seed=12) as campaign:
        (drive,) = campaign.drives.drives
        campaign.write_file(campaign=f"cuts = {CUTS}\n{TIMES_TO_ACT}", file_system="ext4")
        await start(campaign)
        await reach(campaign, in_phase("load", 1))
        await campaign.do("pause", campaign.name)
        paused = await over(campaign)
        assert (paused.state, paused.reason) == ("paused", ""), await log_of(campaign)
        assert drive.has_power and not mounted_by(campaign)
        assert "target" in mount_and_list(drive.path, tmp_path)
        assert "paused" in (await campaign.do("status")).out

        await campaign.do("resume", campaign.name)
        await reach(campaign, in_phase("load", 3))
        await campaign.do("stop", campaign.name)
        stopped = await over(campaign)
        assert (stopped.state, stopped.reason) == ("ended", "stopped"), await log_of(campaign)
        assert drive.has_power and not mounted_by(campaign)
        (result,) = results(stopped)
        assert (result.tally.cuts + idle_cuts(result), result.tally.losses) == (1, 0)
        assert [cause for _, cause in not_counted(result)] == ["operator", "operator"]
        assert (await campaign.campaign("resume", campaign.name)).exit_code != EXIT_OK
        await assert_is_counted_right(campaign)


def mounted_by(campaign: RealCampaign) -> list[str]:
    """What the agent has mounted."""
    lines = Path("/proc/self/mounts").read_text(errors="surrogateescape").splitlines()
    return [line for line in lines if str(campaign.directory) in line.split()[1]]


def mount_and_list(device: Path, directory: Path) -> list[str]:
    """What a file system holds, as an operator looks at it."""
    subprocess.run(("mount", "-o", "ro", device, directory), check=True, timeout=60)
    try:
        return sorted(path.name for path in directory.iterdir())
    finally:
        subprocess.run(("umount", directory), check=True, timeout=60)
