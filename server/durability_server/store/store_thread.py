"""The store's threads: they keep blocking database calls off the event loop and in order, questions from
keeping commits waiting, and long questions from keeping short ones waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class StoreThread:
    """Runs functions that change the store, functions that read it, and functions that look one thing up:
    each kind one after the other, in the order of the calls."""

    def __init__(self) -> None:
        self._changing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._reading = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-reader")
        self._looking = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-look-up")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `function`, which may change the store, returns or raises. A caller that is cancelled takes
        its call back if that has not begun, and does not stop one that has."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._changing, lambda: function(*args, **kwargs))

    async def ask(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `call`, for a function that only reads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reading, lambda: function(*args, **kwargs))

    async def look_up(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `ask`, for a question about one client or run, which waits for no longer ones."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._looking, lambda: function(*args, **kwargs))

    async def close(self, function: Callable[[], None]) -> None:
        """Ends the threads when their last calls are done, with a call of `function` after all of them."""
        loop = asyncio.get_running_loop()
        for readers in (self._reading, self._looking):
            await loop.run_in_executor(readers, lambda: None)
            readers.shutdown(wait=False)
        await loop.run_in_executor(self._changing, function)
        self._changing.shutdown(wait=False)
