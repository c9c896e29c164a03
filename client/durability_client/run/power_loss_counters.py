"""Reads the drives' counters of power losses again while a run writes.

A counter that has risen since arming shows a power loss, and not which one: a drive may lose its power for a
moment under a run that goes on. So the run reports what it read last, and a cut must raise that. Drives are
asked in a thread, whose answer nothing waits for, and only for counters that could be read at arming. Refuses
what a drive says that was enumerated anew: it may have counted the very cut.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from durability.formats.facts import Drive
from durability_client.target.discovery import uptime_ns

EVERY_NS = 60_000_000_000
THREAD = "power-loss-counters"
# Between two calls of `next_second`: more, and the machine may have slept.
STOOD_STILL_NS = 5_000_000_000


class PowerLossCounters:
    """Those of `drives`, the drives at arming. `read`: asks a drive for its counter, None where it does not
    answer; `clock_ns`: counts while the machine sleeps, too."""

    def __init__(
        self,
        drives: Sequence[Drive],
        read: Callable[[Drive], int | None],
        *,
        clock_ns: Callable[[], int] = uptime_ns,
    ) -> None:
        self._drives = drives
        self._read = read
        self._clock_ns = clock_ns
        self._newest = [drive.unsafe_shutdowns for drive in drives]
        self._asked_ns = self._called_ns = clock_ns()
        self._asking: threading.Thread | None = None

    @property
    def newest(self) -> tuple[int | None, ...]:
        """The counters as they were read last; () for drives without any."""
        return tuple(self._newest) if any(count is not None for count in self._newest) else ()

    def next_second(self) -> None:
        """Ask the drives if that is due: once a minute, and after the machine stood still."""
        now_ns = self._clock_ns()
        stood_still = now_ns - self._called_ns > STOOD_STILL_NS
        self._called_ns = now_ns
        if not self.newest or not (stood_still or now_ns - self._asked_ns >= EVERY_NS):
            return
        if self._asking is not None and self._asking.is_alive():
            return
        self._asked_ns = now_ns
        self._asking = threading.Thread(target=self._ask, name=THREAD, daemon=True)
        self._asking.start()

    def _ask(self) -> None:
        for number, drive in enumerate(self._drives):
            before = self._newest[number]
            count = None if before is None else self._read(drive)
            if before is not None and count is not None and count > before:
                self._newest[number] = count
