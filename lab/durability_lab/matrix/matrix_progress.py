"""Progress of a matrix: finished cuts and time left; wrong cuts are reported at once.

The time left is that of the slowest rig: the number of its remaining cuts times the mean duration of its
finished cuts, divided by its workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self, TextIO

from durability_lab.matrix.cut_workers import CutRequest
from durability_lab.matrix.graded_cut import GradedCut
from durability_lab.matrix.matrix_cells import Rig
from durability_lab.support.progress_line import ProgressLine

_USUAL_S: Mapping[Rig, float] = {"a": 0.1, "b": 4.0, "c": 25.0}  # assumed duration of the first cut


class MatrixProgress:
    """Shows the progress of the cuts of `requests` on `err`. `workers_by_rig`: cuts made at a time."""

    def __init__(
        self, requests: Iterable[CutRequest], workers_by_rig: Mapping[Rig, int], err: TextIO
    ) -> None:
        self._left = Counter(request.cell.rig for request in requests)
        self._total = self._left.total()
        self._workers_by_rig = workers_by_rig
        self._took_s = {rig: [usual] for rig, usual in _USUAL_S.items()}
        self._wrong = 0
        self._line = ProgressLine(self._total, err)

    def __enter__(self) -> Self:
        self._line.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._line.__exit__(*exception)

    @property
    def left_s(self) -> float:
        """Estimated time left, in s."""
        return max(
            (
                count * sum(self._took_s[rig]) / len(self._took_s[rig]) / self._workers_by_rig[rig]
                for rig, count in self._left.items()
            ),
            default=0.0,
        )

    def begin(self, request: CutRequest) -> None:
        """Note that this cut is being made."""
        self._line.describe(f"{request.cell.name} #{request.number}")

    def done(self, request: CutRequest, graded_cut: GradedCut) -> None:
        """Note that this cut is finished."""
        rig = request.cell.rig
        if self._took_s[rig] == [_USUAL_S[rig]]:
            self._took_s[rig].clear()
        self._took_s[rig].append(graded_cut.duration_s)
        self._left[rig] -= 1
        if graded_cut.wrong:
            self._wrong += 1
            self._line.say(
                f"wrong: {graded_cut.cell} #{graded_cut.number}, seed {graded_cut.seed}: {_why(graded_cut)}"
            )
        made = self._total - self._left.total()
        self._line.advance(
            self.left_s, f"{made} of {self._total} cuts, {self._wrong} wrong", f"; {request.cell.name}"
        )


def _why(graded_cut: GradedCut) -> str:
    return "; ".join(
        [graded_cut.grade, *([graded_cut.reason] if graded_cut.reason else []), *graded_cut.defects[:1]]
    )
