"""Each fence agent of the distribution is known for what it switches, so that a new one is a decision."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from durability.campaign.definition.fence_agents import GUEST_AGENTS, METAL_AGENTS, POWERLESS_AGENTS


def test_every_installed_agent_is_classified() -> None:
    """An agent is of metal, of guests, or switches no power, and of one of these kinds alone."""
    installed = {path.name for path in Path("/usr/sbin").glob("fence_*")} - {"fence_virtd"}
    if not installed and os.environ.get("DURABILITY_LAB_REQUIRED") != "1":
        pytest.skip("no fence agents: install the package fence-agents")
    assert installed
    assert installed <= METAL_AGENTS | GUEST_AGENTS | POWERLESS_AGENTS
    assert not GUEST_AGENTS & POWERLESS_AGENTS
    assert not METAL_AGENTS & (GUEST_AGENTS | POWERLESS_AGENTS)
