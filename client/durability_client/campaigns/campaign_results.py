"""The results of a campaign, and the health of its drives, as plain values, for JSON."""

from __future__ import annotations

from durability.campaign.campaign_state import CampaignState
from durability.campaign.health import health_rows, health_warnings
from durability.campaign.results import losses_so_far, results
from durability.formats.documents import to_value
from durability.formats.packing import Value


def results_to_value(state: CampaignState) -> list[Value]:
    """One map for each drive, keys as in `durability.campaign.results.DriveResult`."""
    return [to_value(result) for result in results(state)]


def losses_so_far_to_value(state: CampaignState) -> list[Value]:
    """One map for each loss in the present cycle, keys as in `durability.campaign.results.LossSoFar`."""
    return [to_value(loss) for loss in losses_so_far(state)]


def health_to_value(state: CampaignState) -> list[Value]:
    """One map for each drive: its rows and warnings, keys as in `durability.campaign.health`."""
    health: list[Value] = []
    for drive in state.plan.drives:
        rows = health_rows(state, drive.name)
        warnings = [to_value(warning) for warning in health_warnings(rows)]
        health.append({"drive": drive.name, "rows": [to_value(row) for row in rows], "warnings": warnings})
    return health
