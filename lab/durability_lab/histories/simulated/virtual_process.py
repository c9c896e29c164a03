"""A process of a history: its tasks, fibers and connections end with it, and stop while it is frozen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


class Process:
    """A process on a machine of the history: its tasks, fibers and connections end with it. `boot_id`: the
    boot of that machine, whose clock is ahead of the history's by `ahead_ns`."""

    def __init__(self, name: str, *, boot_id: str = "", ahead_ns: int = 0) -> None:
        self.name = name
        self.boot_id = boot_id
        self.ahead_ns = ahead_ns
        self.dead = False
        self.frozen = False
        self.tasks: set[asyncio.Task[Any]] = set()
        self.handlers: dict[int, Callable[[], object]] = {}  # signal handlers
        self._waiting: list[asyncio.Handle] = []  # callbacks that were due while the process was frozen

    def begin(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` in this process. Its error is raised when the task is awaited, or found at the end."""

        async def within() -> T:
            CURRENT.set(self)
            return await work

        task = loop.create_task(within())
        self.adopt(task)
        return task

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Add a task to this process; the task ends with the process."""
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task._exception is not None:
            if self.dead:
                task._log_traceback = False
            else:
                task.get_loop().failed.append((self.name, task))  # type: ignore[attr-defined]

    def freeze(self) -> None:
        """Stop all code of the process until `thaw`; its kernel goes on."""
        self.frozen = True

    def thaw(self) -> None:
        """Let the process go on; callbacks that were due meanwhile run at once, in order."""
        self.frozen = False
        waiting, self._waiting = self._waiting, []
        for handle in waiting:
            handle._loop._ready.append(handle)  # type: ignore[attr-defined]

    def keep(self, handle: asyncio.Handle) -> None:
        """Keep a callback that was due while the process was frozen; it runs after `thaw`."""
        self._waiting.append(handle)

    def end(self) -> None:
        """End the process: no code of it runs any more, except the cleanup of cancelled tasks."""
        self.dead = True
        self.thaw()
        for task in tuple(self.tasks):
            task.cancel()


CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)  # the process whose code runs
