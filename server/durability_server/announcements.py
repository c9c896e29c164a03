"""What `serve` tells the person who stands beside it: one line for each event, on stdout.

Under systemd the lines carry the priorities of the journal. Refuses to be the log: what is wrong with a
connection stands there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO, TypeAlias

from durability import plain_text
from durability_server import clock

# Tells of an event: who, and what.
Announce: TypeAlias = Callable[[str, str], None]

_JOURNAL = "JOURNAL_STREAM"  # systemd's variable
_NOTICE = "<5>"


class Announcer:
    """Writes the lines to `out`, none if that is None."""

    def __init__(self, out: TextIO | None) -> None:
        self._out = out
        self._prefix = _NOTICE if _JOURNAL in os.environ else ""

    def __call__(self, who: str, what: str) -> None:
        """An event happened now; local time, because the line is read beside a clock."""
        if self._out is None:
            return
        line = plain_text.as_line(f"{clock.local_time()}  {who}  {what}")
        with suppress(OSError, ValueError):  # nobody reads, which must not end the server
            print(f"{self._prefix}{line}", file=self._out, flush=True)


class HeldBack:
    """Keeps events for `announce` until `release`: where the server listens is printed first, though a client
    may be back before."""

    def __init__(self, announce: Announce) -> None:
        self._announce = announce
        self._kept: list[tuple[str, str]] | None = []

    def __call__(self, who: str, what: str) -> None:
        """An event happened now."""
        if self._kept is None:
            self._announce(who, what)
        else:
            self._kept.append((who, what))

    def release(self) -> None:
        """From now on tell each event at once, after those that were kept."""
        kept, self._kept = self._kept or [], None
        for event in kept:
            self._announce(*event)


def silence(_who: str, _what: str) -> None:
    """An `Announce` that tells nobody."""
