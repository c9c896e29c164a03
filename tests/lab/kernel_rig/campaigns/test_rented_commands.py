"""The commands of the pages on rented disks and servers, typed in their order, on a drive of the lab.

Replaced are only names and times: the drive, its mount point, the switch, the length of the benchmark, one
cut in the place of 59, and what the harness does in the same way (the server, `join`, the agent's service).
Left out is what needs a provider: the reset by hand, and the drive's own counters.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from durability.errors import EXIT_OK
from durability_lab.campaign_rig.lab_campaign_command import TIMES
from durability_lab.kernel_rig.real_campaign import RealCampaign, real_campaign
from tests.lab.kernel_rig.campaigns.campaign_steps import log_of, over
from tests.places import DOCS

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.slow]
CUTS = 1
SHORT = "--only headline --size 8MiB --wait 0"  # of a benchmark
EXIT_NOT_SHOWN = 4
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
ELSEWHERE = ("durability serve", "durability join", "durability agent install", "smartctl ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page, the heading of its part that needs a provider's console, and the names and minutes in its
    commands."""

    name: str
    by_hand: str
    device: str
    mount_point: str
    campaign: str
    cut_class: str
    minutes: int

    @property
    def text(self) -> str:
        return (DOCS / f"how-to/{self.name}.md").read_text()

    def typed(self) -> list[str]:
        """What it says to type, in its order, but by hand."""
        parts = re.split(r"^(?=## )", self.text, flags=re.M)
        assert any(part.startswith(self.by_hand) for part in parts)
        chosen = "".join(part for part in parts if not part.startswith(self.by_hand))
        lines = [line for _, block in BLOCK.findall(chosen) for line in block.splitlines()]
        typed = [line[3:] for line in lines if re.match(r"[AB][$#] ", line)]
        return [line for line in typed if not line.startswith(ELSEWHERE)]

    def campaign_file(self, campaign: RealCampaign) -> str:
        """Its file, with the lab's switch and drive, and few quick cycles."""
        (text,) = (str(block) for kind, block in BLOCK.findall(self.text) if kind == "toml")
        text, count = re.subn(r"^(?:on|off|status|timeout_s|cut_class) = .*\n", "", text, flags=re.M)
        assert count == 5
        (drive,) = campaign.tested
        switch = campaign.power().replace('cut_class = "power"', f'cut_class = "{self.cut_class}"')
        text = text.replace("[power]\n", f"[power]\n{switch}\n").replace(self.device, str(drive.device))
        return (
            text.replace("[campaign]\n", f"[campaign]\ncuts = {CUTS}\nseed = 5\n{TIMES}\n")
            + 'size = "8MiB"\n'
        )


DISK = Page(
    name="test-a-rented-disk",
    by_hand="## Without an API",
    device="/dev/disk/by-id/scsi-EXAMPLE",
    mount_point="/mnt/volume",
    campaign="rented",
    minutes=60,
    cut_class="vm",
)
SERVER = Page(
    name="test-a-rented-server",
    by_hand="## 4.",
    device="/dev/disk/by-id/nvme-EXAMPLE",
    mount_point="/mnt/drive",
    campaign="server",
    minutes=30,
    cut_class="power",
)


@pytest.fixture
def mount_point(tmp_path: Path) -> Iterator[Path]:
    """Where the drive is mounted; nothing is there at the end."""
    path = tmp_path / "mounted"
    yield path
    if path.is_mount():  # of a test that failed
        subprocess.run(("umount", "--lazy", str(path)), check=True)


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("page", [DISK, SERVER], ids=lambda page: page.name)
async def test_the_page_leads_from_the_order_to_the_decision(
    page: Page, tmp_path: Path, mount_point: Path
) -> None:
    """Each command does what the page says; one cut is too few, so the decision is `not shown`."""
    async with real_campaign(["honest"], seed=9) as campaign:
        campaign.name, campaign.file = page.campaign, tmp_path / f"{page.campaign}.toml"
        campaign.file.write_text(page.campaign_file(campaign))
        (drive,) = campaign.tested
        replaced = {
            page.device: str(drive.device),
            page.mount_point: str(mount_point),
            f"--accept --minutes {page.minutes}": f"--quick {SHORT} -o {tmp_path}/result.json",
            "--profile dedicated-server": f"--profile dedicated-server {SHORT}",
            f"{page.campaign}.toml": str(campaign.file),
            f"{page.campaign}.html": str(tmp_path / "report.html"),
        }
        for written in page.typed():
            line = written
            for old, new in replaced.items():
                line = line.replace(old, new)
            await _type(campaign, line)
            if written.startswith("durability campaign start"):
                state = await over(campaign)
                assert state.reason == "complete", await log_of(campaign)
                assert state.plan.cut_class == page.cut_class
        assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
        assert (tmp_path / "report.json").exists()


async def _type(campaign: RealCampaign, line: str) -> None:
    """One command, as a person types it; whoever is asked says yes."""
    program, *words = shlex.split(line)
    if program != "durability":
        done = await asyncio.to_thread(subprocess.run, (program, *words), capture_output=True)
        assert not done.returncode, (line, done.stderr)
        return
    if words[:2] in (["campaign", "check"], ["campaign", "start"]):
        words.append("--yes")
    answer = await campaign.durability(*words)
    expected = EXIT_NOT_SHOWN if words[0] == "accept" else EXIT_OK
    assert answer.exit_code == expected, (line, answer)
    if words[:2] == ["campaign", "show"]:
        assert f"no loss seen in {CUTS} cut" in answer.out, answer.out
