"""The evidence that a sheet lists, in sentences."""

from __future__ import annotations

from durability_client.acceptance.sheet import listed
from tests.core.acceptance.samples import campaign, evidence


def test_losses_of_every_arm_are_listed() -> None:
    """A campaign's sentence counts the cuts and losses of all its arms, as its planned cuts do."""
    (said,) = listed(evidence(campaign(54, shutdowns=["kept", "loss", "loss", "kept", "loss"])))
    assert "59 of 59 cuts of class power, 3 with a loss, 0 left out" in said
