"""What `accept` says of drives that a power cut of a whole machine has changed for good."""

from __future__ import annotations

import json

import pytest

from durability.errors import EXIT_LOSS
from durability_lab.campaign_rig.lab_campaign_command import GUEST_TIMES
from durability_lab.vm_rig.guest_campaign import guest_campaign
from tests.lab.vm_rig.guest_logs import said

pytestmark = [pytest.mark.usefixtures("campaign_machine"), pytest.mark.slow]

# Both survive the cut of the check and that of the first cycle.
DRIVES = ["smaller:share=0.5,from_cut=3", "dead:from_cut=3"]
CYCLES = 2
PROFILE = """
[profile]
title = "What a cut must not change"

[[criterion]]
kind = "always-there"
reason = "It must come back."

[[criterion]]
kind = "capacity-kept"
reason = "It must come back whole."

[[criterion]]
kind = "ready-within"
limit = 0.001
reason = "No machine boots so fast."
"""


@pytest.mark.timeout(3600)
async def test_a_drive_that_a_cut_has_changed_is_refused() -> None:
    """One comes back with half of its sectors, one answers with errors only; both were good after the cut
    before. Each criterion refuses the drive that fails it, and names the cycle."""
    async with guest_campaign(DRIVES, seed=22) as campaign:
        campaign.write_file(
            campaign=f"cuts = {CYCLES}\nseed = 7\n{GUEST_TIMES}", file_system="ext4", arms="[[arm]]\n"
        )
        await campaign.do("start", str(campaign.file), "--yes")
        await campaign.until(
            lambda state: (
                sum(past.began.cycle > 0 for past in state.cycles) >= CYCLES or state.state != "running"
            )
        )
        profile = campaign.directory / "kept.toml"
        profile.write_text(PROFILE)
        answer = await campaign.durability("accept", str(profile), "--campaign", campaign.name, "--json")
        assert answer.exit_code == EXIT_LOSS, f"{answer}\n{await said(campaign)}"
        serials = {str(drive.device.name): drive.name for drive in campaign.tested}
        lines = {
            (serials[drive["subject"]["serial"]], line["kind"]): line
            for drive in json.loads(answer.out)["drives"]
            for line in drive["criteria"]
        }
        assert {at: line["word"] for at, line in lines.items()} == {
            ("drive-1", "always-there"): "pass",
            ("drive-1", "capacity-kept"): "refuse",
            ("drive-1", "ready-within"): "refuse",
            ("drive-2", "always-there"): "refuse",
            ("drive-2", "capacity-kept"): "not shown",
            ("drive-2", "ready-within"): "refuse",
        }, await said(campaign)
        for at in (("drive-1", "capacity-kept"), ("drive-2", "always-there")):
            assert f"in cycle {CYCLES}" in lines[at]["figure"] or f"cycle {CYCLES} of" in lines[at]["figure"]
