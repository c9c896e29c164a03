"""What `durability lab campaign` refuses before it sets up anything, and what it reads from the log."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from durability.campaign.log_entries import CutDue, Entry, Happening, MachineSeen, PowerCameBack
from durability.errors import UsageError
from durability_lab.campaign_rig.lab_campaign_command import BootTimes, CampaignOptions, campaign
from durability_lab.vm_rig.live_machine import LiveImage


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (CampaignOptions(models=("honest",), rig="c", file_system="xfs"), "ext4 or a raw device, not xfs"),
        (CampaignOptions(models=("honest",) * 7, rig="c"), "at most 6 drives, not 7"),
        (CampaignOptions(models=("filter-honest",), rig="c"), "rig c has no drive filter-honest"),
        (CampaignOptions(models=("nonsuch",)), "unknown drive model 'nonsuch'"),
    ],
)
async def test_a_rig_refuses_what_it_has_not(options: CampaignOptions, why: str) -> None:
    """Before anything is set up, as a usage error that says what there is."""
    with pytest.raises(UsageError, match=why):
        await campaign(options, out=io.StringIO(), err=io.StringIO())


async def test_only_the_virtual_machine_boots_an_image() -> None:
    """Rig b has no machine of its own."""
    live = LiveImage(iso=Path("live.iso"), firmware="bios")
    with pytest.raises(UsageError, match="add --rig c"):
        await campaign(CampaignOptions(live=live), out=io.StringIO(), err=io.StringIO())


def entry(at_s: float, happening: Happening) -> Entry:
    """An entry of a log."""
    return Entry(
        number=1, at_ns=int(at_s * 1e9), boot_id="b", wall="2026-11-23T12:00:00Z", happening=happening
    )


def test_boot_times_are_a_line_for_each_cycle() -> None:
    """It comes when all runs are armed; a run that is armed without a boot before has none."""
    times = BootTimes()
    seen = MachineSeen(
        machine="guest", boot_id="x", machine_id="m", uptime_s=1.0, virtualisation="", software="s"
    )
    log: list[tuple[float, Happening]] = [
        (0.0, CutDue(in_s=1.0)),
        (5.0, PowerCameBack()),
        (47.4, seen),
        (60.6, CutDue(in_s=2.0)),
    ]
    lines = [times.line(entry(at_s, happening)) for at_s, happening in log]
    assert lines == ["", "", "", "from power on: 42 s to the agent, 56 s to armed"]
    assert times.line(entry(70.0, CutDue(in_s=2.0))) == ""
