"""How many entries a machine may add to a campaign's log: a burst, then a slow refill, up to a total size.

An agent repeats its whole report about once a second, so refused entries arrive again later. Entries are
refused for good only once the machine has filled its share of the log.
"""

from __future__ import annotations

import logging

BURST = 500  # entries at once: more than all drives of a machine need for a cycle
REFILL_S = 0.2  # time after which one more entry is allowed
BYTES_MAX = 256 << 20  # all entries of the machine: more than 10,000 runs need, the maximum of one client

log = logging.getLogger(__name__)


class Allowance:
    """The allowance of one machine. `whose` names the machine in the log."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._left = float(BURST)
        self._at_ns: int | None = None
        self._is_out = False
        self._given_bytes = 0
        self._is_full = False

    def add(self, count: int) -> None:
        """The machine has added `count` bytes to the log."""
        self._given_bytes += count

    def take(self, entries: int, now_ns: int) -> bool:
        """Whether this many entries may be added at `now_ns`. If so, they use up the allowance."""
        if self._given_bytes >= BYTES_MAX:
            if not self._is_full:
                log.warning(
                    "%s has filled its %d MiB of the log; the rest is discarded", self._whose, BYTES_MAX >> 20
                )
            self._is_full = True
            return False
        since_s = 0.0 if self._at_ns is None else (now_ns - self._at_ns) / 1e9
        self._left = min(float(BURST), self._left + since_s / REFILL_S)
        self._at_ns = now_ns
        entries = min(entries, BURST)  # else a larger report would never be accepted
        if self._left < entries:
            if not self._is_out:
                log.warning("%s sends too many changes; most are discarded", self._whose)
            self._is_out = True
            return False
        self._left -= entries
        self._is_out = self._is_out and self._left < BURST / 2
        return True
