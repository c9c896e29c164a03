"""A run that is still in its prefill when its drive is to be verified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from durability.errors import EXIT_INCONCLUSIVE
from tests.client.agent.task_server import ARM, DEADLINE_S, Tasks, file_on, with_both_servers

pytestmark = pytest.mark.slow


async def test_a_run_whose_drive_was_not_cut_in_its_prefill_is_stopped(tmp_path: Path) -> None:
    """A cycle without a cut was given up while the drive still fills. The verify stops the run and does not
    wait for the drive to fail."""
    tasks = Tasks(
        (file_on(tmp_path / "target"),),
        ready_within_s=100 * DEADLINE_S,
        arm=replace(ARM, moment="prefill"),
    )
    async with with_both_servers(tmp_path) as (server, _, _):
        begun = await server.do(tasks.make("run", fresh=True), "armed failed")
        assert begun.state == "armed"
        judged = await server.do(tasks.make("verify", run=begun.run))
    assert (judged.state, judged.exit_code) == ("done", EXIT_INCONCLUSIVE)
