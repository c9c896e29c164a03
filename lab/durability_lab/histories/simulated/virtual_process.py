"""A program of a history: what belongs to it ends with it, and stands still while it is frozen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


class Process:
    """A program on a machine of the history: its task, its fibers and its connections end with it. `boot_id`:
    of that machine, whose clock is ahead of the history's by `ahead_ns`."""

    def __init__(self, name: str, *, boot_id: str = "", ahead_ns: int = 0) -> None:
        self.name = name
        self.boot_id = boot_id
        self.ahead_ns = ahead_ns
        self.dead = False
        self.frozen = False
        self.tasks: set[asyncio.Task[Any]] = set()
        self.handlers: dict[int, Callable[[], object]] = {}  # of signals
        self._waiting: list[asyncio.Handle] = []  # what would have run while it was frozen

    def begin(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Have it do `work`. An error of it is raised where the task is awaited, or is found at the end."""

        async def within() -> T:
            CURRENT.set(self)
            return await work

        task = loop.create_task(within())
        self.adopt(task)
        return task

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """The task is one of it, and ends with it."""
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
        """Nothing of it runs until `thaw`; its kernel goes on."""
        self.frozen = True

    def thaw(self) -> None:
        """It goes on; what was due meanwhile comes at once, in its order."""
        self.frozen = False
        waiting, self._waiting = self._waiting, []
        for handle in waiting:
            handle._loop._ready.append(handle)  # type: ignore[attr-defined]

    def keep(self, handle: asyncio.Handle) -> None:
        """Run this after `thaw`: it came while the process was frozen."""
        self._waiting.append(handle)

    def end(self) -> None:
        """Nothing of it runs any more, but for what cancelled tasks do at their end."""
        self.dead = True
        self.thaw()
        for task in tuple(self.tasks):
            task.cancel()


CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)  # whose code runs
