"""The check of a target in a file system that cannot show what an arm asks, by a real agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from durability.campaign.definition.settings import Arm
from durability.campaign.tasks import Task
from tests.client.agent.task_server import ARM, Tasks, TaskServer, agent_process, file_on, task_server

MakeMount = Callable[..., tuple[Path, Path]]


@pytest.fixture
async def server(tmp_path: Path, loop_machine: None) -> AsyncIterator[TaskServer]:
    """With an agent that has no server for runs: an examine needs none."""
    async with task_server(tmp_path) as server, agent_process(tmp_path):
        yield server


def examine_of(target: Path, number: int, arm: Arm | None) -> Task:
    """The check of a target; `arm`: one that needs names, None as servers of release 0.1 say it."""
    task = Tasks((file_on(target),), number=number, ready_within_s=1.0).make("examine")
    (mine,) = task.drives
    return replace(task, drives=(replace(mine, arm=arm),))


@pytest.mark.parametrize(
    ("kind", "mkfs", "refused"),
    [("ext2", (), True), ("ext4", ("-O", "^has_journal"), True), ("ext4", (), False)],
)
async def test_an_arm_that_needs_names_is_refused_without_a_journal(
    server: TaskServer, make_mount: MakeMount, kind: str, mkfs: tuple[str, ...], refused: bool
) -> None:
    """`run` would refuse it in each cycle: the check says so, with the remedy. Other arms run there."""
    _, directory = make_mount(kind, mkfs=mkfs)
    append = replace(ARM, name="logs", workload="append")
    status = await server.do(examine_of(directory / "t", 10, append))
    if refused:
        assert (status.state, status.trouble) == ("failed", "not-begun"), status
        why = "without a journal, which may lose names and lengths in a cut"
        assert status.text.startswith(f"{directory} is on a file system {why}.")
        assert "So arm logs (workload append) proves nothing there: " in status.text
    else:
        assert status.state == "done", status
    assert (await server.do(examine_of(directory / "t", 20, None))).state == "done"
