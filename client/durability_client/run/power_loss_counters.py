"""Reads the drives' counters of power losses again while a run writes.

A counter that has risen since arming shows a power loss, but not which one: a drive may lose power for a
moment while the run continues. So the run reports its last reading, and a cut must raise the counter above
that. A separate thread asks the drives, and the run never waits for it. Only counters that were readable at
arming are read again. The reading of a drive that was enumerated again is not used, because that drive may
have counted the cut itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from durability.formats.facts import Drive
from durability_client.target.discovery import uptime_ns

EVERY_NS = 60_000_000_000
THREAD = "power-loss-counters"
# If more time passes between two calls of `next_second`, the machine may have slept.
STOOD_STILL_NS = 5_000_000_000


class PowerLossCounters:
    """Power-loss counters of `drives`, the drives at arming.

    `read` asks a drive for its counter and returns None if the drive does not answer. `clock_ns` also counts
    while the machine sleeps.
    """

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
        """The last readings of the counters; () if no drive has one."""
        return tuple(self._newest) if any(count is not None for count in self._newest) else ()

    def next_second(self) -> None:
        """Ask the drives if due: once a minute, and after the machine may have slept."""
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
