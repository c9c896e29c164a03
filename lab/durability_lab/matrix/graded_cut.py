"""One cut of a cell and what came of it: the verdict, compared with what the drive is and with the truth.

Grades:

    right         the verdict that the drive deserves
    false alarm   loss, and the drive is honest
    missed        not what a drive deserves that does not keep its word
    undecided     inconclusive, and the drive is honest
    failed        there is no verdict: the cut could not be made, or the tester gave up

A grade other than `right` has its reason. Only a miss can be explained, by the truth: what the drive promised
and broke, and that no tester could have seen it. Refuses to explain a miss of what was seen: where something
was found that made no loss, or where the scan did not get to its end, though every read of the drive returns.
Where findings and truth do not agree, place by place or as far as they can be compared, that is a defect
whatever the grade.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from durability.evidence.verdict import VerdictWord
from durability.units import counted
from durability_lab.matrix.matrix_cells import MatrixCell
from durability_lab.truth.comparison import Reason, Truth
from durability_lab.truth.expected_verdict import expected_of, is_honest

Grade: TypeAlias = Literal["right", "false alarm", "missed", "undecided", "failed"]

KEPT = "the drive kept every promise"
_UNCLAIMED: Mapping[Reason, str] = {
    "unheard": "promises newer than log and target can prove",
    "in flight": "places with a newer write in flight",
    "covered": "versions replaced by a newer one",
    "control": "writes of the control arm, which are never synced",
    "no record": "the file system's own writes",
    "unread": "places that the scan did not reach",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Findings of one class against the truth: in both, only found (`false`), only true (`missed`).
    `unjudged` were found and could not be compared place by place: they count in neither share."""

    agreed: int = 0
    false: int = 0
    missed: int = 0
    unjudged: int = 0

    def __add__(self, other: Agreement) -> Agreement:
        names = [one.name for one in fields(self)]
        return Agreement(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def compared(self) -> int:
        """Places that were compared one by one: the base of both shares."""
        return self.agreed + self.false + self.missed

    @property
    def precision(self) -> float | None:
        """The share of findings that are true, None where nothing was found."""
        found = self.agreed + self.false
        return self.agreed / found if found else None

    @property
    def recall(self) -> float | None:
        """The share of what is true that was found, None where nothing is."""
        true = self.agreed + self.missed
        return self.agreed / true if true else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedCut:
    """Cut `number` (from 1) of the cell of that name, and its grade.

    `promised`: sectors that the drive had said are durable; `broken`: those of them that were not there;
    None where no log of the drive was kept. `lost`: findings; the oldest of them had been acknowledged at
    least `window_ms` before the cut and `window_operations` ago. `defects`: where findings and truth do not
    agree, and whatever else must not be about this cut.
    """

    cell: str
    number: int
    seed: int
    honest: bool
    expected: VerdictWord
    verdict: VerdictWord | None
    grade: Grade
    reason: str = ""
    promised: int | None = None
    broken: int | None = None
    lost: int = 0
    window_ms: float | None = None
    window_operations: int | None = None
    classes: dict[str, Agreement] = field(default_factory=dict)
    defects: tuple[str, ...] = ()
    duration_s: float

    @property
    def wrong(self) -> bool:
        """Whether this must not be: anything but a right verdict or an explained miss, that agrees with the
        truth."""
        return bool(self.defects) or not (self.grade == "right" or self._unseen)

    @property
    def _unseen(self) -> bool:
        """Whether it is a miss of what the tester did not find, on a drive with a log: `defects` says
        whether it had to. A cut with findings, or a verdict of loss, has no such excuse."""
        seen = self.lost > 0 or self.verdict == "loss"
        return self.grade == "missed" and self.broken is not None and not seen


def judged(
    cell: MatrixCell,
    number: int,
    *,
    seed: int,
    document: Mapping[str, Any],
    truth: Truth | None,
    duration_s: float,
) -> GradedCut:
    """Grade a cut on which `verify --json` gave `document`."""
    expected, verdict = expected_of(cell.drive), document["verdict"]
    honest = is_honest(cell.drive)
    grade: Grade = "right"
    if honest and verdict != expected:
        grade = "false alarm" if verdict == "loss" else "undecided"
    elif verdict != expected:
        grade = "missed"
    window = document["loss_window"] or {"ms_min": None, "operations": None}
    return GradedCut(
        cell=cell.name,
        number=number,
        seed=seed,
        honest=honest,
        expected=expected,
        verdict=verdict,
        grade=grade,
        reason="" if grade == "right" else _reason(grade, document, truth),
        promised=truth.promised if truth is not None else None,
        broken=truth.broken if truth is not None else None,
        lost=sum(document["findings"].values()),
        window_ms=window["ms_min"],
        window_operations=window["operations"],
        classes=_classes(truth) if truth is not None else _unjudged(document),
        defects=_defects(grade, expected, truth) if truth is not None else (),
        duration_s=round(duration_s, 3),
    )


def failed(cell: MatrixCell, number: int, *, seed: int, why: str, duration_s: float) -> GradedCut:
    """Grade a cut that came to no verdict."""
    return GradedCut(
        cell=cell.name,
        number=number,
        seed=seed,
        honest=is_honest(cell.drive),
        expected=expected_of(cell.drive),
        verdict=None,
        grade="failed",
        reason=why,
        duration_s=round(duration_s, 3),
    )


def _reason(grade: Grade, document: Mapping[str, Any], truth: Truth | None) -> str:
    """Why the verdict is not the expected one: in the words of the verdict, or by the truth."""
    verdict = document["verdict"]
    said = ", ".join(reason["code"] for reason in document["reasons"])
    verdict = f"{verdict}: {said}" if said else verdict
    found = sum(document["findings"].values())
    if grade == "missed" and found:
        return f"{verdict}, with {counted(found, 'finding')}"
    if grade == "missed" and truth is not None:
        return _unseen(truth) + (f"; {verdict}" if said and truth.broken else "")
    return verdict


def _unseen(truth: Truth) -> str:
    if not truth.broken:
        return KEPT
    return "all broken promises: " + ", ".join(_UNCLAIMED[reason] for reason in sorted(truth.unclaimed))


def _defects(grade: Grade, expected: VerdictWord, truth: Truth) -> tuple[str, ...]:
    """Those of the comparison; and a drive whose reads all return is read to its end."""
    if grade == "missed" and expected != "inconclusive" and "unread" in truth.unclaimed:
        return (*truth.defects, "the scan did not finish, but no read of this drive hangs")
    return truth.defects


def _unjudged(document: Mapping[str, Any]) -> dict[str, Agreement]:
    return {name: Agreement(unjudged=count) for name, count in document["findings"].items() if count}


def _classes(truth: Truth) -> dict[str, Agreement]:
    names = sorted({*truth.agreed, *truth.false, *truth.missed, *truth.unjudged})
    parts = {one.name: getattr(truth, one.name) for one in fields(Agreement)}
    return {
        name: Agreement(**{part: counts.get(name, 0) for part, counts in parts.items()}) for name in names
    }
