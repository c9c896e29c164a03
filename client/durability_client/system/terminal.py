"""Where tables and long lines go: rich's console, but for what it does when its reader leaves, and lines that
are plain and that a terminal does not break within a word."""

from __future__ import annotations

import errno
import os
from textwrap import TextWrapper
from typing import NoReturn, TextIO

from rich.console import Console

from durability import plain_text


def fitted(text: str, stream: TextIO, *, indent: int) -> str:
    """`text` as plain text, its lines broken between words for the terminal that `stream` is, each continued
    after `indent` blanks; elsewhere not broken, so that programs find whole lines."""
    text = plain_text.as_text(text)
    if not stream.isatty():
        return text
    wrapper = TextWrapper(
        width=Console(file=stream).width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(row for line in text.splitlines() for row in wrapper.wrap(line) or [""])


class Terminal(Console):
    """A console that reports to its caller when the reader closed stdout.

    rich's own would end the program with 1, which is this tool's word for a defect.
    """

    def on_broken_pipe(self) -> NoReturn:
        """Raises BrokenPipeError."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
