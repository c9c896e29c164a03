"""What one agent says costs the server little, whoever it is, and leaves the last of the disk for others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durability.campaign.definition.settings import DRIVES_MAX
from durability.campaign.log_entries import DriveReported, MachineSeen
from durability.campaign.tasks import DriveStatus, Status, Task
from durability.errors import RefusedError
from durability.formats.documents import from_value, to_value
from durability.protocol import messages
from durability_server.store import store as store_module
from tests.server.campaigns.test_campaigns import begin, entries_of, settings_of
from tests.server.conftest import Lab
from tests.waiting import DEADLINE_S

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


def _status(number: int, **changes: Any) -> Status:
    values: dict[str, Any] = {
        "boot_id": "b",
        "machine_id": "m",
        "uptime_ns": 1,
        "virtualisation": "none",
        "software": "test",
        "task": number,
        "drives": (),
        "campaign": "trial" if number else "",
    }
    return Status(**{**values, **changes})


async def test_a_status_has_no_more_drives_than_a_campaign(lab: Lab, sqlite_url: str) -> None:
    """The largest is answered; one more ends the connection before anything is done with it."""
    running = await lab.start(sqlite_url)
    status = _status(0, drives=(DRIVE,) * DRIVES_MAX)
    agent = await lab.connect(running.address, "agent")
    await agent.ask(messages.AgentStatus(status=to_value(status)), messages.AgentTask)
    value = {**to_value(status), "drives": [to_value(DRIVE)] * (DRIVES_MAX + 1)}
    with pytest.raises(RefusedError, match="drives: ") as refused:
        await agent.ask(messages.AgentStatus(status=value), messages.AgentTask)
    assert refused.value.code == "bad-request"


@pytest.mark.slow
async def test_a_full_disk_begins_no_campaign_and_takes_no_reports(
    lab: Lab, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is nearly full, no campaign begins, and agents' reports about drives are not stored; agents
    repeat them. Runs, and entries about power and machines of a running campaign, are still stored."""
    running = await lab.start(sqlite_url)
    power = tmp_path / "power"
    power.write_text("on\n")
    settings = settings_of(power)
    with monkeypatch.context() as full:
        full.setattr(store_module, "KEPT_BYTES_MAX", 1 << 60)
        full.setattr(store_module, "KEPT_SHARE", 1)
        with pytest.raises(RefusedError, match="make room there") as refused:
            await begin(lab, running, settings, check_only=True)
        assert refused.value.code == "store-unavailable"

    await begin(lab, running, settings, check_only=True)
    agent = await lab.connect(running.address, "agent")

    async def say(status: Status) -> Task:
        answer = await agent.ask(messages.AgentStatus(status=to_value(status)), messages.AgentTask)
        return from_value(Task, answer.task)

    async with asyncio.timeout(DEADLINE_S):
        while (task := await say(_status(0))).kind != "examine":
            pass
    report = replace(DRIVE, drive="ssd", state="failed", trouble="missing")
    with monkeypatch.context() as full:
        full.setattr(store_module, "KEPT_BYTES_MAX", 1 << 60)
        full.setattr(store_module, "KEPT_SHARE", 1)
        assert await say(_status(task.number, drives=(report,))) == task
        kinds = [type(entry.happening) for entry in await entries_of(lab, running)]
        assert MachineSeen in kinds
        assert DriveReported not in kinds
    await say(_status(task.number, drives=(report,)))
    assert DriveReported in [type(entry.happening) for entry in await entries_of(lab, running)]
