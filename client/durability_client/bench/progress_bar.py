"""Progress of a measurement: a bar on a terminal, otherwise occasional lines.

The bar is drawn between rounds, and twice a second in long rounds, but not by a separate thread: drawing
takes processor time from the jobs.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from durability import plain_text
from durability_client.system.processes import signals_blocked
from durability_client.system.terminal import PLAIN_LINE_S

_BAR_S = 0.1  # interval between drawings of the bar while files are written


class Bar:
    """The `Listener` for people; use it in a `with` statement."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._console = Console(file=err)
        self._terminal = err.isatty()
        self._next_line_s = time.monotonic() + PLAIN_LINE_S
        self._next_bar_s = 0.0
        self._progress = Progress(
            BarColumn(bar_width=30),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            transient=True,
            auto_refresh=False,
            disable=not self._terminal,
        )
        self._task = self._progress.add_task("looking at the target", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with signals_blocked():
            self._progress.stop()

    def say(self, text: str) -> None:
        """Print a permanent line."""
        text = plain_text.as_line(text)
        if self._terminal:
            with signals_blocked():
                self._console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._err, flush=True)

    def preparing(self, done: int, total: int) -> None:
        """Show the progress of writing test files."""
        now_s = time.monotonic()
        if now_s >= self._next_bar_s:
            self._next_bar_s = now_s + _BAR_S
            self._show(f"writing test files: {done >> 20:,} of {total >> 20:,} MiB", done, total)

    def measuring(self, doing: str, done_s: float, left_s: float) -> None:
        """Show the progress of the measurement."""
        self._show(f"{_clock(left_s)} left  {doing}", done_s, done_s + left_s)

    def _show(self, text: str, done: float, total: float) -> None:
        text = plain_text.as_line(text)
        if self._terminal:
            with signals_blocked():  # an interrupted drawing would keep later ones from being shown
                self._progress.update(self._task, description=text, completed=done, total=total, refresh=True)
        elif time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + PLAIN_LINE_S
            print(text, file=self._err, flush=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
