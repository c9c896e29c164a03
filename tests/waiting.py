"""Waiting for what nobody tells a test of: another process, or a task that sets no event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

DEADLINE_S = 60.0
_POLL_S = 0.005


def wait_for(condition: Callable[[], bool], what: Callable[[], object] = lambda: "waited in vain") -> None:
    """Return once `condition` holds; past the deadline raise AssertionError with what `what` says then."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, what()
        time.sleep(_POLL_S)


async def until(condition: Callable[[], bool]) -> None:
    """The same while the tasks of this loop go on. Raises TimeoutError."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what it is for: there is no event
            await asyncio.sleep(0)
