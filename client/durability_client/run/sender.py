"""The sender: looks at the shared state some thousand times a second and tells the server what moved.

What a drive acknowledged in its last moments is what a cut can lose, so an ack must not wait; and a writer
must not pay for it, so no process wakes another: one process polls, and sends one cumulative ack for all
writers. asyncio's usual selector sleeps in whole milliseconds, hence a loop of our own (`run_in_fine_loop`).
In any other loop the sender works as well, a millisecond later.
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

POLL_S = 0.0001  # sleeping and waking costs some 20 us of processor; half the pause gains 30 us of lag
# Where the writers fill the processors, what the sender and the server take is taken from them; and the more
# writers share a processor, the longer each of their commits takes, and the less a pause adds.
_POLL_CROWDED_S = 0.0004
_POLL_LONGEST_S = 0.001
_SLACK_NS = 1000
_PR_SET_TIMERSLACK = 29
T = TypeVar("T")


def run_in_fine_loop(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, in an event loop whose timers are exact to some microseconds."""
    if sys.platform == "linux":
        # The kernel may wake a sleeper 50 us late by default, as much as the sleep itself is long.
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _SLACK_NS)
    with asyncio.Runner(loop_factory=_fine_loop) as runner:
        return runner.run(main)


def _fine_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def _processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def poll_s(writers: int, processors: int) -> float:
    """The pause between looks at the shared state."""
    if writers < processors:
        return POLL_S
    return min(max(_POLL_CROWDED_S, 2 * POLL_S * writers / processors), _POLL_LONGEST_S)


class Sender:
    """Polls `shared` from `start` to `stop`; `send(frontiers, control)` says whether the ack was taken."""

    def __init__(self, plan: Plan, shared: SharedState, send: Callable[[tuple[int, ...], int], bool]) -> None:
        self._shared = shared
        self._writers = plan.writers
        self._send = send
        self._sent = [0] * shared.writers
        self._poll_s = poll_s(plan.writers, _processors())
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Send what has moved, now and every poll interval until `stop`."""
        self.flush()
        self._timer = self._loop.call_later(self._poll_s, self.start)

    def stop(self) -> None:
        """Poll no more; `flush` still sends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def flush(self) -> bool:
        """Send what moved since the last ack; False where the network does not take it now."""
        now = self._shared.frontiers()
        if now != self._sent:
            if not self._send(tuple(now[: self._writers]), sum(now[self._writers :])):
                return False
            self._sent = now
        return True
