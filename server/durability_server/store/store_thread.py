"""The store's one thread: keeps blocking database calls off the event loop and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class StoreThread:
    """Runs functions one after the other, in the order of the calls."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `function` returns or raises. A caller that is cancelled does not stop it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Ends the thread when its last call is done."""
        self._executor.shutdown(wait=False)
