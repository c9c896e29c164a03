"""Output to the terminal: a variant of rich's console that reports a closed stdout, and plain lines broken
between words. Also the only question that commands ask."""

from __future__ import annotations

import codecs
import errno
import os
import select
import signal
import sys
import threading
from textwrap import TextWrapper
from typing import Any, NoReturn, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from durability import plain_text
from durability.formats.documents import to_ascii_json, to_json

SCREEN_WIDTH_MIN = 20  # if a terminal reports less, as a serial console may, its width is unknown
SCREEN_WIDTH_MAX = 120  # longer lines are harder to read
SCREEN_HEIGHT_MAX = 22  # a terminal of 24 lines also shows a line about the written file, and the prompt
PLAIN_LINE_S = 10.0  # interval between lines of progress without a terminal
_WAIT_S = 0.1  # longest wait for an answer before signals are handled


def fitted(text: str, stream: TextIO, *, indent: int) -> str:
    """`text` as plain text. If `stream` is a terminal, lines are broken between words to its width, and
    continued after `indent` blanks. Otherwise they are not broken, so that programs get whole lines."""
    text = plain_text.as_text(text)
    if not stream.isatty():
        return text
    wrapper = TextWrapper(
        width=columns_of(stream),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(row for line in text.splitlines() for row in wrapper.wrap(line) or [""])


def columns_of(stream: TextIO) -> int:
    """The number of columns to fill on `stream`: a terminal's width, or COLUMNS, else 80."""
    return _known(Console(file=stream).width)


def _known(columns: int) -> int:
    return columns if columns >= SCREEN_WIDTH_MIN else 80


def json_line(value: object, out: TextIO) -> str:
    """`value` as JSON that can be printed on `out`."""
    is_utf8 = codecs.lookup(out.encoding or "utf-8").name == "utf-8"
    return to_json(value) if is_utf8 else to_ascii_json(value)


def print_json(value: object, out: TextIO) -> None:
    """Print `value` as one line of JSON."""
    print(json_line(value, out), file=out, flush=True)


def cut_to(text: str, width: int) -> str:
    """The text on one line, cut to `width` columns; some characters take two columns."""
    line = plain_text.as_line(text)
    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…"


def width_of(stream: TextIO) -> int | None:
    """The number of columns of the terminal `stream`; None if it is not a terminal."""
    return columns_of(stream) if stream.isatty() else None


def confirmed(question: str) -> bool:
    """Ask `question`, and return whether the answer is yes. False unless stdin and stderr are terminals.

    Ctrl-C raises KeyboardInterrupt, also in an event loop.
    """
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    main = threading.current_thread() is threading.main_thread()
    # Set before the question appears: an event loop's handler would only cancel a task, which waits here.
    before = signal.signal(signal.SIGINT, signal.default_int_handler) if main else None
    try:
        print(plain_text.as_text(question), end=" ", file=sys.stderr, flush=True)
        # Short waits, because a signal just before a wait is handled only after it, and a read may never end.
        while not select.select([sys.stdin], [], [], _WAIT_S)[0]:
            pass
        return sys.stdin.readline().strip().lower() in {"y", "yes"}
    except ValueError:  # the input is not valid text
        return False
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


class Terminal(Console):
    """A console that raises BrokenPipeError if the reader closed stdout. It uses colour only on a terminal,
    whatever FORCE_COLOR says, and has at least `SCREEN_WIDTH_MIN` columns.

    rich's console would exit with code 1, which means a defect of this tool.
    """

    def __init__(self, *, file: TextIO, **options: Any) -> None:
        super().__init__(file=file, force_terminal=None if file.isatty() else False, **options)
        self.width = _known(self.width)

    def on_broken_pipe(self) -> NoReturn:
        """Raises BrokenPipeError."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
