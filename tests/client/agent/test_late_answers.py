"""What a thread opened is closed, also if the task changed before it could tell of it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from durability_client.agent.abandonable_calls import Children, in_thread
from durability_client.agent.agent_paths import AgentPaths
from durability_client.agent.drive_status import TaskPart
from durability_client.agent.drive_target import DriveTarget
from durability_client.agent.drives import DriveError, FoundDrive, find
from durability_client.agent.file_systems import KernelLog
from tests.client.agent.task_server import Tasks, drive_on
from tests.waiting import DEADLINE_S, until


class Slow(FoundDrive):
    """A drive that is looked at slowly once its device is open."""

    looked, go = threading.Event(), threading.Event()

    @property
    def is_still_there(self) -> bool:
        self.looked.set()
        assert self.go.wait(DEADLINE_S)
        return super().is_still_there


def opened(path: Path) -> int:
    """How many descriptors of this process are of `path`."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the directory itself
            count += link.readlink() == path
    return count


async def cancelled(task: asyncio.Task[object]) -> None:
    """Cancel a task, and wait for its end."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_device_whose_task_changes_while_it_is_opened_is_closed(
    make_loop: Callable[..., Path], tmp_path: Path
) -> None:
    """An open device would keep its name from the drive when that comes back."""
    device = make_loop()
    found = find(drive_on(device), "")
    slow = Slow(name=found.name, leaves=found.leaves, serial=found.serial, diskseqs=found.diskseqs)
    target = DriveTarget(AgentPaths(tmp_path / "agent"), Children())
    holding = asyncio.create_task(target.hold(slow))
    await asyncio.to_thread(slow.looked.wait, DEADLINE_S)
    assert opened(device) == 1
    await cancelled(holding)
    slow.go.set()
    await until(lambda: opened(device) == 0)


async def test_a_drive_that_is_not_looked_for_has_a_reason(tmp_path: Path) -> None:
    """While a killed program still waits for the drive, the agent does not use the drive, and the error says
    why."""
    children = Children()
    program = await children.start("sleep", "1000")
    task = Tasks((drive_on("/dev/none"),), ready_within_s=0.0).make("examine")
    work = TaskPart(task, task.drives[0], lambda _: None)
    try:
        with pytest.raises(DriveError, match=r"^a killed program still waits for the drive, .*, for 0 s$"):
            await DriveTarget(AgentPaths(tmp_path / "agent"), children).find(work)
    finally:
        await children.end(program)


async def test_the_kernels_log_is_closed_if_nobody_hears_it_any_more() -> None:
    """The kernel's log is closed if the task that opens it is cancelled meanwhile."""
    begun, go = threading.Event(), threading.Event()
    logs: list[KernelLog] = []

    def listen() -> KernelLog:
        begun.set()
        assert go.wait(DEADLINE_S)
        logs.append(KernelLog())
        return logs[0]

    before = opened(Path("/dev/kmsg"))
    hearing = asyncio.create_task(in_thread(listen, discard=KernelLog.close))
    await asyncio.to_thread(begun.wait, DEADLINE_S)
    await cancelled(hearing)
    go.set()
    await until(lambda: bool(logs) and opened(Path("/dev/kmsg")) == before)


async def test_an_answer_that_comes_just_before_the_cancellation_is_discarded_too(tmp_path: Path) -> None:
    """The thread has told of it, and the task is cancelled before it could hear that."""
    path = tmp_path / "file"
    path.touch()
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def open_and_tell() -> int:
        fd = os.open(path, os.O_RDONLY)
        loop.call_soon_threadsafe(told.set)
        return fd

    for turns in range(6):  # of the event loop, from the word of the thread on
        told.clear()
        opening = asyncio.create_task(in_thread(open_and_tell, discard=os.close))
        await told.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        with suppress(asyncio.CancelledError):
            os.close(await opening)
        await until(lambda: opened(path) == 0)


async def test_an_error_that_comes_too_late_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    """If a thread fails after its task was cancelled, no result is discarded, and asyncio reports no
    unretrieved error."""
    begun, go, over = threading.Event(), threading.Event(), threading.Event()
    discarded: list[object] = []

    def fail() -> None:
        begun.set()
        assert go.wait(DEADLINE_S)
        over.set()
        raise OSError("gone")

    failing = asyncio.create_task(in_thread(fail, discard=discarded.append))
    await asyncio.to_thread(begun.wait, DEADLINE_S)
    await cancelled(failing)
    go.set()
    await asyncio.to_thread(over.wait, DEADLINE_S)
    with pytest.raises(OSError, match="in time"):
        await in_thread(partial(_raise, OSError("in time")))
    assert discarded == [] and caplog.records == []


def _raise(error: Exception) -> None:
    raise error
