"""How far a matrix is: a bar on a terminal, a line now and then elsewhere; wrong cuts are reported at once.

The time left is that of the slowest lane: its cuts still to be made, each as long as those of its rig have
taken so far.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from durability_lab.matrix.cut_workers import CutRequest
from durability_lab.matrix.graded_cut import GradedCut
from durability_lab.matrix.matrix_cells import Rig

_PLAIN_LINE_S = 10.0  # between lines without a terminal
_USUAL_S: Mapping[Rig, float] = {"a": 0.1, "b": 4.0, "c": 25.0}  # of a cut, until some are done


class MatrixProgress:
    """Shows on `err` how far the cuts of `requests` are; `workers_by_rig`: cuts made at a time."""

    def __init__(
        self, requests: Iterable[CutRequest], workers_by_rig: Mapping[Rig, int], err: TextIO
    ) -> None:
        self._left = Counter(request.cell.rig for request in requests)
        self._total = self._left.total()
        self._workers_by_rig = workers_by_rig
        self._took_s = {rig: [usual] for rig, usual in _USUAL_S.items()}
        self._err = err
        self._wrong = 0
        self._next_line_s = time.monotonic() + _PLAIN_LINE_S
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rest]}"),
            console=Console(file=err),
            disable=not err.isatty(),
            transient=True,
        )
        self._task = self._bar.add_task("", total=self._total, rest="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    @property
    def left_s(self) -> float:
        """About how long the rest takes."""
        return max(
            (
                count * sum(self._took_s[rig]) / len(self._took_s[rig]) / self._workers_by_rig[rig]
                for rig, count in self._left.items()
            ),
            default=0.0,
        )

    def begin(self, request: CutRequest) -> None:
        """This cut is being made."""
        self._bar.update(self._task, description=escape(f"{request.cell.name} #{request.number}"))

    def done(self, request: CutRequest, graded_cut: GradedCut) -> None:
        """It is made."""
        rig = request.cell.rig
        if self._took_s[rig] == [_USUAL_S[rig]]:
            self._took_s[rig].clear()
        self._took_s[rig].append(graded_cut.duration_s)
        self._left[rig] -= 1
        rest = f"about {_words(self.left_s)} left"
        self._bar.update(self._task, advance=1, rest=rest)
        if graded_cut.wrong:
            self._wrong += 1
            self._say(
                f"wrong: {graded_cut.cell} #{graded_cut.number}, seed {graded_cut.seed}: {_why(graded_cut)}"
            )
        if self._bar.disable and time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + _PLAIN_LINE_S
            made = self._total - self._left.total()
            self._say(f"{made} of {self._total} cuts, {self._wrong} wrong, {rest}; {request.cell.name}")

    def _say(self, line: str) -> None:
        if self._bar.disable:
            print(line, file=self._err, flush=True)
        else:
            self._bar.console.print(line, markup=False, highlight=False)


def _why(graded_cut: GradedCut) -> str:
    return "; ".join(
        [graded_cut.grade, *([graded_cut.reason] if graded_cut.reason else []), *graded_cut.defects[:1]]
    )


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
