"""What a campaign on a guest leaves to read, for failures of its tests."""

from __future__ import annotations

from durability_lab.vm_rig.guest_campaign import GuestCampaign


async def said(campaign: GuestCampaign) -> str:
    """The campaign's log, and what machine and server said, for a failure."""
    shown = await campaign.campaign("show", campaign.name, "--log")
    parts = (shown.out, shown.err, campaign.guest.console, campaign.server.log.read_text())
    return "\n".join(parts)
