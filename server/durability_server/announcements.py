"""What `serve` tells the person who stands beside it: one line for each event, on stdout.

Refuses to be the log: what is wrong with a connection stands there.
"""

from __future__ import annotations

import syslog
from collections.abc import Callable
from typing import TextIO, TypeAlias

from durability import plain_text
from durability.units import counted
from durability_server import clock
from durability_server.line_writer import NOT_TAKEN, LineWriter

# Tells of an event: who, and what.
Announce: TypeAlias = Callable[[str, str], None]


class Announcer:
    """Has the lines written to `out`; no events if `is_quiet`."""

    def __init__(self, out: TextIO, *, is_quiet: bool = False) -> None:
        self._lines = LineWriter(out, left_out=self._left_out)
        self._is_quiet = is_quiet

    def __call__(self, who: str, what: str) -> None:
        """An event happened now."""
        if not self._is_quiet:
            self._lines.write(self._line(who, what), syslog.LOG_NOTICE)

    def say(self, text: str) -> None:
        """Has `text`, which is no event, written as it is."""
        self._lines.write(text)

    def flush(self) -> None:
        """Waits a while for lines that are not written yet."""
        self._lines.flush()

    def _line(self, who: str, what: str) -> str:
        """With local time, because the line is read beside a clock."""
        return plain_text.as_line(f"{clock.local_time()}  {who}  {what}")

    def _left_out(self, count: int) -> str:
        return self._line("serve", f"{counted(count, 'event')} before this were left out: {NOT_TAKEN}")


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
