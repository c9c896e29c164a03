"""What a verdict deserves, by the truth about a history: what the drive promised and broke, when
something really lost its power, and what anybody did to the target.

It shares no rule of evidence with the judge; `reference_judge` says what it takes from the formats. Each
reason of a loss must be true: findings, as many of each class as a second reading in the plainest way has
(`reference_judge`), where the drive broke a promise; a drive that is smaller than it was; or an earlier loss
that was true. Durable must rest on a cut that happened, of that class, within a second of a promise to that
run, and on a target that the second reading finds whole. There is a floor: a sound run, on which the power
was cut under load and nothing else happened, and of which the operator or the drive's counter says so, is
durable if the drive kept its promises (a guest's for no more than class os), and a loss if the second reading
finds one that it broke. In the second boot after a run nothing is due. All else may be inconclusive or
without a verdict, and one that the facts would have allowed to be more is counted as missed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from durability.formats.plan import Plan
from durability.formats.versions import Versions
from durability.units import parse_run
from durability_client.verify.scan.target_reader import block_bytes_of
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
# Reasons that say that findings, or the lack of them, are not to be had in full.
_EXPLAINED = frozenset(
    {"log-behind", "superseded", "not-armed", "no-server-log", "tainted", "nothing-checked"}
)
# Reasons why findings of this pass need not be losses of the drive.
_EXCUSES = frozenset(
    {"superseded", "tainted", "log-behind", "not-armed", "scan-unfinished"}
    | {"copied", "drive-changed", "drive-missing", "emptied-at-boot"}
)

# Reasons that say that the cut met no load.
_NO_LOAD = frozenset({"nothing-at-risk", "nothing-checked"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What one answer was worth. `word`: the verdict, or "none". `wrong`: why it is wrong, or "". `limit`:
    the documented assumption under which it is right, or "". `missed`: the verdict that the facts allowed."""

    word: str
    wrong: str = ""
    limit: str = ""
    missed: str = ""
    reasons: tuple[str, ...] = ()


class Grader:
    """Compares the answers of one history with the truth, in their order."""

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
    """What earlier calls of `verify` leave. `lossy`: runs of which one may have found a loss rightly;
    `unstable`: runs of which one said that it read a slot wrong and then right, and whether a bit was
    wrong."""

    lossy: set[int] = field(default_factory=set)
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
    elsewhere = run not in truth.plans  # it was made on another drive
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
    """What keeps a run from durable, whatever was cut, as a part of a sentence; "" for nothing."""
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
    """What the drive broke of a run: `places` with a promise to the run, how many `slots` of them had one of
    an operation, and whether anything of the file `system` that it rests on."""

    places: frozenset[Place]
    slots: int
    system: bool

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
    """Whether the drive lost a later run that the log does not know, or of which it knows nothing but that
    one: what is left of its superblocks and data looks like a loss of the earlier run, which it wrote
    over."""
    order = list(truth.plans)
    later = order[order.index(run) + 1 :] if run in order else []
    behind = answer.exported or answer.case is None
    lost = any(damage[one].any and (behind or one not in truth.known) for one in later)
    return "a drive that lost a later run, of which the log does not know" if lost else ""


def _newer(truth: KnownTruth, run: int) -> int:
    """The newest run on the drive that was armed, and that the server knows or that is there; 0 if that is
    not newer than `run`."""
    order = list(truth.plans)
    here = {one for one in truth.promised_ns() if one in truth.sound}
    newest = [0, *(one for one in order if (one in truth.armed and one in truth.known) or one in here)][-1]
    later = order[order.index(run) + 1 :] if run in order else []
    return newest if newest in later else 0


def _unknown(truth: KnownTruth, answer: VerifyAnswer, newer: int) -> bool:
    """Whether nothing shows that this is the target of the run `newer`, although an older one was judged:
    nothing shows which of two is newer if the server does not know one; with another name, whether it rolled
    back or was put there; without a serial, only a superblock shows which drive this is; with the serial of
    others, one that has grown may be another."""
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
    """Which reason of a loss is not true, as a sentence; "" for none."""
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
    """Why findings are not those that the drive's broken promises deserve; "" if they are."""
    assert answer.document is not None
    if not damage.any and run not in answer.smaller:
        return "loss, and no promise to the run was broken"
    claims = Claims.of_document(answer.document)
    if not damage.system and run not in answer.smaller:
        astray = claims.places.keys() - damage.places - _perhaps_removed(truth, answer, run, claims)
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


def _perhaps_removed(truth: KnownTruth, answer: VerifyAnswer, run: int, claims: Claims) -> set[Place]:
    """The names that `unlink` may have removed after the log ends. A removal leaves no proof: they count as
    findings if there is another one, of which the drive broke the promise."""
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
    """What is not true of the figures beside the verdict on the newest run of the drive; "" for nothing."""
    document = answer.document
    run = parse_run(document["run"]) if document is not None else 0
    if document is None or run != _newest(truth):
        return ""
    plan, one = truth.plans[run], damage[run]
    left_behind = truth.renamed(run) and "copied" in grade.reasons  # files that may lie elsewhere
    explained = left_behind or not _EXPLAINED.isdisjoint(grade.reasons)
    finished = "scan-unfinished" not in grade.reasons and not answer.recovered
    reference = _second_reading(truth, answer, run) if finished and not explained else None
    elsewhere = one.system or run in answer.smaller or truth.smaller(run)  # more is lost than its promises
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
    """The only right answer, "" where several are: the floor below which no tester may fall. A read that was
    wrong in passing leaves none, now and later."""
    if answer.flipped or earlier.unstable.get(run):
        return ""
    plain = answer.step["min_cuts"] == "1" and not answer.older and not answer.interrupted
    newest = run == _newest(truth) and run in truth.sound
    if not (plain and newest and run in damage and _shown(truth, answer)):
        return ""
    if run in answer.smaller or truth.smaller(run):  # one without a serial may be another drive with a copy
        return ""
    if _may_be_older(truth, answer, run):
        return ""
    if not damage[run].any:
        return "" if not truth.load_known and _says_only_no_load(answer) else "durable"
    return "loss" if not damage[run].system and _damaged(truth, answer, run) else ""


def _may_be_older(truth: KnownTruth, answer: VerifyAnswer, run: int) -> bool:
    """Whether a superblock of an older run is left where the log does not have that one as older: nothing
    shows then that it is not the later one."""
    document, case = answer.document, answer.case
    if document is None or "superseded" not in {reason["code"] for reason in document["reasons"]}:
        return False
    order = list(truth.plans)
    logged = set() if case is None else set(map(parse_run, case.predecessors))
    copied = any(step.kind == "replace" and step["holds"] == "copy" for step in truth.history.steps)
    return copied or not logged.issuperset(order[: order.index(run)])


def _untrue_beside(truth: KnownTruth, answer: VerifyAnswer, earlier: _Earlier) -> str:
    """What is not true of what a verdict says of its question, an earlier verdict, or its series; "" for
    nothing."""
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
    """How many cuts a series may count at most."""
    assumed = truth.assumed
    said_falsely = any(step.kind == "verify" and step["attest"] == "false" for step in truth.history.steps)
    looked_cut = len(assumed.restarted & assumed.stopped) + said_falsely * len(assumed.failed_with_power)
    return len(truth.cuts) + truth.like_cuts + looked_cut


def _unmet(truth: KnownTruth, answer: VerifyAnswer) -> str:
    """What was asked of a durable verdict that is not there, "" for nothing."""
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
    """The slot of which a read was wrong in passing, in this or an earlier verify, as a sentence; "" where
    there is none, or where it need not have been noticed."""
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
    """Whether nothing but a lack of load keeps the verdict from being more."""
    codes = set() if answer.document is None else {reason["code"] for reason in answer.document["reasons"]}
    return bool(codes) and codes <= _NO_LOAD


def _missed(truth: KnownTruth, answer: VerifyAnswer, run: int, damage: Mapping[int, _Damage]) -> str:
    """The verdict that the facts allowed, whoever was told of them: the operator's word, or a counter, or
    another boot of the machine, must show the cut."""
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
    """Whether the operator said that the power was cut, or the drive counts such cuts; of a guest, that it
    was forced off, where no more is required."""
    if truth.history.in_guest:
        told = answer.step["cut_class"] != "os" and answer.step["require"] == "os"
    else:
        told = answer.step["cut_class"] == "power"
    attested = answer.attested and told and not _perhaps_later(truth, answer)
    return _counts(truth.history) or attested


def _perhaps_later(truth: KnownTruth, answer: VerifyAnswer) -> bool:
    """Whether what the operator says may be about a later cut: the machine, or its drive, was cut again after
    an earlier verify that was told of none, or of less."""
    looks = () if answer.document is None else _looks(truth, answer, parse_run(answer.document["run"]))
    enough = CLASSES[1:] if truth.history.in_guest else ("power",)
    told_less = [look for look in looks if look.attested not in enough]
    return any(cut.at_ns >= look.began_ns for look in told_less for cut in truth.cuts)


def _looks(truth: KnownTruth, answer: VerifyAnswer, run: int) -> Sequence[PlayedLook]:
    """What earlier calls of `verify` have told the log that the answer is from, of this run."""
    return (truth.looks if answer.looks is None else answer.looks).get(run, ())


def _counts(history: History) -> bool:
    """Whether a counter shows the cuts of a drive: what is emulated counts nothing, and what has no serial
    may be another drive's."""
    return history.counters and not history.in_guest and history.serials != "none"


def _strongest(truth: KnownTruth) -> str:
    """The strongest class of a cut that there can be: the power of a host is not cut here."""
    return "vm" if truth.history.in_guest else "power"


def _newest(truth: KnownTruth) -> int:
    """The newest run on the drive, 0 for none."""
    return next(reversed(list(truth.plans)), 0)


def _superseded(truth: KnownTruth, run: int) -> bool:
    """Whether a later run wrote over it."""
    order = list(truth.plans)
    return run in order and order.index(run) < len(order) - 1


def _damaged(truth: KnownTruth, answer: VerifyAnswer, run: int) -> str:
    """What a plain second reading finds wrong with the target of the run, "" for nothing. Of a drive that
    gives nothing back nothing is known."""
    reference = _second_reading(truth, answer, run)
    if reference is None or reference.read_nothing:
        return ""
    return ", ".join(f"{place} {wrong.finding}" for place, wrong in list(reference.wrong.items())[:3])


def _acked_and_gone(truth: KnownTruth, answer: VerifyAnswer, run: int) -> str:
    """What the drive itself says it lost of operations that the log has, by no rule of a judge: sectors that
    the host never wrote again, and, if they are damaged, that no writer seems to have been about to write. ""
    for nothing."""
    plan, case, promised = truth.plans.get(run), answer.case, truth.promised(run)
    if plan is None or case is None or promised is None or answer.interrupted or answer.recovered:
        return ""
    if plan.contract.needs_file:  # elsewhere a slot may be removed, or lie somewhere else
        return ""
    versions = Versions(plan)
    kept = [one for one in truth.broken_now() if one.promised and not one.overwritten]
    for kind, label in ((one.kind, Label.of(one.promised)) for one in kept):
        place = label.place(plan)
        if place is None or place[0] not in range(plan.writers) or label.seq > case.frontiers[place[0]]:
            continue
        # If the group under way is whole on the target, nothing shows that the next one was not begun.
        about_to_write = promised.written.get(place[0], 0) + 2 * plan.group
        if kind == "older" or versions.after(*place, label.seq) > about_to_write:
            return f"{place} seq {label.seq} {kind}"
    return ""


def _second_reading(truth: KnownTruth, answer: VerifyAnswer, run: int) -> ReferenceJudge | None:
    """The target of the run, judged again by the same log; None where that cannot be."""
    plan = truth.plans.get(run)
    if plan is None or answer.case is None:
        return None
    # What stands beside a target that was moved was perhaps never removed.
    earlier = () if truth.renamed(run) else tuple(map(parse_run, answer.case.predecessors))
    return _read_again(truth, plan, answer.case.frontiers, earlier=earlier)


def _read_again(
    truth: KnownTruth, plan: Plan, acked: Sequence[int], *, earlier: Collection[int] = ()
) -> ReferenceJudge | None:
    """The target as it can be read now, judged by what the writers of the plan acknowledged, and by the
    `earlier` runs on it; None where it cannot be read."""
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
    """Whether something of that class was cut while the run made the drive promise."""
    return any(_met(truth, cut, run) and cut.is_of(cut_class) for cut in truth.cuts)


def _met(truth: KnownTruth, cut: PlayedCut, run: int) -> bool:
    """Whether the cut came so soon after a promise to the run that a loss of it would be one at risk."""
    return cut.hit(run) and cut.at_ns - cut.promised_ns[run] <= AT_RISK_NS + truth.unheard_ns


def _limit(truth: KnownTruth, answer: VerifyAnswer, run: int, cut_class: str) -> str:
    """The documented assumption that makes a durable right that the truth does not."""
    assumed = truth.assumed
    counted = cut_class == "power" and _counts(truth.history) and run in assumed.counted
    cut = counted or any(one.hit(run) and one.is_of(cut_class) for one in truth.cuts)
    died = (one.at_ns for one in truth.cuts if one.what == "guest" and _met(truth, one, run))
    silent = min(died, default=math.inf)
    contradicted = _counts(truth.history) and cut_class == "power" and not counted
    # Nobody outside a guest is believed to have cut a drive's power where the whole guest went.
    whole = any(one.what == "machine" and _met(truth, one, run) for one in truth.cuts)
    refused = cut_class == "power" and truth.history.in_guest and whole
    told = _looks(truth, answer, run)
    looks = [look for look in told if look.certain]
    hit_ns = sorted(one.at_ns for one in truth.cuts if one.hit(run))
    of_first = [look for look in told if not hit_ns[1:] or look.began_ns < hit_ns[1]]  # of the first cut
    went_on = any(look.went_on for look in looks)  # so the end that the server did not see was no cut
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
                # A verify in between has seen that the drive had power.
                and not any(silent < look.began_ns and look.ended_ns <= one.at_ns for look in looks)
                for one in truth.cuts
            )
        ),
        "a counter that rose just before the end": counted and _qualifying(truth, run, "os"),
        "a false attestation": false and any(_met(truth, one, run) for one in truth.cuts),
    }
    return next((name for name, holds in limits.items() if holds), "")


def _ends_ns(met: Sequence[PlayedCut], run: int) -> Sequence[int]:
    """The moments that may be that of the cut, of a run to which the drive promised nothing after the first
    one: where its machine lost its power soon after the drive had, nobody outside sees more than the second.
    None where the server could not hear the client until then."""
    promised_ns = {cut.promised_ns[run] for cut in met}
    return [cut.at_ns for cut in met] if len(promised_ns) == 1 and met[0].heard else ()


def _assumed(truth: KnownTruth, run: int) -> bool:
    """Whether a documented assumption about how the run ended is not true of it."""
    assumed = truth.assumed
    return run in (
        assumed.ended_unheard | assumed.restarted | assumed.failed_with_power | assumed.frozen_shortly
    )


def _hid_its_wait(truth: KnownTruth, answer: VerifyAnswer, run: int) -> bool:
    """Whether a writer had used up its credit, and the drive lost the operations that show it."""
    plan, case = truth.plans.get(run), answer.case
    if plan is None or case is None:
        return False
    grants = case.credits[0] if case.credits else case.grants  # the least that a writer may have had
    labels = [Label.of(one.promised) for one in truth.broken() if one.promised]
    places = [(label.seq, label.place(plan)) for label in labels]
    return any(
        place is not None and place[0] in range(plan.writers) and seq >= plan.issue_limit(grants[place[0]])
        for seq, place in places
    )
