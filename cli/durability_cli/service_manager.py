"""What a service manager hears of `serve` and `agent`: ready, alive, stopping (sd_notify(3)).

Without a service manager nothing is said. Refuses to say that a program lives whose event loop hangs: the
word comes from that loop. Nor that one lives which says itself that it does not do its work.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

_NOTIFY = "NOTIFY_SOCKET"  # systemd's variables
_WATCHDOG = "WATCHDOG_USEC"
_AGAIN_S = 1.0  # after a look at a program that did not work


@asynccontextmanager
async def informed(works: Callable[[], bool] = lambda: True) -> AsyncIterator[None]:
    """Ready when the block begins, stopping when it ends; alive meanwhile, as often as it is wanted and as
    long as it `works`."""
    _say("READY=1")
    alive = asyncio.create_task(_say_alive(works))
    try:
        yield
    finally:
        alive.cancel()
        _say("STOPPING=1")


def _say(state: str) -> None:
    name = os.environ.get(_NOTIFY, "")
    if not name:
        return
    address = f"\0{name[1:]}" if name.startswith("@") else name
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        manager.sendto(state.encode(), address)


async def _say_alive(works: Callable[[], bool]) -> None:
    try:
        interval_s = int(os.environ[_WATCHDOG]) / 2e6
    except (KeyError, ValueError):
        return
    while True:
        if works():
            _say("WATCHDOG=1")
            await asyncio.sleep(interval_s)
        else:
            await asyncio.sleep(min(_AGAIN_S, interval_s))
