"""The lines of the log: each message is one plain line, and one that comes too often is counted, not written.

A stranger decides how often a line of the log has its cause, so there is a limit for each kind of line. Lines
about a known client are kinds of their own, so that a noisy one hides no other's; those about strangers are
not, since a stranger may come from any number of ports. What was left out is said with the next line of the
kind that is written. Whatever asyncio says is one kind: its lines name the objects that they are about, so
each would be a kind of its own.
"""

from __future__ import annotations

import logging
import sys
import syslog
import time
from dataclasses import dataclass
from typing import Any, TextIO

from durability import plain_text
from durability.units import counted
from durability_server.line_writer import NOT_TAKEN, LineWriter

_FORMAT = "%(asctime)s %(levelname)s %(message)s"
_PRIORITIES = {
    logging.CRITICAL: syslog.LOG_CRIT,
    logging.ERROR: syslog.LOG_ERR,
    logging.WARNING: syslog.LOG_WARNING,
    logging.DEBUG: syslog.LOG_DEBUG,
}
EVENTS_AT_ONCE = 100  # of one client's that `serve` prints: one that comes back all the time hides no other
_AT_ONCE = 20  # lines of one kind
_INTERVAL_S = 10.0  # in which there may be so many of each
_KINDS_MAX = 20_000  # that are counted apart; all others are one


def set_up() -> logging.Handler:
    """Has the log written to stderr. Flush what it returns before the end of the process."""
    handler = _LineHandler(sys.stderr)
    handler.setFormatter(PlainFormatter(_FORMAT))
    handler.addFilter(Rare())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    return handler


class _LineHandler(logging.Handler):
    """Has the lines written to `out`."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._lines = LineWriter(out, left_out=self._left_out)

    def emit(self, record: logging.LogRecord) -> None:
        """As of `logging.Handler`."""
        try:
            self._lines.write(self.format(record), _PRIORITIES.get(record.levelno, syslog.LOG_INFO))
        except Exception:  # as every handler does: a line of the log ends nothing
            self.handleError(record)

    def flush(self) -> None:
        """Waits a while for lines that are not written yet; Python does so at its end."""
        self._lines.flush()

    def _left_out(self, count: int) -> str:
        text = f"{counted(count, 'line')} before this were left out: {NOT_TAKEN}"
        return self.format(logging.makeLogRecord({"levelname": "WARNING", "msg": text}))


def about(holder: str) -> dict[str, str]:
    """The `extra` of a line about a client, or "" for none: who holds what the line is about."""
    return {"holder": holder}


class PlainFormatter(logging.Formatter):
    """Makes each message one plain line, so that a peer's words forge no line of the log."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """As of `logging.Formatter`, as one plain line."""
        return plain_text.as_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """As of `logging.Formatter`, as plain text."""
        return plain_text.as_text(super().formatException(ei))


@dataclass(slots=True)
class _Kind:
    """Lines of one kind since `began_s`."""

    began_s: float
    written: int = 0
    left_out: int = 0


class LineLimit:
    """Lets `at_once` lines of one kind pass in an interval."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._kinds: dict[str, _Kind] = {}

    def left_out(self, name: str) -> int | None:
        """How many lines of the kind `name` were left out before this one; None if this one is left out."""
        now_s = time.monotonic()
        if name not in self._kinds and len(self._kinds) >= _KINDS_MAX:
            name = ""
        kind = self._kinds.setdefault(name, _Kind(now_s))
        before = 0
        if now_s - kind.began_s > _INTERVAL_S:
            before = kind.left_out
            kind.began_s, kind.written, kind.left_out = now_s, 0, 0
        kind.written += 1
        if kind.written > self._at_once:
            kind.left_out += 1
            return None
        return before


class Rare(logging.Filter):
    """Lets so many lines of one kind pass in an interval. A kind is a template, without what is filled in,
    and whom the line is `about`."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = LineLimit(_AT_ONCE)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether `record` is written; with how many were left out before it."""
        holder = getattr(record, "holder", "")
        left_out = self._limit.left_out("" if record.name == "asyncio" else f"{holder}\0{record.msg}")
        if left_out:
            record.msg = f"{record.getMessage()} (and {left_out:,} such lines before)"
            record.args = None
        return left_out is not None
