"""The events that `serve` reports to the person beside it: one line for each event on stdout.

Errors of connections are not events: they are written to the log.
"""

from __future__ import annotations

import syslog
from collections.abc import Callable
from typing import TextIO, TypeAlias

from durability import plain_text
from durability.units import counted
from durability_server import clock
from durability_server.line_writer import NOT_TAKEN, LineWriter

# Reports an event: its source, and what happened.
Announce: TypeAlias = Callable[[str, str], None]


class Announcer:
    """Writes lines to `out`, but no events if `is_quiet`."""

    def __init__(self, out: TextIO, *, is_quiet: bool = False) -> None:
        self._lines = LineWriter(out, left_out=self._left_out)
        self._is_quiet = is_quiet

    def __call__(self, who: str, what: str) -> None:
        """An event happened now."""
        if not self._is_quiet:
            self._lines.write(self._line(who, what), syslog.LOG_NOTICE)

    def say(self, text: str) -> None:
        """Writes `text`, which is not an event, unchanged."""
        self._lines.write(text)

    def flush(self) -> None:
        """Waits for unwritten lines, but at most `line_writer.END_S`."""
        self._lines.flush()

    def _line(self, who: str, what: str) -> str:
        """A line with local time, because people compare it with a clock."""
        return plain_text.as_line(f"{clock.local_time()}  {who}  {what}")

    def _left_out(self, count: int) -> str:
        return self._line("serve", f"{counted(count, 'event')} before this were left out: {NOT_TAKEN}")


class HeldBack:
    """Keeps events for `announce` until `release`. So the line with the server's address is printed first,
    even if a client connects earlier."""

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
        """Reports the kept events, and from now on each event at once."""
        kept, self._kept = self._kept or [], None
        for event in kept:
            self._announce(*event)


def silence(_who: str, _what: str) -> None:
    """An `Announce` that reports nothing."""
