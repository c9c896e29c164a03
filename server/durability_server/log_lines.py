"""The lines of the log: each message is one plain line, and lines that are too frequent are counted, not
written.

A stranger decides how often the cause of a line occurs, so there is a limit for each kind of line. Lines
about a known client are separate kinds, so that a noisy client hides no lines of others. Lines about
strangers are not separated, because a stranger may come from any number of ports. The next written line of a
kind has the number of omitted lines. All messages of asyncio are one kind: they name the objects that they
are about, so each would otherwise be its own kind.
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
EVENTS_AT_ONCE = 100  # printed events of one client per interval, so that it hides no other client
_AT_ONCE = 20  # lines of one kind per interval
_INTERVAL_S = 10.0  # the interval
_KINDS_MAX = 20_000  # kinds counted separately; all further kinds are counted as one


def set_up() -> logging.Handler:
    """Writes the log to stderr. Flush the returned handler before the end of the process."""
    handler = _LineHandler(sys.stderr)
    handler.setFormatter(PlainFormatter(_FORMAT))
    handler.addFilter(Rare())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    return handler


class _LineHandler(logging.Handler):
    """Writes the log's lines to `out`."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._lines = LineWriter(out, left_out=self._left_out)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        try:
            self._lines.write(self.format(record), _PRIORITIES.get(record.levelno, syslog.LOG_INFO))
        except Exception:  # like every handler: a log line must not end the program
            self.handleError(record)

    def flush(self) -> None:
        """Waits for unwritten lines, but at most `line_writer.END_S`. Python calls this at its end."""
        self._lines.flush()

    def _left_out(self, count: int) -> str:
        text = f"{counted(count, 'line')} before this were left out: {NOT_TAKEN}"
        return self.format(logging.makeLogRecord({"levelname": "WARNING", "msg": text}))


def about(holder: str) -> dict[str, str]:
    """The `extra` of a line about a client: its holder (see `Caller.holder`), or "" for none."""
    return {"holder": holder}


class PlainFormatter(logging.Formatter):
    """Formats each message as one plain line, so that a peer's text cannot forge log lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """See `logging.Formatter`. The result is one plain line."""
        return plain_text.as_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """See `logging.Formatter`. The result is plain text."""
        return plain_text.as_text(super().formatException(ei))


@dataclass(slots=True)
class _Kind:
    """Number of lines of one kind since `began_s`."""

    began_s: float
    written: int = 0
    left_out: int = 0


class LineLimit:
    """Allows `at_once` lines of each kind per interval."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._kinds: dict[str, _Kind] = {}

    def left_out(self, name: str) -> int | None:
        """How many lines of the kind `name` were omitted before this one. None if this line is omitted."""
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
    """Allows `_AT_ONCE` lines of each kind per interval. A kind is a message template with the holder that
    the line is `about`."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = LineLimit(_AT_ONCE)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether `record` is written. Adds the number of omitted lines to its message."""
        holder = getattr(record, "holder", "")
        left_out = self._limit.left_out("" if record.name == "asyncio" else f"{holder}\0{record.msg}")
        if left_out:
            record.msg = f"{record.getMessage()} (and {left_out:,} such lines before)"
            record.args = None
        return left_out is not None
