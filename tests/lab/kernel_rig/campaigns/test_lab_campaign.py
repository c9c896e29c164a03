"""`durability lab campaign`, as a new user types it."""

from __future__ import annotations

import io
import re

import pytest

from durability.errors import EXIT_OK
from durability_lab.campaign_rig.lab_campaign_command import CampaignOptions, campaign
from tests.lab.kernel_rig.campaigns.campaign_steps import NOTHING_AT_RISK
from tests.lab.kernel_rig.under_load import StandstillError, again_after_a_standstill


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("rig_machine")
@again_after_a_standstill
async def test_a_loss_is_shown_with_its_evidence() -> None:
    """The honest drive is durable and the other one lost data; the run that showed it is printed, since its
    store is gone afterwards."""
    out, err = io.StringIO(), io.StringIO()
    code = await campaign(CampaignOptions(cuts=1, seed=3), out=out, err=err)
    said = out.getvalue()
    if NOTHING_AT_RISK in said:
        raise StandstillError(said)
    assert code == EXIT_OK, err.getvalue()
    assert "drive-1: no loss seen in 1 cut" in said and "drive-2: LOSS in 1 of 1 cut" in said
    lost = re.search(r"drive-2 lost data in cycle 1: `durability show (\w{16})`", said)
    assert lost is not None, said
    evidence = said[lost.end() :]
    assert lost[1] in evidence and "loss" in evidence, said
    assert "cycle 1 is over: drive-1: durable, drive-2: loss" in err.getvalue()
