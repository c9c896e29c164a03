"""Lines for people and for logs, written by a thread of their own.

A terminal that was stopped with Ctrl-S, or a pager that nobody pages, lets a write wait for hours. So nobody
writes to them but this thread: no client waits for them. What waits to be written is bounded; lines beyond
that are left out and counted, and the number is written as soon as there is room. Lines for systemd's journal
carry their priority. Never makes the output non-blocking: other programs may have the same terminal.
"""

from __future__ import annotations

import os
import select
import syslog
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

QUEUED_BYTES_MAX = 256 << 10
NOT_TAKEN = "this output took nothing for a while"  # why lines were left out
JOURNAL = "JOURNAL_STREAM"  # systemd's variable: device and inode of what goes to the journal
END_S = 2.0  # for what waits to be written, when the server ends


class LineWriter:
    """Writes lines to the open file `out`, in the order in which they come. `left_out` makes the line that
    stands for so many that were left out."""

    def __init__(self, out: TextIO, *, left_out: Callable[[int], str]) -> None:
        self._descriptor = out.fileno()
        self._encoding, self._errors = out.encoding, out.errors or "replace"
        status = os.fstat(self._descriptor)
        self._is_journal = os.environ.get(JOURNAL) == f"{status.st_dev}:{status.st_ino}"
        self._left_out_line = left_out
        self._queued: deque[bytes] = deque()  # the first of them is being written
        self._queued_bytes = 0
        self._left_out = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, line: str, priority: int = syslog.LOG_INFO) -> None:
        """Has `line`, which lacks its end, written when the output takes it; waits for nothing. `priority` is
        as syslog has it."""
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
        """Returns once nothing waits to be written any more, or after `END_S`."""
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
            except BlockingIOError:  # another program has made it non-blocking
                room = select.poll()
                room.register(self._descriptor, select.POLLOUT)
                room.poll()
            except OSError:  # nobody reads any more, or the disk is full, which must not end the server
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
        if self._is_journal:  # to which each line of a text is one
            line = "\n".join(f"<{priority}>{part}" for part in line.split("\n"))
        return f"{line}\n".encode(self._encoding, self._errors)
