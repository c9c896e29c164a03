"""The status of one drive's part of a task. Each change is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from durability.campaign.tasks import Condition, DriveStatus, DriveTask, Task
from durability.formats.documents import escaped
from durability_client.agent.abandonable_calls import shortened
from durability_client.agent.drives import DriveError

Report: TypeAlias = Callable[[DriveStatus], None]


class TaskPart:
    """A task's part for one drive, and its status."""

    def __init__(self, task: Task, mine: DriveTask, report: Report) -> None:
        self.task = task
        self.mine = mine
        self.drive = mine.drive
        self.status = fresh_status(mine.drive.name)
        self.condition: Condition | None = None
        self._report = report

    def say(self, **changes: Any) -> None:
        """Report the status with `changes`."""
        self.status = escaped(replace(self.status, condition=self.condition, **changes))
        self._report(self.status)

    def fail(self, error: DriveError) -> None:
        """Report that the part failed."""
        self.say(state="failed", trouble=error.trouble, text=shortened(str(error)))


def fresh_status(name: str) -> DriveStatus:
    """The first status of a drive, before any work."""
    return DriveStatus(
        drive=name,
        state="working",
        trouble="",
        text="",
        run="",
        exit_code=None,
        condition=None,
        mount_s=None,
        repaired=False,
    )
