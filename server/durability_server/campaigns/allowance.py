"""How much a machine may add to a campaign's log: a burst, then little by little, up to a size.

An agent says all it has to say about once a second, so what is not taken now comes again. Refuses nothing for
ever, as long as the machine has not filled its share of the log.
"""

from __future__ import annotations

import logging

BURST = 500  # entries: more than all drives of a machine need for a cycle
REFILL_S = 0.2  # for one more entry
BYTES_MAX = 256 << 20  # of all its entries: more than for the 10,000 runs that one client may have

log = logging.getLogger(__name__)


class Allowance:
    """That of one machine. `whose`: what people call it."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._left = float(BURST)
        self._at_ns: int | None = None
        self._is_out = False
        self._given_bytes = 0
        self._is_full = False

    def add(self, count: int) -> None:
        """The log has so many bytes more of the machine."""
        self._given_bytes += count

    def take(self, entries: int, now_ns: int) -> bool:
        """Whether so many entries may be added now, at `now_ns`; they are taken then."""
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
        entries = min(entries, BURST)  # else it would never be heard
        if self._left < entries:
            if not self._is_out:
                log.warning("%s sends too many changes; most are discarded", self._whose)
            self._is_out = True
            return False
        self._left -= entries
        self._is_out = self._is_out and self._left < BURST / 2
        return True
