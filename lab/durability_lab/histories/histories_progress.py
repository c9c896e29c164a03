"""How far a search is: a bar on a terminal, a line now and then elsewhere, with the time left."""

from __future__ import annotations

import time
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from durability.units import counted

_PLAIN_LINE_S = 10.0  # between lines without a terminal


class HistoriesProgress:
    """Shows on `err` how many of `total` histories were played and right."""

    def __init__(self, total: int, err: TextIO) -> None:
        self.right = 0
        self._total = total
        self._err = err
        self._began_s = time.monotonic()
        self._next_line_s = self._began_s + _PLAIN_LINE_S
        self._bar = Progress(
            TextColumn("histories"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rest]}"),
            console=Console(file=err),
            disable=not err.isatty(),
            transient=True,
        )
        self._task = self._bar.add_task("", total=total, rest="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def one_right(self) -> None:
        """One more was right."""
        self.right += 1
        now_s = time.monotonic()
        left_s = (now_s - self._began_s) / self.right * (self._total - self.right)
        rest = f"about {_words(left_s)} left"
        self._bar.update(self._task, advance=1, rest=rest)
        if self._bar.disable and now_s >= self._next_line_s:
            self._next_line_s = now_s + _PLAIN_LINE_S
            every = counted(self._total, "history", "histories")
            print(f"{self.right:,} of {every} right, {rest}", file=self._err, flush=True)


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
