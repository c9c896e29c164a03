"""What one agent says costs the server little, whoever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from durability.campaign.definition.settings import DRIVES_MAX
from durability.campaign.tasks import DriveStatus, Status
from durability.errors import RefusedError
from durability.formats.documents import to_value
from durability.protocol import messages

if TYPE_CHECKING:
    from tests.server.conftest import Lab

DRIVE = DriveStatus(
    drive="d",
    state="done",
    trouble="",
    text="",
    run="",
    exit_code=None,
    condition=None,
    mount_s=None,
    repaired=False,
)


async def test_a_status_has_no_more_drives_than_a_campaign(lab: Lab, sqlite_url: str) -> None:
    """The largest is answered; one more ends the connection before anything is done with it."""
    running = await lab.start(sqlite_url)
    status = Status(
        boot_id="b",
        machine_id="m",
        uptime_ns=1,
        virtualisation="none",
        software="test",
        task=0,
        drives=(DRIVE,) * DRIVES_MAX,
    )
    agent = await lab.connect(running.address, "agent")
    await agent.ask(messages.AgentStatus(status=to_value(status)), messages.AgentTask)
    value = {**to_value(status), "drives": [to_value(DRIVE)] * (DRIVES_MAX + 1)}
    with pytest.raises(RefusedError, match="drives: ") as refused:
        await agent.ask(messages.AgentStatus(status=value), messages.AgentTask)
    assert refused.value.code == "bad-request"
