"""Where tables go: rich's console, but for what it does when its reader leaves."""

from __future__ import annotations

import errno
import os
from typing import NoReturn

from rich.console import Console


class Terminal(Console):
    """A console that reports to its caller when the reader closed stdout.

    rich's own would end the program with 1, which is this tool's word for a defect.
    """

    def on_broken_pipe(self) -> NoReturn:
        """Raises BrokenPipeError."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
