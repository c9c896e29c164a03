"""Grades verdicts by the truth about a history: the drive's promises, the cuts, and changes to the target.

No rule of evidence is shared with the judge; `reference_judge` names what it takes from the formats. A
second reading by `reference_judge` confirms findings and damage. The rules:

    loss      Each reason must be true. Findings: the second reading has as many of each class, and the drive
              broke promises at these places. A smaller drive: the drive is smaller than it was. An earlier
              loss: that loss was true.
    durable   A cut of that class happened within a second after a promise to that run, and the second reading
              finds the target whole.
    floor     A sound run was cut under load, and nothing else happened. If the operator or the drive's
              counter reports the cut, a verdict is due: durable if the drive kept its promises (for a guest,
              at most class os), loss if the second reading finds a broken one.

In the second boot after a run no verdict is due. In all other cases the answer may be inconclusive or
missing. If the facts allowed more, the verdict counts as missed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from durability.formats.plan import MAIN, Plan
from durability.formats.record import superblocks_within
from durability.formats.versions import Versions
from durability.limits import SECTOR_BYTES, SUPERBLOCK_BYTES
from durability.units import parse_run
from durability_client.verify.scan.target_reader import Reader, aligned_buffer, block_bytes_of
from durability_lab.drive.drive_log import Broken
from durability_lab.histories.cuts_and_answers import AT_RISK_NS, PlayedCut, PlayedLook, VerifyAnswer
from durability_lab.histories.figures import FigureTruth, untrue
from durability_lab.histories.known_truth import KnownTruth
from durability_lab.histories.series import SeriesRuns, untrue_series
from durability_lab.histories.steps import History
from durability_lab.histories.stored_verdicts import CLASSES
from durability_lab.truth.comparison import Claims
from durability_lab.truth.reference_judge import SUPERBLOCK, Label, Place, ReferenceJudge

_ANOTHER = "another drive that cannot be told from that of the run"
# Reasons for which findings, or their absence, are incomplete.
_EXPLAINED = frozenset(
    {"log-behind", "superseded", "not-armed", "no-server-log", "tainted", "nothing-checked"}
)
# Reasons for which findings of this pass need not be losses of the drive.
_EXCUSES = frozenset(
    {"superseded", "tainted", "log-behind", "not-armed", "scan-unfinished"}
    | {"copied", "drive-changed", "drive-missing", "emptied-at-boot"}
)

# Reasons that report a cut without load.
_NO_LOAD = frozenset({"nothing-at-risk", "nothing-checked"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """The grade of one answer."""

    word: str  # the verdict, or "none"
    wrong: str = ""  # why the answer is wrong, or ""
    limit: str = ""  # the documented assumption under which the answer is right, or ""
    missed: str = ""  # the verdict that the facts allowed, or ""
    reasons: tuple[str, ...] = ()  # codes of the verdict's reasons; without a verdict, the kind of error


class Grader:
    """Compares the answers of one history with the truth, in order of time."""

    def __init__(self, truth: KnownTruth) -> None:
        self._truth = truth
        self._earlier = _Earlier()

    def grade(self, answer: VerifyAnswer) -> Grade:
        """Compare the next answer with the truth as it is now."""
        truth = self._truth
        broken = truth.broken()
        system = truth.metadata_broken()
        damage = {run: _Damage.of(plan, broken, system=run in system) for run, plan in truth.plans.items()}
        found = _grade(truth, answer, damage, self._earlier)
        wrong = (
            found.wrong
            or _untrue_figures(truth, answer, found, damage)
            or _untrue_beside(truth, answer, self._earlier)
        )
        found = replace(found, wrong=wrong)
        lossy, unstable = self._earlier.lossy, self._earlier.unstable
        lossy |= {run for run, one in damage.items() if one.any or run in answer.smaller}
        if answer.document is not None:
            run = parse_run(answer.document["run"])
            lossy |= {run} if found.word == "loss" and found.limit else set()
            if "unstable" in found.reasons:
                unstable[run] = unstable.get(run, False) or bool(answer.flipped)
        return found


@dataclass(slots=True)
class _Earlier:
    """The results of earlier calls of `verify`."""

    lossy: set[int] = field(default_factory=set)  # runs for which a `verify` may have found a true loss
    # Runs for which a `verify` reported that it read a slot wrong and then right; whether a bit was wrong.
    unstable: dict[int, bool] = field(default_factory=dict)


def _grade(
    truth: KnownTruth, answer: VerifyAnswer, damage: Mapping[int, _Damage], earlier: _Earlier
) -> Grade:
    document = answer.document
    if document is None:
        newest = _newest(truth)
        due = _due(truth, answer, newest, damage, earlier)
        word = "none"
        reasons: tuple[str, ...] = (answer.why.partition(":")[0],)
        return Grade(
            word=word,
            reasons=reasons,
            wrong=f"no verdict, where {due} is due: {answer.why}" if due else "",
            missed="" if answer.interrupted else _missed(truth, answer, newest, damage),
        )
    run = parse_run(document["run"])
    word = document["verdict"]
    reasons = tuple(reason["code"] for reason in document["reasons"])
    wrong = ""
    elsewhere = run not in truth.plans  # the run was made on another drive
    mistaken = _ANOTHER if elsewhere and truth.mistakable else ""
    if word == "loss":
        wrong = "" if mistaken else _untrue(truth, answer, run, damage.get(run), earlier)
        limit = mistaken or (_of_a_later_run(truth, answer, run, damage) if wrong else "")
        return Grade(word=word, reasons=reasons, wrong="" if limit else wrong, limit=limit)
    newer = _newer(truth, run)
    if newer and not answer.older and not (word == "inconclusive" and _unknown(truth, answer, newer)):
        wrong = "an older run was judged, although the drive is known for a newer armed one"
    if word == "durable":
        limit = mistaken
        if elsewhere and not mistaken:
            wrong = "durable, on a drive that the run was never on"
        elif lacking := _lacking(truth, answer, run):
            wrong = f"durable, and {lacking}"
        elif not mistaken and not _qualifying(truth, run, document["cut"]["class"]):
            limit = _limit(truth, answer, run, document["cut"]["class"])
            wrong = wrong or ("" if limit else "durable, and no such cut met load")
        return Grade(word=word, reasons=reasons, wrong=wrong, limit=limit)
    if not wrong and (due := _due(truth, answer, run, damage, earlier)):
        wrong = f"inconclusive ({', '.join(reasons)}), where {due} is due"
    return Grade(word=word, reasons=reasons, wrong=wrong, missed=_missed(truth, answer, run, damage))


def _lacking(truth: KnownTruth, answer: VerifyAnswer, run: int) -> str:
    """Why a run cannot be durable after any cut, as a part of a sentence; "" if it can."""
    if damaged := _damaged(truth, answer, run):
        return f"the target is damaged: {damaged}"
    if gone := _acked_and_gone(truth, answer, run):
        return f"the drive lost what it had acknowledged: {gone}"
    if truth.smaller(run):
        return "the drive is smaller than it was"
    if truth.left_behind(run):
        return "the files of the run are elsewhere"
    return _unmet(truth, answer) or _read_wrong(truth, answer, run)


@dataclass(frozen=True, slots=True)
class _Damage:
    """The promises to one run that the drive broke."""

    places: frozenset[Place]  # places with a broken promise to the run
    slots: int  # number of slots among them whose promise was for an operation
    system: bool  # a promise to the file system was broken on which the run's files depend

    @property
    def any(self) -> bool:
        return bool(self.places) or self.system

    @classmethod
    def of(cls, plan: Plan, broken: Sequence[Broken], *, system: bool) -> _Damage:
        labels = [Label.of(one.promised) for one in broken if one.promised]
        named = ((label.place(plan), label.seq) for label in labels)
        places = {
            (place, seq > 0) for place, seq in named if place is not None and place[0] != plan.control_writer
        }
        return cls(
            places=frozenset(place for place, _ in places),
            slots=sum(operation and place[0] != SUPERBLOCK for place, operation in places),
            system=system,
        )


def _of_a_later_run(truth: KnownTruth, answer: VerifyAnswer, run: int, damage: Mapping[int, _Damage]) -> str:
    """The limit for a drive that lost data of a later run that the log does not know; "" if it did not.

    The later run wrote over the earlier one. The rest of its superblocks and data looks like a loss of the
    earlier run. The log may know no later run at all: an export, or a server without this run.
    """
    order = list(truth.plans)
    later = order[order.index(run) + 1 :] if run in order else []
    behind = answer.exported or answer.case is None
    lost = any(damage[one].any and (behind or one not in truth.known) for one in later)
    return "a drive that lost a later run, of which the log does not know" if lost else ""


def _newer(truth: KnownTruth, run: int) -> int:
    """The newest run on the drive if it is newer than `run`, otherwise 0. Only runs that were armed and that
    the server knows count, and sound runs with a promised operation."""
    order = list(truth.plans)
    here = {one for one in truth.promised_ns() if one in truth.sound}
    newest = [0, *(one for one in order if (one in truth.armed and one in truth.known) or one in here)][-1]
    later = order[order.index(run) + 1 :] if run in order else []
    return newest if newest in later else 0


def _unknown(truth: KnownTruth, answer: VerifyAnswer, newer: int) -> bool:
    """Whether `verify` cannot know that this target belongs to the run `newer`, so an older run was judged.

    If the server does not know one of the runs, their order is unknown. If the target or the drive has
    another name, it may have been rolled back or put there. Without a serial, only a superblock identifies
    the drive. If drives share one serial, a drive that has grown may be another one.
    """
    assert answer.document is not None
    older = parse_run(answer.document["run"])
    if answer.case is None or truth.renamed(newer) or truth.renamed(older):
        return True
    if truth.history.serials == "same" and truth.grown(older):
        return True
    if truth.history.serials != "none":
        return False
    plan = truth.plans[newer]
    reference = _read_again(truth, plan, [0] * plan.writers)
    return reference is None or all((SUPERBLOCK, copy) in reference.wrong for copy in range(2))


def _untrue(
    truth: KnownTruth, answer: VerifyAnswer, run: int, damage: _Damage | None, earlier: _Earlier
) -> str:
    """The false reason of a loss, as a sentence; "" if all are true."""
    assert answer.document is not None
    codes = {reason["code"] for reason in answer.document["reasons"]}
    if "earlier-loss" in codes and run not in earlier.lossy:
        return "earlier-loss, and no earlier verify could have found one"
    if "device-smaller" in codes and not (run in answer.smaller or truth.smaller(run)):
        return "device-smaller, and the drive has its size"
    if "findings" in codes and damage is not None:
        return _unfounded(truth, answer, run, damage)
    found = {name for name, count in answer.document["findings"].items() if count} - {"unreadable"}
    if "findings" not in codes and found and codes.isdisjoint(_EXCUSES):
        return f"findings that do not count ({', '.join(sorted(found))}), and no reason says why"
    return "" if codes & {"earlier-loss", "device-smaller"} else "loss, of a run that was never on the drive"


def _unfounded(truth: KnownTruth, answer: VerifyAnswer, run: int, damage: _Damage) -> str:
    """Why the findings do not follow from the drive's broken promises; "" if they do."""
    assert answer.document is not None
    if not damage.any and run not in answer.smaller:
        return "loss, and no promise to the run was broken"
    claims = Claims.of_document(answer.document)
    if not damage.system and run not in answer.smaller:
        astray = claims.places.keys() - damage.places - _perhaps_removed(truth, answer, run, claims)
        astray -= _overwritten_superblocks(truth, run)
        if astray:
            return f"findings where no promise was broken: {sorted(astray)[:3]}"
    reference = _second_reading(truth, answer, run)
    if reference is not None and reference.read_nothing:
        return "findings on a drive that gives nothing back"
    if reference is None or not claims.finished or answer.recovered:
        return ""
    there = Counter(one.finding for one in reference.wrong.values())
    if there != +claims.counts:
        return f"findings {dict(+claims.counts)}, and a second reading has {dict(there)}"
    return ""


def _overwritten_superblocks(truth: KnownTruth, run: int) -> set[Place]:
    """The superblocks of a run in which a later run, cut in its first sync, has left sectors. Beside a
    finding of which the drive broke the promise, they count as findings if the log does not know that run."""
    order = list(truth.plans)
    if not truth.reachable or run not in order:
        return set()
    until_now = set(order[: order.index(run) + 1])
    found, target = set(), truth.target()
    for copy, offset in enumerate(truth.plans[run].superblock_offsets):
        with suppress(OSError), Reader(target, MAIN, block_bytes=SECTOR_BYTES, tick=lambda: None) as reader:
            content = reader.read(aligned_buffer(SUPERBLOCK_BYTES), offset, SUPERBLOCK_BYTES)
            if {one for one, _ in superblocks_within(content.data, offset)} - until_now:
                found.add((SUPERBLOCK, copy))
    return found


def _perhaps_removed(truth: KnownTruth, answer: VerifyAnswer, run: int, claims: Claims) -> set[Place]:
    """The absent names that `unlink` may have removed after the end of an older log.

    A removal leaves no proof. If there is another finding, with a broken promise, these names count as
    findings too.
    """
    steps = truth.history.steps
    older = answer.exported or any(
        one.kind == "server" and one["how"] in ("newest", "oldest") for one in steps
    )
    others = claims.counts.total() - claims.counts["absent"]
    if not (older and others and truth.plans[run].contract.absence_may_stall):
        return set()
    return {place for place, wrong in claims.places.items() if wrong.finding == "absent"}


def _untrue_figures(
    truth: KnownTruth, answer: VerifyAnswer, grade: Grade, damage: Mapping[int, _Damage]
) -> str:
    """The false figures of a verdict on the drive's newest run, as sentences; "" if all are true."""
    document = answer.document
    run = parse_run(document["run"]) if document is not None else 0
    if document is None or run != _newest(truth):
        return ""
    plan, one = truth.plans[run], damage[run]
    left_behind = truth.renamed(run) and "copied" in grade.reasons  # files that may lie elsewhere
    explained = left_behind or not _EXPLAINED.isdisjoint(grade.reasons)
    finished = "scan-unfinished" not in grade.reasons and not answer.recovered
    reference = _second_reading(truth, answer, run) if finished and not explained else None
    # With these, more than the promised sectors of the run may be lost.
    elsewhere = one.system or run in answer.smaller or truth.smaller(run)
    durable = grade.word == "durable" and not _limit(truth, answer, run, document["cut"]["class"])
    removed = _perhaps_removed(truth, answer, run, Claims.of_document(document))
    met = [cut for cut in truth.cuts if run in cut.promised_ns]
    copied = run in truth.assumed.copied_alive
    figures = FigureTruth(
        plan=plan,
        promised=truth.promised(run),
        reference=reference if reference is None or not reference.read_nothing else None,
        broken=None if explained or elsewhere or answer.recovered or removed else one.slots,
        cuts=_cuts(truth),
        cuts_ns=[cut.at_ns for cut in met if cut.is_of("os")] if durable and not copied else (),
        sound_ns=met[0].at_ns if met and run in truth.sound else None,
        ended_ns=() if copied or _assumed(truth, run) else _ends_ns(met, run),
    )
    return "; ".join(untrue(document, figures))


def _due(
    truth: KnownTruth, answer: VerifyAnswer, run: int, damage: Mapping[int, _Damage], earlier: _Earlier
) -> str:
    """The verdict that is due, "" if several answers are right. A transient wrong read makes no verdict due,
    now and later."""
    if answer.flipped or earlier.unstable.get(run):
        return ""
    plain = answer.step["min_cuts"] == "1" and not answer.older and not answer.interrupted
    newest = run == _newest(truth) and run in truth.sound
    if not (plain and newest and run in damage and _shown(truth, answer)):
        return ""
    if run in answer.smaller or truth.smaller(run):  # without a serial, it may be another drive with a copy
        return ""
    if _may_be_older(truth, answer, run):
        return ""
    if not damage[run].any:
        return "" if not truth.load_known and _says_only_no_load(answer) else "durable"
    return "loss" if not damage[run].system and _damaged(truth, answer, run) else ""


def _may_be_older(truth: KnownTruth, answer: VerifyAnswer, run: int) -> bool:
    """Whether the judge may take another run for the newer one.

    A superblock of an older run is left, and the log does not have that run as a predecessor. No evidence
    shows then which of the two runs is newer.
    """
    document, case = answer.document, answer.case
    if document is None or "superseded" not in {reason["code"] for reason in document["reasons"]}:
        return False
    order = list(truth.plans)
    logged = set() if case is None else set(map(parse_run, case.predecessors))
    copied = any(step.kind == "replace" and step["holds"] == "copy" for step in truth.history.steps)
    return copied or not logged.issuperset(order[: order.index(run)])


def _untrue_beside(truth: KnownTruth, answer: VerifyAnswer, earlier: _Earlier) -> str:
    """The false statements of a verdict about its requirements, an earlier verdict, or its series; "" if all
    are true."""
    document, case = answer.document, answer.case
    if document is None:
        return ""
    asked = {"cut": answer.step["require"], "min_cuts": int(answer.step["min_cuts"])}
    if document["requirements"] != asked:
        return f"a verdict for {document['requirements']}, where {asked} was asked"
    run = parse_run(document["run"])
    codes = {reason["code"] for reason in document["reasons"]}
    if "earlier-unstable" in codes and run not in {*earlier.unstable, *truth.unanswered}:
        return "earlier-unstable, and no earlier verify read a slot wrong, and then right"
    if case is None or answer.exported or answer.interrupted or run not in truth.plans:
        return ""
    alone = SeriesRuns(ended_in={run: None}, cut=frozenset(), counts=True)
    runs = truth.series(run) if case.armed is not None else alone
    if runs is None or not truth.unanswered.isdisjoint(runs.ended_in):
        return ""
    return "; ".join(untrue_series(document, run, runs, truth.stored))


def _cuts(truth: KnownTruth) -> int:
    """The most cuts that a series may count."""
    assumed = truth.assumed
    said_falsely = any(step.kind == "verify" and step["attest"] == "false" for step in truth.history.steps)
    looked_cut = len(assumed.restarted & assumed.stopped) + said_falsely * len(assumed.failed_with_power)
    return len(truth.cuts) + truth.like_cuts + looked_cut


def _unmet(truth: KnownTruth, answer: VerifyAnswer) -> str:
    """The requirement that a durable verdict does not meet, as a part of a sentence; "" if it meets all."""
    assert answer.document is not None
    shown, asked = answer.document["cut"]["class"], answer.step["require"]
    if CLASSES.index(shown) < CLASSES.index(asked):
        return f"a cut of class {shown} was shown, where {asked} was asked"
    min_cuts, strength = int(answer.step["min_cuts"]), answer.document["strength"]
    if min(strength["cuts"], _cuts(truth)) < min_cuts:
        return f"of {min_cuts} cuts that were asked, {strength['cuts']} count, and {_cuts(truth)} were made"
    if min_cuts > 1 and (strength["losses"] or strength["bound"] is None):
        return f"{min_cuts} cuts without a loss were asked, and the series has {strength}"
    return ""


def _read_wrong(truth: KnownTruth, answer: VerifyAnswer, run: int) -> str:
    """A transient wrong read of a slot, in this or an earlier verify, as a part of a sentence; "" if there
    was none, or if the verify need not have noticed it."""
    if not answer.exported and any("unstable" in one.codes for one in truth.stored.get(run, ())):
        return "an earlier verify read a slot wrong, and then right"
    plan, case = truth.plans.get(run), answer.case
    if not answer.flipped or plan is None or case is None or plan.contract.needs_file:
        return ""
    label = Label.of(answer.flipped)
    place = label.place(plan)
    if place is None or place[0] not in range(plan.writers) or label.seq > case.frontiers[place[0]]:
        return ""
    in_flight = Versions(plan).after(*place, label.seq) <= plan.issue_limit(case.frontiers[place[0]])
    return "" if in_flight else f"a read of {place} was wrong in passing"


def _says_only_no_load(answer: VerifyAnswer) -> bool:
    """Whether lack of load is the verdict's only reason."""
    codes = set() if answer.document is None else {reason["code"] for reason in answer.document["reasons"]}
    return bool(codes) and codes <= _NO_LOAD


def _missed(truth: KnownTruth, answer: VerifyAnswer, run: int, damage: Mapping[int, _Damage]) -> str:
    """The verdict that the facts allowed, whether or not the judge had them; "" for none.

    For durable, the operator, a counter, or a restart of the machine must show the cut.
    """
    if run not in truth.plans or _superseded(truth, run):
        return ""
    if run in answer.smaller or truth.smaller(run):
        return "loss"
    if run in damage and damage[run].any:
        return "loss" if _damaged(truth, answer, run) else ""
    if _cuts(truth) < int(answer.step["min_cuts"]):
        return ""
    if _shown(truth, answer) and _qualifying(truth, run, _strongest(truth)):
        return "durable"
    restarted = any(cut.what != "drive" for cut in truth.cuts)
    return "durable" if answer.step["require"] == "os" and restarted and _qualifying(truth, run, "os") else ""


def _shown(truth: KnownTruth, answer: VerifyAnswer) -> bool:
    """Whether the operator attested the cut, or the drive counts cuts. For a guest, the operator must attest
    that it was forced off, and class os must be enough."""
    if truth.history.in_guest:
        told = answer.step["cut_class"] != "os" and answer.step["require"] == "os"
    else:
        told = answer.step["cut_class"] == "power"
    attested = answer.attested and told and not _perhaps_later(truth, answer)
    return _counts(truth.history) or attested


def _perhaps_later(truth: KnownTruth, answer: VerifyAnswer) -> bool:
    """Whether the attestation may mean a later cut.

    That is so if the machine or its drive was cut again after an earlier verify without a sufficient
    attestation.
    """
    looks = () if answer.document is None else _looks(truth, answer, parse_run(answer.document["run"]))
    enough = CLASSES[1:] if truth.history.in_guest else ("power",)
    told_less = [look for look in looks if look.attested not in enough]
    return any(cut.at_ns >= look.began_ns for look in told_less for cut in truth.cuts)


def _looks(truth: KnownTruth, answer: VerifyAnswer, run: int) -> Sequence[PlayedLook]:
    """The reports of earlier calls of `verify` on this run, in the log that the answer is from."""
    return (truth.looks if answer.looks is None else answer.looks).get(run, ())


def _counts(history: History) -> bool:
    """Whether a counter shows the cuts of the drive. An emulated drive counts nothing. Without a serial, the
    counter may be that of another drive."""
    return history.counters and not history.in_guest and history.serials != "none"


def _strongest(truth: KnownTruth) -> str:
    """The strongest possible class of a cut; the power of a host is never cut in a history."""
    return "vm" if truth.history.in_guest else "power"


def _newest(truth: KnownTruth) -> int:
    """The newest run on the drive, 0 for none."""
    return next(reversed(list(truth.plans)), 0)


def _superseded(truth: KnownTruth, run: int) -> bool:
    """Whether a later run wrote over this one."""
    order = list(truth.plans)
    return run in order and order.index(run) < len(order) - 1


def _damaged(truth: KnownTruth, answer: VerifyAnswer, run: int) -> str:
    """The first places that the second reading finds wrong in the run's target; "" for none, and if nothing
    can be read."""
    reference = _second_reading(truth, answer, run)
    if reference is None or reference.read_nothing:
        return ""
    return ", ".join(f"{place} {wrong.finding}" for place, wrong in list(reference.wrong.items())[:3])


def _acked_and_gone(truth: KnownTruth, answer: VerifyAnswer, run: int) -> str:
    """An acknowledged operation that the drive lost by its own log, without any rule of a judge; "" for none.

    Only sectors count that the host never wrote again. Damaged sectors count only if no writer can have been
    about to write them.
    """
    plan, case, promised = truth.plans.get(run), answer.case, truth.promised(run)
    if plan is None or case is None or promised is None or answer.interrupted or answer.recovered:
        return ""
    if plan.contract.needs_file:  # with other workloads, a slot may be removed or lie elsewhere
        return ""
    versions = Versions(plan)
    kept = [one for one in truth.broken_now() if one.promised and not one.overwritten]
    for kind, label in ((one.kind, Label.of(one.promised)) for one in kept):
        place = label.place(plan)
        if place is None or place[0] not in range(plan.writers) or label.seq > case.frontiers[place[0]]:
            continue
        # If the group under way is complete on the target, the next group may have been begun.
        about_to_write = promised.written.get(place[0], 0) + 2 * plan.group
        if kind == "older" or versions.after(*place, label.seq) > about_to_write:
            return f"{place} seq {label.seq} {kind}"
    return ""


def _second_reading(truth: KnownTruth, answer: VerifyAnswer, run: int) -> ReferenceJudge | None:
    """The target of the run, judged again by the same log; None if that is impossible."""
    plan = truth.plans.get(run)
    if plan is None or answer.case is None:
        return None
    # Files beside a target that was moved were perhaps never removed.
    earlier = () if truth.renamed(run) else tuple(map(parse_run, answer.case.predecessors))
    return _read_again(truth, plan, answer.case.frontiers, earlier=earlier)


def _read_again(
    truth: KnownTruth, plan: Plan, acked: Sequence[int], *, earlier: Collection[int] = ()
) -> ReferenceJudge | None:
    """The target as it can be read now, judged by the writers' acknowledged operations and the `earlier` runs
    on it; None if it cannot be read."""
    if not truth.reachable:
        return None
    try:
        target = truth.target()
        return ReferenceJudge(
            plan, acked, target, block_bytes=block_bytes_of(target.facts()), earlier=earlier
        )
    except OSError:
        return None


def _qualifying(truth: KnownTruth, run: int, cut_class: str) -> bool:
    """Whether a cut of that class happened shortly after a promise to the run."""
    return any(_met(truth, cut, run) and cut.is_of(cut_class) for cut in truth.cuts)


def _met(truth: KnownTruth, cut: PlayedCut, run: int) -> bool:
    """Whether the cut came so soon after a promise to the run that the promised record was at risk."""
    return cut.hit(run) and cut.at_ns - cut.promised_ns[run] <= AT_RISK_NS + truth.unheard_ns


def _limit(truth: KnownTruth, answer: VerifyAnswer, run: int, cut_class: str) -> str:
    """The documented assumption that makes a durable verdict right although the truth does not; "" for
    none."""
    assumed = truth.assumed
    counted = cut_class == "power" and _counts(truth.history) and run in assumed.counted
    cut = counted or any(one.hit(run) and one.is_of(cut_class) for one in truth.cuts)
    died = (one.at_ns for one in truth.cuts if one.what == "guest" and _met(truth, one, run))
    silent = min(died, default=math.inf)
    contradicted = _counts(truth.history) and cut_class == "power" and not counted
    # An attested power cut of a drive is not believed if the whole guest lost its power.
    whole = any(one.what == "machine" and _met(truth, one, run) for one in truth.cuts)
    refused = cut_class == "power" and truth.history.in_guest and whole
    told = _looks(truth, answer, run)
    looks = [look for look in told if look.certain]
    hit_ns = sorted(one.at_ns for one in truth.cuts if one.hit(run))
    of_first = [look for look in told if not hit_ns[1:] or look.began_ns < hit_ns[1]]  # before a second cut
    went_on = any(look.went_on for look in looks)  # then the end that the server did not see was not a cut
    said_falsely = answer.step["attest"] == "false" or any(look.falsely for look in of_first)
    false = said_falsely and not contradicted and not refused
    # A false attestation gives any cut that class.
    cut = cut or (false and any(one.hit(run) for one in truth.cuts))
    limits = {
        "stopped writing in a dead network": cut and run in assumed.ended_unheard and not went_on,
        "a machine restarted in order in a dead network": (
            run in assumed.restarted & assumed.stopped and not went_on and (cut_class == "os" or false)
        ),
        "a drive without a link looks dead": (cut or false) and run in assumed.failed_with_power,
        "a client frozen shortly before the cut, or the server's end": (
            cut and run in assumed.frozen_shortly and not went_on
        ),
        "the drive lost what shows that a writer had used up its credit": (
            cut and not went_on and _hid_its_wait(truth, answer, run)
        ),
        "the system died before the power went": (
            any(
                one.what != "guest"
                and one.is_of(cut_class)
                and one.at_ns > silent
                # A verify in between has shown that the drive had power.
                and not any(silent < look.began_ns and look.ended_ns <= one.at_ns for look in looks)
                for one in truth.cuts
            )
        ),
        "a counter that rose just before the end": counted and _qualifying(truth, run, "os"),
        "a false attestation": false and any(_met(truth, one, run) for one in truth.cuts),
    }
    return next((name for name, holds in limits.items() if holds), "")


def _ends_ns(met: Sequence[PlayedCut], run: int) -> Sequence[int]:
    """The possible times of the cut that ended the run.

    If the drive promised the run nothing after the first cut, each later cut is possible too. When a machine
    loses power soon after its drive, only the second cut is visible from outside. Otherwise, or if the server
    could not hear the client until the first cut, there are none.
    """
    promised_ns = {cut.promised_ns[run] for cut in met}
    return [cut.at_ns for cut in met] if len(promised_ns) == 1 and met[0].heard else ()


def _assumed(truth: KnownTruth, run: int) -> bool:
    """Whether a documented assumption about the end of the run does not hold for it."""
    assumed = truth.assumed
    return run in (
        assumed.ended_unheard | assumed.restarted | assumed.failed_with_power | assumed.frozen_shortly
    )


def _hid_its_wait(truth: KnownTruth, answer: VerifyAnswer, run: int) -> bool:
    """Whether a writer had used up its credit, and the drive lost the operations that show this."""
    plan, case = truth.plans.get(run), answer.case
    if plan is None or case is None:
        return False
    grants = case.credits[0] if case.credits else case.grants  # the smallest possible grant of each writer
    labels = [Label.of(one.promised) for one in truth.broken() if one.promised]
    places = [(label.seq, label.place(plan)) for label in labels]
    return any(
        place is not None and place[0] in range(plan.writers) and seq >= plan.issue_limit(grants[place[0]])
        for seq, place in places
    )
