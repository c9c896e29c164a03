"""The answer of a comparison: which of two drives to take, how much faster it is, and whether that is proven.

Speed alone never decides: a drive that ignores flushes looks fast. The rules, in this order:

- Do not take a drive that lost data, or a set-up whose commits are suspicious.
- Do not choose yet if a measurement was broken off.
- Do not choose yet if a round, or the end of a sustained load, had no commit.
- Do not take a drive yet that no cuts have proven.
- Take the faster of two proven drives (see `speeds`).

Unless both drives are proven, a ratio comes with its caveat. With too few rounds the answer never says that
there is no difference. Two results of one drive get no advice on a choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType

from durability.bench.decision.proof import CUTS_NEEDED, Proof
from durability.bench.decision.speeds import Speeds, silence_text, speed_text, without_a_commit
from durability.bench.plausibility import Code
from durability.bench.result_warnings import BrokenOff
from durability.units import counted

# For each suspicious code: what the commits did, as the end of a sentence.
SUSPICIONS: Mapping[Code, str] = MappingProxyType(
    {
        "no-flush-sent": "acknowledged commits without a flush to any drive",
        "faster-than-media": "committed faster than its platter turns",
    }
)

_FIND_OUT = "find out why they have none"
_ONCE_MORE = "Measure once more to be sure"
_AGAIN = "Measure both again without --quick"
_HOLD_BOTH = "Measure both with the same --accept"
_CHOOSE_CLIENT = "with `compare --client`"
_SEE_ALL = "on the server's machine or as a viewer"
_NOT_IN_ALL = "no cell that commits was measured in all of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One result of a comparison."""

    label: str
    proof: Proof | None  # the cuts of its drive, None without cuts
    suspicion: str = ""  # why its commits are suspicious, as the end of a sentence after "it"; "" if not
    broken_off: BrokenOff | None = None  # what ended its measurement early
    drive: int | None = None  # number of its drive, the same for all results of that drive, None if unknown
    serials: tuple[str, ...] = ()  # serials of the drives below its target

    @property
    def is_proven(self) -> bool:
        """Whether its cuts prove the drive, and its commits are not suspicious."""
        return self.proof is not None and self.proof.word == "proven" and not self.suspicion

    @property
    def is_out(self) -> bool:
        """Whether a cut showed a loss, or the commits are suspicious."""
        return bool(self.fault)

    @property
    def fault(self) -> str:
        """Why it is out, as the end of a sentence after "it". "" if it is not out."""
        lost = self.proof is not None and self.proof.word == "lost data"
        return self.proof.text if self.proof is not None and lost else self.suspicion

    @property
    def state(self) -> str:
        """What its cuts show, as the end of a sentence that begins with the label."""
        if self.proof is None:
            return "has no known power cut"
        if self.is_proven:
            return f"is {self.proof.text}"
        if not self.is_short_of_cuts:
            return f"has {self.proof.text}"
        if self.proof.cut_class == "power":
            return f"has only {self.proof.cuts} of the {CUTS_NEEDED} cuts needed"
        return f"has only {counted(self.proof.cuts, 'cut')} of class {self.proof.cut_class} without a loss"

    def is_of_the_drive_of(self, other: Candidate) -> bool:
        """Whether both are results of one drive."""
        return self.drive is not None and self.drive == other.drive

    @property
    def advice(self) -> str:
        """What to do before taking it."""
        # Unanswered cuts come first: the next cut would destroy their evidence.
        if self.proof is not None and self.proof.waits_for_answers:
            return f"verify its cuts without an outcome, or {_FIND_OUT}, before you take it"
        if self.proof is not None and self.proof.but:
            return "cut it as you measured it before you take it"
        if self.proof is not None and self.proof.disputed:
            return f"choose whose runs of it count {_CHOOSE_CLIENT} before you take it"
        if self.proof is not None and self.proof.unsearched:
            return f"compare {_SEE_ALL} before you take it"
        return f"cut its power {_times(self)} before you take it"

    @property
    def is_short_of_cuts(self) -> bool:
        """Whether only more power cuts are missing to prove it."""
        known = self.proof
        if known is None:
            return True
        lacks = known.but or known.waits_for_answers or known.disputed or known.unsearched
        return not (self.is_proven or lacks)

    @property
    def is_short_of_power_cuts(self) -> bool:
        """Whether only more power cuts are missing, and its cuts so far count towards them."""
        return self.is_short_of_cuts and (self.proof is None or self.proof.cut_class == "power")


def answer(first: Candidate, other: Candidate, speeds: Speeds) -> str:
    """The answer on two candidates, in sentences. `speeds`: `other` compared with `first`."""
    if first.is_of_the_drive_of(other):
        return _of_one_drive(first, other, speeds)
    if first.is_out or other.is_out:
        return _with_a_loser(first, other, speeds)
    if faulty := _on_broken_off([first, other]) or _on_silence(_silent(first, other, speeds)):
        return _sentences(f"Do not choose yet: {faulty[0]}", *faulty[1:])
    if first.is_proven and other.is_proven:
        return _with_both(first, other, speeds)
    if first.is_proven or other.is_proven:
        return _with_one(first, other, speeds)
    return _with_none(first, other, speeds)


def _with_none(first: Candidate, other: Candidate, speeds: Speeds) -> str:
    """The answer if neither is proven: what is missing."""
    but = "but" if speeds.decides else "and"
    head = f"Do not choose yet: {_speed(first, other, speeds)}, {but} neither is proven"
    advice = []
    waiting = [one.label for one in (first, other) if one.proof is not None and one.proof.waits_for_answers]
    if waiting:
        advice.append(f"Verify the cuts of {_listed(waiting, 'and')} without an outcome, or {_FIND_OUT}")
    unlike = [one.label for one in (first, other) if one.proof is not None and one.proof.but]
    if unlike:
        advice.append(f"Cut {_listed(unlike, 'and')} as you measured it")
    disputed = [one.label for one in (first, other) if one.proof is not None and one.proof.disputed]
    if disputed:
        advice.append(f"Choose whose runs of {_listed(disputed, 'and')} count {_CHOOSE_CLIENT}")
    if any(one.proof is not None and one.proof.unsearched for one in (first, other)):
        advice.append(f"Compare {_SEE_ALL}")
    advice += _cuts_missing(first, other)
    # A candidate that only lacks power cuts is left out: the number of missing cuts says the same.
    told = [f"{one.label} {one.state}" for one in (first, other) if not one.is_short_of_power_cuts]
    return _sentences(f"{head}: {', '.join(told)}" if told else head, *advice, *_again(speeds))


def _cuts_missing(first: Candidate, other: Candidate) -> list[str]:
    """How often the power must still be cut, as a sentence. [] if more cuts would prove neither."""
    short = [one for one in (first, other) if one.is_short_of_cuts]
    if len(short) == 2 and _times(first) == _times(other):
        return [f"Cut the power of both {_times(first)}"]
    each = [f"of {one.label} {_times(one)}" for one in short]
    return [f"Cut the power {_listed(each, 'and')}"] if each else []


def choice(candidates: Sequence[Candidate], between: Callable[[int, int], Speeds]) -> str:
    """The closing sentences on three or more candidates, after the answers on each pair. "" for two
    candidates. `between`: takes the numbers of two candidates and compares the second with the first."""
    if len(candidates) < 3:
        return ""
    if all(one.is_of_the_drive_of(candidates[0]) for one in candidates):
        return _sentences(f"All {len(candidates)} results are of {_one_drive(candidates[0])}")
    if broken := _on_broken_off([one for one in candidates if not one.is_out]):
        said, *advice = f"do not choose yet: {broken[0]}", *broken[1:]
    elif silent := _on_silence(_silent_of_all(candidates, between)):
        said, *advice = f"do not choose yet: {silent[0]}", *silent[1:]
    else:
        said, *advice = _chosen(candidates, between)
    return _sentences(f"Of all {len(candidates)}, {said}", *_of_shared_drives(candidates), *advice)


def _chosen(candidates: Sequence[Candidate], between: Callable[[int, int], Speeds]) -> list[str]:
    """Which of all candidates to take, as the end of a sentence, followed by sentences of advice."""
    left = [number for number, one in enumerate(candidates) if not one.is_out]
    proven = [number for number in left if candidates[number].is_proven]
    if not proven:
        return ["none is proven: do not choose yet" if left else "take none"]

    def labels(numbers: Sequence[int], last: str = "or") -> str:
        return _listed([candidates[number].label for number in numbers], last)

    def is_faster(one: int, other: int) -> bool:
        """Whether `one` is so much faster than `other` that its speed decides."""
        return between(other, one).is_for_second

    def is_doubtful(one: int, other: int) -> bool:
        """Whether the answer on these two is "do not choose yet". Always false for two results of one drive:
        these are not a choice."""
        return bool(between(one, other).doubt) and not candidates[one].is_of_the_drive_of(candidates[other])

    best = [one for one in proven if not any(is_faster(other, one) for other in proven)] or proven
    faster = [one for one in left if one not in proven and all(is_faster(one, other) for other in best)]
    pairs = [between(one, other) for one in best for other in left if one != other]
    advice = []
    if any(pair.is_open for pair in pairs):
        advice.append("Some had too few rounds to tell their speeds apart: measure again without --quick")
    elif any(pair.has_few_rounds for pair in pairs):
        advice.append(_ONCE_MORE)
    if any(pair.doubt for pair in pairs):
        advice.append("A leader's rate fell in a load that not all held: measure all with the same --accept")
    varying = [
        one
        for one in left
        if one not in (*best, *faster) and any(between(each, one).depends_on_load for each in best)
    ]
    in_load = f"{labels(varying)} is faster in your load" if varying else ""
    if any(is_doubtful(one, other) for one, other in combinations(best, 2)):
        why = f"{labels(best, 'and')} are proven, and whether a lead in speed lasts is not known"
        return [f"do not choose yet: {why}", *advice]
    if faster:
        verb = "commits" if len(faster) == 1 else "commit"
        unless = f"unless cuts prove {labels(faster)}, which {verb} faster"
        return [f"take {labels(best)} {unless}{f', or {in_load}' if in_load else ''}", *advice]
    if len(best) == 1:
        why = "only it is proven" if len(proven) == 1 else "it is the fastest that is proven"
        taken = labels(best)
        return [f"take {taken} ({why}) unless {in_load}" if in_load else f"take {taken}: {why}", *advice]
    rivals = [between(one, other) for one, other in combinations(best, 2)]
    if not any(pair.is_known for pair in rivals):
        return [f"speed chooses none: {_NOT_IN_ALL}", f"{labels(best, 'and')} are proven", *advice]
    why = ", and no difference in speed decides between them"
    if any(pair.depends_on_load for pair in rivals):
        why = ", and which of them is faster depends on the load"
    elif any(pair.doubt for pair in rivals):
        why = ", and whether a lead in speed lasts is not known"
    elif any(pair.is_open for pair in pairs):
        why = ""
    unless, they = (f" unless {in_load}", labels(best, "and")) if in_load else ("", "they")
    return [f"take {labels(best)}{unless}: {they} are proven{why}", *advice]


def _of_shared_drives(candidates: Sequence[Candidate]) -> list[str]:
    """A sentence for each drive that several candidates share."""
    of_drive: dict[int, list[str]] = {}
    for one in candidates:
        if one.drive is not None:
            of_drive.setdefault(one.drive, []).append(one.label)
    return [f"{_listed(some, 'and')} are of one drive" for some in of_drive.values() if len(some) > 1]


def caveat(candidates: Sequence[Candidate], headlines: Sequence[str]) -> str:
    """Why the ratios are not a ranking, in sentences. "" if every candidate is proven and no measurement was
    broken off. `headlines`: the plausibility verdict on each candidate, () to leave them out."""
    out = [one for one in candidates if one.is_out]
    unproven = [one.label for one in candidates if not one.is_proven and not one.is_out]
    parts = [f"The rate of {one.label} is worth nothing, since it {one.fault}" for one in out]
    if unproven:
        alone = all(one.is_of_the_drive_of(candidates[0]) for one in candidates)
        wins = "a set-up that sends no flushes" if alone else "a drive that ignores flushes"
        parts.append(
            f"Ratios are not a ranking: it is not proven that {_listed(unproven, 'or')} keeps what it"
            f" acknowledged, and {wins} looks fast"
        )
        if len(set(headlines)) > 1:
            each = (f"{one.label}: {word}" for one, word in zip(candidates, headlines, strict=True))
            parts.append(f"Their times alone show different things ({'; '.join(each)})")
    if broken := [one.label for one in candidates if one.broken_off is not None and not one.is_out]:
        parts.append(f"The measurement of {_listed(broken, 'and')} was broken off, so cells may be missing")
    return _sentences(*parts)


def _on_broken_off(candidates: Sequence[Candidate]) -> list[str]:
    """Which measurements were broken off, and what to do, in sentences. [] if none was."""
    broken = [(one.label, one.broken_off) for one in candidates if one.broken_off is not None]
    if not broken:
        return []
    (label, found), *others = broken
    more = "".join(f", and that of {other} {each.how}" for other, each in others)
    advice = [f"Measure {_listed([one for one, _ in broken], 'and')} again"]
    if failed := [one for one, each in broken if each.is_io_error]:
        whose = _listed(failed, "and")
        advice.append(
            f"An I/O error may be a fault of the drive of {whose}, its cable or its port: look for it in the"
            " kernel's log first"
        )
    return [f"the measurement of {label} was broken off {found.how}{more}", *advice]


def _silent(first: Candidate, other: Candidate, speeds: Speeds) -> dict[str, str]:
    """The result of `without_a_commit`, for the candidates that are not out."""
    found = without_a_commit(first.label, other.label, speeds)
    return {one.label: found[one.label] for one in (first, other) if one.label in found and not one.is_out}


def _silent_of_all(candidates: Sequence[Candidate], between: Callable[[int, int], Speeds]) -> dict[str, str]:
    """Like `_silent`, for all candidates. Each is compared with all others, even with those that are out."""
    found: dict[str, str] = {}
    for one, other in combinations(range(len(candidates)), 2):
        found = _silent(candidates[one], candidates[other], between(one, other)) | found
    return {one.label: found[one.label] for one in candidates if one.label in found}


def _on_silence(found: Mapping[str, str]) -> list[str]:
    """Where these results had no commit, and what to do, in sentences. [] if all had commits."""
    if not found:
        return []
    again = f"Measure {_listed(list(found), 'and')} again"
    return [silence_text(found), again, "If it happens again, find out what stopped the commits"]


def _of_one_drive(first: Candidate, other: Candidate, speeds: Speeds) -> str:
    """The answer on two results of one drive: what they show, without a choice between drives."""
    head = f"Both results are of {_one_drive(first)}"
    if first.is_out or other.is_out:
        same = first.fault == other.fault
        bad = [("it" if same else one.label, one.fault) for one in (first, other) if one.is_out]
        parts = [f"Do not use {label}: it {fault}" for label, fault in dict.fromkeys(bad)]
        return _sentences(
            head, *parts, *(f"{one.label} {one.state}" for one in (first, other) if not one.is_out)
        )
    if faulty := _on_broken_off([first, other]) or _on_silence(_silent(first, other, speeds)):
        return _sentences(f"{head}, and {faulty[0]}", *faulty[1:])
    if first.state == other.state:
        known = f"It {first.state}"
    else:
        known = f"{first.label} {first.state}, {other.label} {other.state}"
    return _sentences(
        f"{head}: {_speed(first, other, speeds)}",
        *(["The ratio is between two runs or set-ups of it"] if speeds.is_known else []),
        known,
        *_again(speeds),
    )


def _one_drive(one: Candidate) -> str:
    if len(one.serials) == 1:
        return f"one drive (serial {one.serials[0]})"
    more = f" and {len(one.serials) - 2} more" if len(one.serials) > 2 else ""
    return f"the same drives (serials {', '.join(one.serials[:2])}{more})"


def _with_both(first: Candidate, other: Candidate, speeds: Speeds) -> str:
    cuts = f"in {_cuts(first):,} and {_cuts(other):,} cuts"
    speed = _speed(first, other, speeds)
    if not speeds.is_known:
        return _sentences(f"Not compared: {speed}", f"Both are proven, {cuts}")
    if speeds.is_open:
        return _sentences(f"Both are proven, {cuts}, but {speed}", _AGAIN)
    if speeds.depends_on_load:
        return _sentences(f"Choose by your load: {speed}", f"Both are proven, {cuts}")
    if speeds.doubt:
        return _sentences(f"Do not choose yet: {speed}", _HOLD_BOTH, f"Both are proven, {cuts}")
    if not speeds.decides:
        return _sentences(f"Take either: {speed}, and both are proven, {cuts}")
    fast = other if speeds.is_for_second else first
    speed = _speed(first, other, speeds, "it")
    return _sentences(f"Take {fast.label}: {speed}, and both are proven, {cuts}", *_once_more(speeds))


def _with_one(first: Candidate, other: Candidate, speeds: Speeds) -> str:
    """The answer if only one is proven: take that one unless the other one is faster."""
    proven, left = (first, other) if first.is_proven else (other, first)
    speed, state = _speed(first, other, speeds), f"{left.label} {left.state}"
    only = f"Only {proven.label} is proven, in {counted(_cuts(proven), 'cut')}"
    if speeds.depends_on_load:
        return _sentences(
            f"Take {proven.label} (only it is proven) unless {left.label} is faster in your load: {speed}",
            f"{state}: {left.advice}",
        )
    if speeds.doubt:
        leads = speeds.leads[0].is_of_second == (proven is other)
        head = only if leads else f"Take {proven.label}: it {proven.state}"
        return _sentences(head, speed, _HOLD_BOTH, f"{state}: {left.advice}" if leads else state)
    if not speeds.decides:
        word = "but" if speeds.is_open else "and"
        return _sentences(f"Take {proven.label}: it {proven.state}, {word} {speed}", state, *_again(speeds))
    if speeds.is_for_second == (proven is other):
        faster = _speed(first, other, speeds, "it")
        return _sentences(f"Take {proven.label}: {faster}, and {proven.state}", state, *_once_more(speeds))
    return _sentences(only, f"{speed}, but {state}: {left.advice}")


def _again(speeds: Speeds) -> list[str]:
    """A sentence that says how to measure both again if their speeds are unclear. [] if they are clear."""
    if speeds.is_open:
        return [_AGAIN]
    return [_HOLD_BOTH] if speeds.doubt else []


def _once_more(speeds: Speeds) -> list[str]:
    """The advice to measure once more if few rounds decide. [] otherwise."""
    return [_ONCE_MORE] if speeds.has_few_rounds else []


def _with_a_loser(first: Candidate, other: Candidate, speeds: Speeds) -> str:
    if first.is_out and other.is_out:
        return _sentences(f"Take neither: {first.label} {first.fault}, and {other.label} {other.fault}")
    out, left = (first, other) if first.is_out else (other, first)
    head = f"Do not take {out.label}: it {out.fault}"
    if faulty := _on_broken_off([left]) or _on_silence(_silent(first, other, speeds)):
        return _sentences(head, f"But {faulty[0]}", *faulty[1:])
    if left.is_proven:
        return _sentences(head, f"Take {left.label}: it {left.state}")
    return _sentences(head, f"{left.label} {left.state}: {left.advice}")


def _speed(first: Candidate, other: Candidate, speeds: Speeds, subject: str = "") -> str:
    """How fast one commits compared with the other. `subject`: replaces the label of the faster one."""
    return speed_text(first.label, other.label, speeds, subject)


def _times(one: Candidate) -> str:
    """How often its power must be cut until it is proven, in words."""
    if one.proof is None or one.proof.cuts_missing == CUTS_NEEDED:
        return counted(CUTS_NEEDED, "time")
    return f"{one.proof.cuts_missing} more {'time' if one.proof.cuts_missing == 1 else 'times'}"


def _cuts(one: Candidate) -> int:
    assert one.proof is not None
    return one.proof.cuts


def _listed(words: Sequence[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _sentences(*parts: str) -> str:
    return " ".join(f"{part}." for part in parts)
