"""Prepares the standard streams: all three are open, and errors on stderr stop nothing.

If one of the three were closed, the next opened file would get its number, and with it whatever is printed. A
message must not stop the work that it reports, so a closed terminal or a full disk behind stderr swallows it.
Stdout carries the answer, so an error on stdout is an error of the command (see `main`).
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class _Forgiving(io.FileIO):
    """A file that reports success for every write."""

    def write(self, data: Any) -> int:
        """The number of bytes written, or of all bytes if the write failed or would have blocked."""
        try:
            written = super().write(data)
        except OSError:
            written = None
        return memoryview(data).nbytes if written is None else written


def prepare() -> None:
    """Open and configure the standard streams of this process."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            # This opens the lowest free number, which is `fd`; child processes inherit it.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a character that the encoding lacks is replaced
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    raw = io.BufferedWriter(_Forgiving(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(raw, encoding, errors="backslashreplace", line_buffering=True)
