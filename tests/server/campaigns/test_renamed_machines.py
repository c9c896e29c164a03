"""Machines that get another name while their agents are connected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from durability.protocol import messages
from tests.server.campaigns.test_campaign_intruders import say, status, tenant_of
from tests.server.campaigns.test_campaigns import begin, settings_of

if TYPE_CHECKING:
    from tests.server.conftest import Lab


def _switched_on(power: Path) -> Path:
    power.write_text("on\n")
    return power


@pytest.mark.slow
async def test_an_agent_is_known_by_its_newest_name(lab: Lab, sqlite_url: str, tmp_path: Path) -> None:
    """Without another connection; and who gets its old name is that machine."""
    running = await lab.start(sqlite_url)
    agent = await lab.connect(running.address, "agent")
    other = await lab.connect(running.address, "agent", member=await tenant_of(lab, running))
    operator = await lab.connect(running.address, "operate", local=True)
    await operator.ask(messages.Rename(client="test", name="b"), messages.Stored)
    await operator.ask(messages.Rename(client="other", name="test"), messages.Stored)
    settings = settings_of(_switched_on(tmp_path / "power"))
    drives = tuple(replace(drive, machine="b") for drive in settings.drives)
    switches = tuple(replace(one, machine="b") for one in settings.power)
    await begin(
        lab,
        running,
        replace(settings, machines=("b",), drives=drives, power=switches),
        check_only=True,
    )
    assert (await say(agent, status())).campaign == "trial"
    assert (await say(other, status(boot_id="boot-2"))).campaign == ""
    second = settings_of(_switched_on(tmp_path / "second"), name="second")
    await begin(lab, running, second, check_only=True)
    assert (await say(agent, status())).campaign == "trial"
    assert (await say(other, status(boot_id="boot-2"))).campaign == "second"
