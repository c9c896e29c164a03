"""Progress of a long command: a bar on a terminal, otherwise a line now and then, with the time left.

The caller estimates the time left.
"""

from __future__ import annotations

import time
from typing import Self, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from durability_client.system.terminal import PLAIN_LINE_S


class ProgressLine:
    """Shows on `err` how many of `total` are done, and the present work."""

    def __init__(self, total: int, err: TextIO, *, description: str = "") -> None:
        self._err = err
        self._next_line_s = time.monotonic() + PLAIN_LINE_S
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rest]}"),
            console=Console(file=err),
            disable=not err.isatty(),
            transient=True,
        )
        self._task = self._bar.add_task(escape(description), total=total, rest="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def describe(self, description: str) -> None:
        """Set the description of the present work."""
        self._bar.update(self._task, description=escape(description))

    def advance(self, left_s: float, summary: str, detail: str = "") -> None:
        """Count one more as done. Without a terminal, print a line now and then: `summary`, the time left and
        `detail`."""
        rest = f"about {_words(left_s)} left"
        self._bar.update(self._task, advance=1, rest=rest)
        if self._bar.disable and time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + PLAIN_LINE_S
            self.say(f"{summary}, {rest}{detail}")

    def say(self, line: str) -> None:
        """Print a separate line."""
        if self._bar.disable:
            print(line, file=self._err, flush=True)
        else:
            self._bar.console.print(line, markup=False, highlight=False)


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
