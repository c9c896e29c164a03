"""Text output to a terminal or another program, without waiting for it.

If a terminal was stopped with Ctrl-S, or a program does not read, a write may wait for hours. So a separate
thread writes. The queue is bounded, and further texts are dropped. An output without a descriptor is written
at once, because it never waits. The output is never made non-blocking, since other programs may use the same
terminal.
"""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from queue import Full, Queue
from typing import TextIO

WAITING_MAX = 1000  # texts in the queue
END_S = 2.0  # wait for queued texts before other code writes


class UnhurriedOutput:
    """Output to `out`. `failure`: the last error of a write, None if there was none."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._descriptor: int | None = None
        with suppress(OSError):  # io.UnsupportedOperation
            self._descriptor = out.fileno()
        self._waiting: Queue[bytes] = Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None
        self.failure: OSError | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be written."""
        return not self._waiting.unfinished_tasks

    def write(self, text: str) -> None:
        """Queue `text` for output. If the queue is full, `text` is dropped."""
        if self._descriptor is None:
            self._out.write(text)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, args=(self._descriptor,), daemon=True)
            self._thread.start()
        with suppress(Full):
            self._waiting.put_nowait(text.encode(self._out.encoding, self._out.errors or "replace"))

    def flush(self, within_s: float = END_S) -> None:
        """Wait until all texts are written, at most for `within_s`."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(lambda: self.is_idle, within_s)

    def _work(self, descriptor: int) -> None:
        while True:
            rest = memoryview(self._waiting.get())
            try:
                while rest:
                    rest = rest[_written(descriptor, rest) :]
            except OSError as error:  # the reader has closed it, or the disk is full
                self.failure = error
            self._waiting.task_done()


def _written(descriptor: int, data: memoryview) -> int:
    try:
        return os.write(descriptor, data)
    except BlockingIOError:  # another program has made the output non-blocking
        room = select.poll()
        room.register(descriptor, select.POLLOUT)
        room.poll()
        return 0
