"""A verdict that comes after its cycle, with a real server and the operator's command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from durability.campaign.log_entries import JudgedLate
from durability.campaign.results import results, sentence
from durability.campaign.tasks import DriveStatus, DriveTask, Task
from tests.server.campaigns.played_machine import Machine
from tests.server.campaigns.test_campaigns import begin, entries_of, living, settings_of, until
from tests.server.conftest import Lab
from tests.waiting import until as until_true

pytestmark = pytest.mark.slow  # begins a campaign


class Late(Machine):
    """One whose drive is not there for its first verify. Its agent verifies that run before the next one."""

    late = ""

    async def _part(self, task: Task, part: DriveTask) -> DriveStatus:
        if task.kind == "verify" and len(self.armed) == 1:
            self.late = part.run
            gone = self._done(part, part.run)
            return replace(gone, state="failed", trouble="missing", text="it is not there", condition=None)
        if task.kind == "run" and self.late:
            await self._verify(part.drive.name, self.late)
            self.late = ""
        return await super()._part(task, part)


async def test_a_loss_that_is_found_late_counts_and_calls_the_command(
    lab: Lab, sqlite_url: str, power: Path, tmp_path: Path
) -> None:
    """The drive leaves with a loss in its first cycle, though that ended without a verdict."""
    told = tmp_path / "told"
    told.touch()
    notify = f"sh -c 'echo \"$0\" >> {told}'"
    running = await lab.start(sqlite_url)
    machine = Late(lab, running.address, power, verdicts={"ssd": ["loss"]})
    async with living(machine):
        await begin(lab, running, settings_of(power, notify=notify))
        state = await until(lab, running, lambda state: state.state == "ended")
        run = machine.armed[0]
        await until_true(lambda: "over: " in told.read_text())
    assert state.reason == "no drive is left to test" and state.left == {"ssd": "loss in cycle 1"}
    (result,) = results(state)
    assert sentence(result).startswith("LOSS in 1 of 2 cuts, first in cycle 1: ")
    late = [entry.happening for entry in await entries_of(lab, running)]
    assert [one.judged.run for one in late if isinstance(one, JudgedLate)] == [run]
    assert f"campaign trial: cycle 1: ssd: loss (run {run}), judged after its cycle" in told.read_text()
