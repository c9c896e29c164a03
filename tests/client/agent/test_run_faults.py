"""Whose fault it is that a run did not begin, by what the run said."""

from __future__ import annotations

import pytest

from durability.campaign.tasks import Trouble
from durability.errors import NOT_ACCEPTED, NOT_STARTED
from durability_client.agent.abandonable_calls import Children
from durability_client.agent.drive_work import _not_begun
from durability_client.agent.run_child import RunChild


@pytest.mark.parametrize(
    ("said", "trouble"),
    [
        (f"{NOT_ACCEPTED} (quota)\ndurability: no room", "agent"),
        (f"durability: {NOT_STARTED}: Cannot allocate memory. Free memory", "agent"),
        ("durability: /mnt/target: cannot be prepared: [Errno 5] Input/output error", "not-begun"),
    ],
)
async def test_the_drive_is_not_to_blame_for_server_and_machine(said: str, trouble: Trouble) -> None:
    """A run that could not begin has the trouble of its cause: the drive, the server or the machine."""
    run = await RunChild.start(Children(), "/bin/sh", "-c", 'echo "$1" >&2; exit 5', "sh", said)
    await run.ended()
    assert (_not_begun(run), run.exit_code) == (trouble, 5)
