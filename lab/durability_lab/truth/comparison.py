"""The truth about one cut: what the drive promised and broke, compared with what the tester says, by place.

Three parties that know nothing about each other: the drive's own log (`drive_log`), which has every promise
and every sector that breaks one; a `ReferenceJudge` on the bytes of the target; and the tester's claims. They
must agree like this:

    each claim equals what the reference judge finds: class, newest operation acknowledged, oldest one found
    each claim lies where the drive broke a promise, or it is a false alarm
    each broken promise is claimed, or there is a reason for which no tester could claim it

The reasons: `unheard`, the promise was for a newer operation than log and target prove to have been
acknowledged; `in flight`, a newer operation on the slot may have been under way, which excuses damage;
`covered`, a newer version of the slot has been acknowledged and lies elsewhere, or its file was removed;
`control`, the control arm's write, which is never acknowledged; `no record`, a promise to another writer,
such as a file system; `unread`, the scan did not reach its end, which happens on a drive whose reads hang.
Whatever does not agree is a defect of the tester or of its lab. A file system may lose a record through its
own metadata: so there a claim is true as well where the drive broke a promise for something else than a
record.

Refuses to count as agreed what was not compared: a claim whose place is not named, or on a target that the
reference judge cannot read, is `unjudged`, though what can be said against it, or against silence, is a
defect.
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
    """What the tester found. `counts`: places by class; `places`: what it says of each, or of some of them.
    `finished`: it read everything. `proven`: its A', None where it does not say."""

    counts: Counter[FindingClass]
    places: Mapping[Place, Wrong]
    finished: bool
    proven: tuple[int, ...] | None = None

    @classmethod
    def of_scan(cls, findings: Iterable[Judgement], report: ScanReport) -> Claims:
        """From what a scan's listener heard, and its report."""
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
        """From the document of `verify --json`."""
        places = {
            (one["writer"], one["slot"]): Wrong(
                finding=one["class"], expected=one["expected_seq"], found=one["found_seq"]
            )
            for one in document["examples"]
        }
        unfinished = any(reason["code"] == "scan-unfinished" for reason in document["reasons"])
        return cls(counts=Counter(document["findings"]), places=places, finished=not unfinished)

    def differences(self, told: Claims) -> tuple[str, ...]:
        """Where `told`, from the document of a `verify`, is not what this scan of the same target found."""
        if self.counts != told.counts:
            return (f"verify says {_counts(told.counts)}, a scan of all {_counts(self.counts)}",)
        return tuple(
            f"{_name(place)}: verify says {_said(wrong)}, a scan of all {_said(self.places.get(place))}"
            for place, wrong in told.places.items()
            if self.places.get(place) != wrong
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAlone:
    """Replaces the reference judge if only the tester can read the target: what the server's log excuses.

    `acked`: the frontiers that the server received. What the target itself would prove is unknown, so a
    promise that is newer than they are is `unheard`.
    """

    plan: Plan
    acked: Sequence[int]

    def excuse(self, place: Place, label: Label, kind: Kind) -> Reason | None:
        """Why the broken promise for a writer's record, or a superblock, need not show; None: it must."""
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
    """What became of a cut. A place is a slot, or a copy of the superblock.

    `promised`, `broken`: sectors of the drive. `damaged`: places with a broken promise for a record. By
    class, `agreed`: places that are claimed, and truly so; `false`: claimed, and not so; `missed`: not
    claimed, and for no reason; `unjudged`: claims that were compared at most by their number. `unclaimed`: by
    reason, places with broken promises that no tester could claim (of `no record`, sectors). `defects`: all
    that does not agree, in sentences.
    """

    promised: int
    broken: int
    damaged: int
    agreed: Mapping[FindingClass, int]
    false: Mapping[FindingClass, int]
    missed: Mapping[FindingClass, int]
    unjudged: Mapping[FindingClass, int]
    unclaimed: Mapping[Reason, int]
    defects: tuple[str, ...]


def compare(
    claims: Claims,
    reference: ReferenceJudge | LogAlone,
    plan: Plan,
    broken: Sequence[Broken],
    *,
    promised: int,
) -> Truth:
    """Compare `claims` with the reference judge and the broken promises; `promised`: sectors that had one."""
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
        """Where a promise for a record is broken, and which."""
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
        """No claim can be compared: only whether there can be one at all, and whether there must be."""
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
        """What the other claims must be of, if there are as many of each class as the reference judge has: a
        scan names the edges of what lies beyond the end of a file, and counts the rest."""
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
