"""Writes lines for people and logs in a thread of its own.

A terminal stopped with Ctrl-S, or a pager that is not read, may block a write for hours. So only this thread
writes to them, and no client waits for them. The queue is bounded. Lines beyond that are omitted and counted,
and the number is written as soon as there is room. Lines for systemd's journal carry their priority. The
output is never made non-blocking, because other programs may share the terminal.
"""

from __future__ import annotations

import os
import select
import syslog
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

QUEUED_BYTES_MAX = 256 << 10  # queued lines; one longer line is queued alone
NOT_TAKEN = "this output took nothing for a while"  # why lines were left out
JOURNAL = "JOURNAL_STREAM"  # systemd's variable: device and inode of a stream to the journal
END_S = 2.0  # longest wait for queued lines when the server ends


class LineWriter:
    """Writes lines to the open file `out` in the order of the calls. `left_out` returns the line that
    replaces this many omitted lines."""

    def __init__(self, out: TextIO, *, left_out: Callable[[int], str]) -> None:
        self._descriptor = out.fileno()
        self._encoding, self._errors = out.encoding, out.errors or "replace"
        status = os.fstat(self._descriptor)
        self._is_journal = os.environ.get(JOURNAL) == f"{status.st_dev}:{status.st_ino}"
        self._left_out_line = left_out
        self._queued: deque[bytes] = deque()  # the first one is being written
        self._queued_bytes = 0
        self._left_out = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, line: str, priority: int = syslog.LOG_INFO) -> None:
        """Queues `line`, without its newline, for writing. Does not wait. `priority` is a syslog priority."""
        data = self._encoded(line, priority)
        with self._changed:
            if self._queued and self._queued_bytes + len(data) > QUEUED_BYTES_MAX:
                self._left_out += 1
                return
            self._say_left_out()
            self._queue(data)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="lines", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """Returns once no line is queued, or after `END_S`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queued, END_S)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._queued))
                data = self._queued[0]
            self._put(data)
            with self._changed:
                self._queued.popleft()
                self._queued_bytes -= len(data)
                if not self._queued:
                    self._say_left_out()
                self._changed.notify_all()

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # another program has made the output non-blocking
                room = select.poll()
                room.register(self._descriptor, select.POLLOUT)
                room.poll()
            except OSError:  # the reader is gone or the disk is full, which must not end the server
                return

    def _say_left_out(self) -> None:
        if self._left_out:
            self._queue(self._encoded(self._left_out_line(self._left_out), syslog.LOG_WARNING))
            self._left_out = 0

    def _queue(self, data: bytes) -> None:
        self._queued.append(data)
        self._queued_bytes += len(data)
        self._changed.notify_all()

    def _encoded(self, line: str, priority: int) -> bytes:
        if self._is_journal:  # the journal treats each line of a text as a message
            line = "\n".join(f"<{priority}>{part}" for part in line.split("\n"))
        return f"{line}\n".encode(self._encoding, self._errors)
