"""The standard streams as commands need them: all three open, and stderr one that ends nothing.

A file opened while one of the three is closed would get its number, and with it whatever is printed. What is
told to people on the way must not end what they wait for: a terminal that was closed, or a full disk behind
stderr, swallows it. What goes to stdout is the answer, and its errors are errors (see `cli`).
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class _Forgiving(io.FileIO):
    """A file into which every write succeeds."""

    def write(self, data: Any) -> int:
        """How many bytes were written, or would have been: of a pipe that is full and does not wait, too."""
        try:
            written = super().write(data)
        except OSError:
            written = None
        return memoryview(data).nbytes if written is None else written


def prepare() -> None:
    """Make the streams of this process so."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            # The lowest number that is free, which is this one; also in processes that are started.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # what its encoding does not have ends nothing
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    raw = io.BufferedWriter(_Forgiving(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(raw, encoding, errors="backslashreplace", line_buffering=True)
