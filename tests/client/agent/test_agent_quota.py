"""When a verify is tried again: a verdict that the server refuses for good is no reason to verify without
end, and one that was killed has none."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from durability.campaign.tasks import DriveStatus
from durability.errors import EXIT_OK, NOT_STORED
from durability.units import format_run
from durability_client.agent import run_child
from durability_client.agent.abandonable_calls import Children
from durability_client.agent.drive_status import TaskPart
from durability_client.agent.drives import DriveError
from durability_client.agent.run_child import Verify
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import run
from durability_client.target.kernel_storage import KernelStorage
from durability_lab.support.local_server import local_server
from durability_server.store import evidence_rows
from tests.client.agent.task_server import DEADLINE_S, Tasks, file_on, options_of

pytestmark = pytest.mark.slow  # a whole run, and a verify in a process of its own


async def test_a_verdict_beyond_the_quota_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlike one for which the server's disk has no room: no time makes room in a quota. It is said why."""
    target = tmp_path / "target"
    async with local_server() as lab:
        options = RunOptions(
            endpoint=lab.endpoint,
            size_bytes=4 << 20,
            json=True,
            allow_shared_blocks=True,
            force=True,
            duration_s=0.1,
        )
        summary = await run(options, KernelStorage(target), io.StringIO())
        monkeypatch.setattr(evidence_rows, "BYTES_OF_CLIENT_MAX", 0)
        monkeypatch.setattr(evidence_rows, "BYTES_BEYOND_FOR_VERDICTS", 0)
        verify = Verify(Children(), options_of(lab), asyncio.Event())
        task = Tasks((file_on(target),)).make("verify", run=format_run(summary.run))
        said: list[DriveStatus] = []
        with pytest.raises(DriveError) as failed:
            async with asyncio.timeout(DEADLINE_S):
                await verify.judge(
                    TaskPart(task, task.drives[0], said.append), target, format_run(summary.run)
                )
    assert failed.value.trouble == "not-verified"
    assert f"{NOT_STORED} (quota): this client has " in str(failed.value)


@pytest.mark.parametrize(("ends", "tries"), [("kill -9 $$", 2), ("exit 1", 1)])
async def test_a_verify_that_was_killed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str, tries: int
) -> None:
    """A verify that was killed, for example for lack of memory, is tried again. A verify that ends by itself
    is not."""
    begun = tmp_path / "begun"
    script = f"echo >> {begun}; [ $(wc -l < {begun}) -gt 1 ] || {ends}"
    none_yet = """echo '{"case": {"verdicts": []}}'"""
    monkeypatch.setattr(
        run_child, "own_command", lambda what, *_: ("/bin/sh", "-c", none_yet if what == "show" else script)
    )
    monkeypatch.setattr(run_child, "BETWEEN_TRIES_S", 0.0)
    online = asyncio.Event()
    online.set()
    task = Tasks((file_on(tmp_path / "target"),)).make("verify", run="00000000000000aa")
    work = TaskPart(task, task.drives[0], lambda _: None)
    verify = Verify(Children(), (), online)
    judging = verify.judge(work, tmp_path / "target", "00000000000000aa")
    if tries > 1:
        assert await judging == work.status.exit_code == EXIT_OK
    else:
        with pytest.raises(DriveError):
            await judging
    assert len(begun.read_text().splitlines()) == tries
