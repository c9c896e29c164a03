"""What `durability lab campaign` refuses before it sets up anything."""

from __future__ import annotations

import io

import pytest

from durability.errors import UsageError
from durability_lab.campaign_rig.lab_campaign_command import CampaignOptions, campaign


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
