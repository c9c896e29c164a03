"""The store's threads. They keep blocking database calls off the event loop and in order. Reads do not delay
commits, and long reads do not delay short ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class StoreThread:
    """Runs functions that change the store, functions that read it, and short look-ups. Each kind has a
    thread and runs in the order of the calls."""

    def __init__(self) -> None:
        self._changing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._reading = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-reader")
        self._looking = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-look-up")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `function`, which may change the store, and returns or raises its result. A cancelled caller
        withdraws its call if that has not begun, and does not stop it otherwise."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._changing, lambda: function(*args, **kwargs))

    async def ask(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `call`, for a function that only reads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reading, lambda: function(*args, **kwargs))

    async def look_up(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `ask`, for a look-up of one client or run, which does not wait for longer reads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._looking, lambda: function(*args, **kwargs))

    async def close(self, function: Callable[[], None]) -> None:
        """Calls `function` after all earlier calls, and ends the threads. Later calls raise RuntimeError."""
        loop = asyncio.get_running_loop()
        for readers in (self._reading, self._looking):
            ended = loop.run_in_executor(readers, lambda: None)
            readers.shutdown(
                wait=False
            )  # before the wait: a read that begins later would find a closed store
            await ended
        await loop.run_in_executor(self._changing, function)
        self._changing.shutdown(wait=False)
