"""Where tables and long lines go: rich's console, but for what it does when its reader leaves, and lines that
are plain and that a terminal does not break within a word. And the only question that commands ask."""

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

SCREEN_WIDTH_MIN = 20  # of a terminal that says less, as a serial console may, nothing is known
SCREEN_WIDTH_MAX = 120  # longer lines are harder to read
SCREEN_HEIGHT_MAX = 22  # of a terminal of 24, with the line that names what was written and the prompt
PLAIN_LINE_S = 10.0  # between lines of progress without a terminal
_WAIT_S = 0.1  # for an answer, before signals are looked for again


def fitted(text: str, stream: TextIO, *, indent: int) -> str:
    """`text` as plain text, its lines broken between words for the terminal that `stream` is, each continued
    after `indent` blanks; elsewhere not broken, so that programs find whole lines."""
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
    """How many columns to fill on `stream`: those of a terminal, or what COLUMNS says; else 80."""
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
    """The text on one line, cut where it takes more than `width` columns: some characters take two."""
    line = plain_text.as_line(text)
    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…"


def width_of(stream: TextIO) -> int | None:
    """How many columns the terminal has that `stream` is; None elsewhere."""
    return columns_of(stream) if stream.isatty() else None


def confirmed(question: str) -> bool:
    """Whether a person answers `question` with yes; False without a terminal on both stdin and stderr.

    Ctrl-C raises KeyboardInterrupt, in an event loop too.
    """
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    main = threading.current_thread() is threading.main_thread()
    # Before the question is seen: an event loop's own handler would only cancel a task that waits in here.
    before = signal.signal(signal.SIGINT, signal.default_int_handler) if main else None
    try:
        print(plain_text.as_text(question), end=" ", file=sys.stderr, flush=True)
        # Short waits: a signal that comes just before one is heard at its end, and a read has no end.
        while not select.select([sys.stdin], [], [], _WAIT_S)[0]:
            pass
        return sys.stdin.readline().strip().lower() in {"y", "yes"}
    except ValueError:  # what was typed is no text
        return False
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


class Terminal(Console):
    """A console that reports to its caller when the reader closed stdout, has no colour elsewhere than on a
    terminal, whatever FORCE_COLOR says, and at least `SCREEN_WIDTH_MIN` columns.

    rich's own would end the program with 1, which is this tool's word for a defect.
    """

    def __init__(self, *, file: TextIO, **options: Any) -> None:
        super().__init__(file=file, force_terminal=None if file.isatty() else False, **options)
        self.width = _known(self.width)

    def on_broken_pipe(self) -> NoReturn:
        """Raises BrokenPipeError."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
