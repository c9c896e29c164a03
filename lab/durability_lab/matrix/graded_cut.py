"""One cut of a cell and its grade: the verdict compared with the expected verdict and with the truth.

Grades:

    right         the expected verdict for the drive
    false alarm   loss, although the drive is honest
    missed        not the expected verdict, for a lying drive
    undecided     inconclusive, although the drive is honest
    failed        no verdict: the cut could not be made, or the tester gave up

Every grade except `right` has a reason. Only a miss can be explained: the truth shows which promises the
drive broke, and that no tester could have found it out. A miss is not explained if there were findings that
did not become a loss, or if the scan did not reach its end although every read of the drive returns. A
difference between findings and truth, as far as they can be compared, is a defect for any grade.
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
    """Findings of one class compared with the truth, as numbers of places."""

    agreed: int = 0  # found and true
    false: int = 0  # found, but not true
    missed: int = 0  # true, but not found
    unjudged: int = 0  # found, but not compared place by place; counts in neither share

    def __add__(self, other: Agreement) -> Agreement:
        names = [one.name for one in fields(self)]
        return Agreement(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def compared(self) -> int:
        """Number of places that were compared one by one: the base of both shares."""
        return self.agreed + self.false + self.missed

    @property
    def precision(self) -> float | None:
        """The share of findings that are true; None without findings."""
        found = self.agreed + self.false
        return self.agreed / found if found else None

    @property
    def recall(self) -> float | None:
        """The share of true places that were found; None without true places."""
        true = self.agreed + self.missed
        return self.agreed / true if true else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedCut:
    """One cut and its grade."""

    cell: str  # name of the cell
    number: int  # number of the cut in its cell, from 1
    seed: int
    honest: bool
    expected: VerdictWord
    verdict: VerdictWord | None
    grade: Grade
    reason: str = ""
    promised: int | None = None  # sectors that the drive had promised; None without a log of the drive
    broken: int | None = None  # promised sectors that were not there; None without a log of the drive
    lost: int = 0  # number of findings
    window_ms: float | None = None  # the oldest loss was acknowledged at least this long before the cut
    window_operations: int | None = None  # operations acknowledged since the oldest loss
    classes: dict[str, Agreement] = field(default_factory=dict)
    defects: tuple[str, ...] = ()  # differences between findings and truth, and other errors of the cut
    duration_s: float

    @property
    def wrong(self) -> bool:
        """Whether the cut shows an error: a defect, or neither a right verdict nor an explained miss."""
        return bool(self.defects) or not (self.grade == "right" or self._unseen)

    @property
    def _unseen(self) -> bool:
        """Whether this is a miss without findings and without a loss verdict, on a drive with a log.

        `defects` tells whether the tester should have found the loss.
        """
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
    """Grade a cut without a verdict."""
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
    """Why the verdict is not the expected one: by the verdict's own reasons, or by the truth."""
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
    """The defects of the comparison, and an unfinished scan of a drive whose reads all return."""
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
