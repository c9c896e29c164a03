"""Waiting for what nobody tells a test of: another process, or a task that sets no event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

DEADLINE_S = 60
_POLL_S = 0.005
_LATE_S = 0.5  # later than this a task is woken only if the machine stands still


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


@asynccontextmanager
async def standstills() -> AsyncIterator[Callable[[], float]]:
    """Yields a function that tells for how many seconds the event loop has stood still since."""
    stood_s = 0.0

    async def watch() -> None:
        nonlocal stood_s
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(_POLL_S)
            late_s = time.monotonic() - before_s - _POLL_S
            stood_s += late_s if late_s > _LATE_S else 0.0

    watching = asyncio.create_task(watch())
    try:
        yield lambda: stood_s
    finally:
        watching.cancel()
