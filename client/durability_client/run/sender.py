"""The sender: polls the shared state thousands of times a second and sends acknowledgements to the server.

A cut can lose the operations that a drive acknowledged last, so an ack must not wait. Acks must not slow the
writers down, so no process wakes another. One process polls, and sends one cumulative ack for all writers.
asyncio's default selector sleeps in whole milliseconds, so this module provides a finer event loop
(`run_in_fine_loop`). In any other loop the sender works, too, but acks leave up to a millisecond later.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import selectors
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from durability.formats.plan import Plan
from durability_client.run.shared_state import SharedState

POLL_S = 0.0001  # a sleep costs about 20 us of processor time; half this pause would make acks 30 us faster
# If the writers use all processors, the sender and the server take processor time from them. The more writers
# share a processor, the longer each commit takes, and the less a longer pause matters.
_POLL_CROWDED_S = 0.0004
_POLL_LONGEST_S = 0.001
_SLACK_NS = 1000
_PR_SET_TIMERSLACK = 29
T = TypeVar("T")


def run_in_fine_loop(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, in an event loop whose timers are exact to some microseconds."""
    if sys.platform == "linux":
        # By default the kernel may wake a sleeper 50 us late, which is half of the sleep itself.
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _SLACK_NS)
    with asyncio.Runner(loop_factory=_fine_loop) as runner:
        return runner.run(main)


def _fine_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def _processors() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def poll_s(writers: int, processors: int) -> float:
    """Pause in seconds between two polls of the shared state."""
    if writers < processors:
        return POLL_S
    return min(max(_POLL_CROWDED_S, 2 * POLL_S * writers / processors), _POLL_LONGEST_S)


class Sender:
    """Polls `shared` from `start` to `stop`. `send(frontiers, control)` returns whether it took the ack."""

    def __init__(self, plan: Plan, shared: SharedState, send: Callable[[tuple[int, ...], int], bool]) -> None:
        self._shared = shared
        self._writers = plan.writers
        self._send = send
        self._sent = [0] * shared.writers
        self._poll_s = poll_s(plan.writers, _processors())
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Send new acknowledgements now and every poll interval until `stop`."""
        self.flush()
        self._timer = self._loop.call_later(self._poll_s, self.start)

    def stop(self) -> None:
        """Stop polling. `flush` still sends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def flush(self) -> bool:
        """Send an ack if a frontier has moved since the last one. False if the network cannot take it now."""
        now = self._shared.frontiers()
        if now != self._sent:
            if not self._send(tuple(now[: self._writers]), sum(now[self._writers :])):
                return False
            self._sent = now
        return True
