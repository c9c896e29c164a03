"""Compares the tester's claims about one cut with the truth, place by place.

Three independent sources are compared. The drive's own log (`drive_log`) has every promise and every sector
that breaks one. A `ReferenceJudge` judges the bytes of the target. The tester makes claims. The rules:

    each claim equals the reference judge's finding: class, newest operation acknowledged, oldest one found
    each claim lies at a place where the drive broke a promise; otherwise it is a false alarm
    each broken promise is claimed, or a reason explains why no tester could claim it

The reasons:

    unheard     the promise was for a newer operation than log and target prove to have been acknowledged
    in flight   a newer operation on the slot may have been under way, which excuses damage
    covered     a newer version of the slot was acknowledged and lies elsewhere, or its file was removed
    control     the write is the control arm's, which is never acknowledged
    no record   the promise was made to another writer, such as a file system
    unread      the scan did not reach its end, which happens on a drive whose reads hang

Every disagreement is a defect of the tester or of its lab. A file system may lose a record through its own
metadata. On a file, a claim is therefore also true if the drive broke any promise for something other than a
record.

Claims that were not compared do not count as agreed. A claim is `unjudged` if its place is not named or if
the reference judge cannot read the target. If such claims, or the lack of claims, are provably wrong, that
is a defect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from durability.evidence.judgement import FindingClass, Judgement
from durability.evidence.scan_report import ScanReport
from durability.formats.mixing import U64
from durability.formats.plan import Plan
from durability.formats.versions import Versions
from durability_lab.drive.drive_log import Broken, Kind
from durability_lab.truth.reference_judge import SUPERBLOCK, Label, Place, ReferenceJudge, Wrong

Reason: TypeAlias = Literal["unheard", "in flight", "covered", "control", "no record", "unread"]

_CLASS_OF_KIND: Mapping[Kind, FindingClass] = {
    "older": "lost",
    "blank": "corrupt",
    "elsewhere": "misdirected",
    "garbage": "corrupt",
    "unreadable": "unreadable",
    "gone": "truncated",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The tester's findings on one target."""

    counts: Counter[FindingClass]  # places by class
    places: Mapping[Place, Wrong]  # the claim about each place, or about some of them
    finished: bool  # the scan read everything
    proven: tuple[int, ...] | None = None  # A' of each writer; None if not reported

    @classmethod
    def of_scan(cls, findings: Iterable[Judgement], report: ScanReport) -> Claims:
        """Claims from the findings that a scan's listener received, and from the scan's report."""
        places = {
            (one.writer, one.slot): Wrong(finding=one.finding, expected=one.expected_seq, found=one.found_seq)
            for one in findings
            if one.finding is not None
        }
        return cls(
            counts=Counter(report.findings),
            places=places,
            finished=report.finished,
            proven=report.proven,
        )

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Claims:
        """Claims from the document that `verify --json` prints."""
        places = {
            (one["writer"], one["slot"]): Wrong(
                finding=one["class"], expected=one["expected_seq"], found=one["found_seq"]
            )
            for one in document["examples"]
        }
        unfinished = any(reason["code"] == "scan-unfinished" for reason in document["reasons"])
        return cls(counts=Counter(document["findings"]), places=places, finished=not unfinished)

    def differences(self, told: Claims) -> tuple[str, ...]:
        """Differences between this scan's claims and `told`, the claims of a `verify` of the same target."""
        if self.counts != told.counts:
            return (f"verify says {_counts(told.counts)}, a scan of all {_counts(self.counts)}",)
        return tuple(
            f"{_name(place)}: verify says {_said(wrong)}, a scan of all {_said(self.places.get(place))}"
            for place, wrong in told.places.items()
            if self.places.get(place) != wrong
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAlone:
    """Replaces the reference judge if only the tester can read the target: excuses from the server's log.

    Acknowledgements that only the target would prove are unknown. A promise newer than `acked` is therefore
    `unheard`.
    """

    plan: Plan
    acked: Sequence[int]  # the frontiers that the server received, by writer

    def excuse(self, place: Place, label: Label, kind: Kind) -> Reason | None:
        """Why a broken promise for a writer's record or a superblock need not be found; None: it must be."""
        writer, slot = place
        if writer == SUPERBLOCK:
            return None
        plan, acked, versions = self.plan, self.acked[writer], Versions(self.plan)
        if label.seq > acked:
            return "unheard"
        ceiling = acked + plan.credit
        removed = plan.contract.layout == "log" and slot // plan.slots < ceiling // plan.slots - 1
        if removed or label.seq != int(versions.newest(writer, np.array([slot], dtype=U64), acked)[0]):
            return "covered"
        if kind != "older" and versions.after(writer, slot, label.seq) <= ceiling:
            return "in flight"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The result of comparing one cut. A place is a slot, or a copy of the superblock."""

    promised: int  # sectors of the drive with a promise
    broken: int  # sectors of the drive with a broken promise
    damaged: int  # places with a broken promise for a record
    # Places by class:
    agreed: Mapping[FindingClass, int]  # claimed, and the claim is true
    false: Mapping[FindingClass, int]  # claimed, and the claim is false
    missed: Mapping[FindingClass, int]  # not claimed, without a reason
    unjudged: Mapping[FindingClass, int]  # claims of which at most the number was compared
    # Places by reason, with broken promises that no tester could claim; for `no record`, sectors.
    unclaimed: Mapping[Reason, int]
    defects: tuple[str, ...]  # every disagreement, as a sentence


def compare(
    claims: Claims,
    reference: ReferenceJudge | LogAlone,
    plan: Plan,
    broken: Sequence[Broken],
    *,
    promised: int,
) -> Truth:
    """Compare `claims` with the reference judge and the broken promises. `promised`: number of sectors with
    a promise."""
    comparison = _Comparison(claims, plan, broken)
    if isinstance(reference, LogAlone):
        comparison.unread(reference)
    else:
        comparison.read(reference)
    return comparison.truth(promised)


class _Comparison:
    def __init__(self, claims: Claims, plan: Plan, broken: Sequence[Broken]) -> None:
        self._claims = claims
        self._plan = plan
        self._broken = broken
        self._agreed = Counter[FindingClass]()
        self._false = Counter[FindingClass]()
        self._missed = Counter[FindingClass]()
        self._unjudged = Counter[FindingClass]()
        self._unclaimed = Counter[Reason]()
        self._defects: list[str] = []
        self._damaged = self._places()

    def _places(self) -> dict[Place, list[tuple[Label, Kind]]]:
        """The broken promises for records and superblocks, by place. Counts the other broken promises."""
        damaged: dict[Place, list[tuple[Label, Kind]]] = {}
        control = set()
        for one in self._broken:
            label = Label.of(one.promised) if one.promised else None
            place = label.place(self._plan) if label is not None else None
            if label is None or place is None:
                self._unclaimed["no record"] += 1
            elif place[0] == self._plan.control_writer:
                control.add(place)
            else:
                damaged.setdefault(place, []).append((label, one.kind))
        if control:
            self._unclaimed["control"] = len(control)
        return damaged

    def unread(self, log: LogAlone) -> None:
        """Without a reference judge, check only whether a claim is possible and whether one is required."""
        self._unjudged.update(self._claims.counts)
        if self._claims.counts.total():
            if not self._broken:
                self._defects.append(f"claimed {_counts(self._claims.counts)}, and no promise is broken")
            return
        for place, promises in self._damaged.items():
            reasons = {log.excuse(place, label, kind) for label, kind in promises}
            self._excused(place, promises, reasons if self._claims.finished else {"unread"})

    def read(self, reference: ReferenceJudge) -> None:
        """Compare each claim with the reference judge and the drive log, and each broken promise with the
        claims."""
        named = self._named(reference)
        true = named | self._counted(reference)
        metadata = self._plan.target_kind == "file" and self._unclaimed["no record"] > 0
        for place, wrong in true.items():
            if place in self._damaged or metadata:
                (self._agreed if place in named else self._unjudged)[wrong.finding] += 1
            else:
                self._false[wrong.finding] += 1
                self._defects.append(f"{_name(place)}: claimed {_said(wrong)}, but no promise is broken")
        for place, promises in self._damaged.items():
            if place in true:
                continue
            reasons = {self._reason(reference, place, label) for label, _ in promises}
            if not self._excused(place, promises, reasons):
                self._missed[_CLASS_OF_KIND[promises[0][1]]] += 1

    def _excused(
        self, place: Place, promises: Sequence[tuple[Label, Kind]], reasons: set[Reason | None]
    ) -> bool:
        """Whether each broken promise at an unclaimed place has a reason; if not, that is a defect."""
        if None not in reasons:
            self._unclaimed[min(cast("set[Reason]", reasons))] += 1
            return True
        self._defects.append(
            f"{_name(place)}: a promise is broken ({promises[0][1]}), and nothing is claimed"
        )
        return False

    def _named(self, reference: ReferenceJudge) -> dict[Place, Wrong]:
        """The claims with a named place with which the reference judge agrees."""
        standing = {}
        for place, wrong in self._claims.places.items():
            if reference.wrong.get(place) == wrong:
                standing[place] = wrong
            else:
                self._false[wrong.finding] += 1
                self._defects.append(
                    f"{_name(place)}: claimed {_said(wrong)}, not {_said(reference.wrong.get(place))}"
                )
        return standing

    def _counted(self, reference: ReferenceJudge) -> dict[Place, Wrong]:
        """The reference judge's findings at unnamed places, if the counts of all classes agree.

        A scan names only the edges of a range beyond the end of a file and counts the places between them.
        """
        claims, true = self._claims, reference.wrong
        if claims.finished and claims.proven not in (None, reference.proven):
            self._defects.append(f"A' is claimed to be {claims.proven}, not {reference.proven}")
        counted = Counter(wrong.finding for wrong in true.values())
        if claims.finished and counted != claims.counts:
            self._defects.append(f"claimed {_counts(claims.counts)}, not {_counts(counted)}")
        elif claims.finished and len(claims.places) < counted.total():
            return {place: wrong for place, wrong in true.items() if place not in claims.places}
        self._unjudged += claims.counts - Counter(wrong.finding for wrong in claims.places.values())
        return {}

    def _reason(self, reference: ReferenceJudge, place: Place, label: Label) -> Reason | None:
        """Why a broken promise at `place` need not be claimed."""
        if not self._claims.finished:
            return "unread"
        if place[0] == SUPERBLOCK:
            return None
        if label.seq > reference.proven[place[0]]:
            return "unheard"
        if reference.under_way(place):
            return "in flight"
        if label.seq < reference.expected(place) or not reference.asks_for(place):
            return "covered"
        return None

    def truth(self, promised: int) -> Truth:
        return Truth(
            promised=promised,
            broken=len(self._broken),
            damaged=len(self._damaged),
            agreed=dict(+self._agreed),
            false=dict(+self._false),
            missed=dict(+self._missed),
            unjudged=dict(+self._unjudged),
            unclaimed=dict(+self._unclaimed),
            defects=tuple(self._defects),
        )


def _name(place: Place) -> str:
    writer, slot = place
    return f"superblock copy {slot}" if writer == SUPERBLOCK else f"writer {writer} slot {slot}"


def _said(wrong: Wrong | None) -> str:
    if wrong is None:
        return "nothing"
    return f"{wrong.finding} (seq {wrong.expected} expected, {wrong.found} found)"


def _counts(counts: Mapping[FindingClass, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if count) or "nothing"
