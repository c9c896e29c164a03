"""The answer of a comparison: which of two drives to take, how much faster it is, and whether that is proven.

Speed never decides alone: a drive that ignores flushes always wins. So a drive that lost data is not to be
taken, nor a set-up whose commits are suspicious, one that no cuts have proven is not to be taken yet, and
only then the faster one is, if it is faster by more than two runs of one drive have differed by. Refuses a
ratio without its caveat unless both drives are proven, to say that there is no difference where there were
too few rounds to see one, and to advise on two results of one drive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeGuard

from durability.bench.decision.proof import Proof
from durability.bench.intervals import Ratio
from durability.bench.plausibility import Code
from durability.units import counted, multiple

# Of the one rate to the other, from which on a drive is taken for it. Two runs of one drive have differed by
# 14 and by 34 % on a machine that shares its host (docs/explanation/bench-on-drives.md), and no result says
# how much its machine changes between two runs. So less may be the other way round in the next two.
TIMES_MIN = 1.35
# What commits did that are suspicious.
SUSPICIONS: Mapping[Code, str] = MappingProxyType(
    {
        "no-flush-sent": "acknowledged commits without a flush to any drive",
        "faster-than-media": "committed faster than its platter turns",
    }
)

_FIND_OUT = "find out why they have none"
_ONCE_MORE = "Measure once more to be sure"
_AGAIN = "Measure both again without --quick"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One result of a comparison: its label, and what cuts said of its drive, None if there were none.
    `suspicion`: what its own commits did that they must not, as the end of a sentence with "it"; "" for
    nothing. `drive`: the number of its drive, the same in all results of it, None if it has no serial of its
    own; `serials`: of the drives below its target."""

    label: str
    proof: Proof | None
    suspicion: str = ""
    drive: int | None = None
    serials: tuple[str, ...] = ()

    @property
    def is_proven(self) -> bool:
        """Whether enough cuts of the power showed no loss, and nothing speaks against the result."""
        return self.proof is not None and self.proof.word == "proven" and not self.suspicion

    @property
    def is_out(self) -> bool:
        """Whether a cut showed a loss, or the commits are suspicious."""
        return bool(self.fault)

    @property
    def fault(self) -> str:
        """Why it is out, as the end of a sentence with "it"."""
        lost = self.proof is not None and self.proof.word == "lost data"
        return self.proof.text if self.proof is not None and lost else self.suspicion

    @property
    def state(self) -> str:
        """What is known, as the end of a sentence that begins with the label."""
        if self.proof is None:
            return "has no known cut"
        if self.is_proven:
            return f"is {self.proof.text}"
        if self.proof.but or self.proof.waits_for_answers:
            return f"has {self.proof.text}"
        return f"has only {counted(self.proof.cuts, 'cut')} of class {self.proof.cut_class} without a loss"

    def is_of_the_drive_of(self, other: Candidate) -> bool:
        """Whether both are results of one drive."""
        return self.drive is not None and self.drive == other.drive

    @property
    def advice(self) -> str:
        """What is to be done before it is taken."""
        if self.proof is not None and self.proof.but:
            return "cut it as you measured it before you take it"
        if self.proof is not None and self.proof.waits_for_answers:
            return f"verify its cuts without an outcome, or {_FIND_OUT}, before you take it"
        return "cut its power before you take it"


def answer(first: Candidate, other: Candidate, ratio: Ratio | None) -> str:
    """The sentences on two candidates; `ratio`: commits per second of `other` as a share of those of `first`,
    None if no cell that commits was measured in both."""
    if first.is_of_the_drive_of(other):
        return _of_one_drive(first, other, ratio)
    if first.is_out or other.is_out:
        return _with_a_loser(first, other)
    if first.is_proven and other.is_proven:
        return _with_both(first, other, ratio)
    if first.is_proven or other.is_proven:
        return _with_one(first, other, ratio)
    but = "and" if _is_open(ratio) else "but"
    head = f"Do not choose yet: {_speed(first, other, ratio)}, {but} neither is proven"
    again = [_AGAIN] if _is_open(ratio) else []
    if first.proof is None and other.proof is None:
        return _sentences(head, "Cut the power of both", *again)
    unlike = [one.label for one in (first, other) if one.proof is not None and one.proof.but]
    advice = [f"Cut {_listed(unlike, 'and')} as you measured it"] if unlike else []
    waiting = [one.label for one in (first, other) if one.proof is not None and one.proof.waits_for_answers]
    if waiting:
        advice.append(f"Verify the cuts of {_listed(waiting, 'and')} without an outcome, or {_FIND_OUT}")
    states = f"{first.label} {first.state}, {other.label} {other.state}"
    return _sentences(f"{head}: {states}", *advice, *again)


def choice(candidates: Sequence[Candidate], between: Callable[[int, int], Ratio | None]) -> str:
    """The sentence that closes the answers on three candidates or more, each of which is on a pair; "" for
    two. `between`: for two numbers of candidates, commits per second of the one as a share of the other's."""
    if len(candidates) < 3:
        return ""
    head = f"Of all {len(candidates)}"
    if all(one.is_of_the_drive_of(candidates[0]) for one in candidates):
        return _sentences(f"All {len(candidates)} results are of {_one_drive(candidates[0])}")
    notes = _of_shared_drives(candidates)
    left = [number for number, one in enumerate(candidates) if not one.is_out]
    proven = [number for number in left if candidates[number].is_proven]
    if not proven:
        word = "none is proven: do not choose yet" if left else "take none"
        return _sentences(f"{head}, {word}", *notes)

    def labels(numbers: Sequence[int]) -> str:
        return _listed([candidates[number].label for number in numbers], "or")

    def is_faster(one: int, other: int) -> bool:
        """By so much that it is taken for it."""
        found = between(one, other)
        return _differs(found) and found.value > 1

    best = [one for one in proven if not any(is_faster(other, one) for other in proven)]
    faster = [one for one in left if one not in proven and all(is_faster(one, other) for other in best)]
    pairs = [between(one, other) for one in best for other in left if one != other]
    if any(map(_is_open, pairs)):
        notes.append("Some had too few rounds to tell their speeds apart: measure again without --quick")
    elif any(found is not None and not found.has_interval for found in pairs):
        notes.append(_ONCE_MORE)
    if faster:
        verb = "commits" if len(faster) == 1 else "commit"
        return _sentences(
            f"{head}, take {labels(best)} unless cuts prove {labels(faster)}, which {verb} faster", *notes
        )
    if len(best) > 1:
        decides = ", and no difference in speed decides between them"
        why = "they are proven" + ("" if any(map(_is_open, pairs)) else decides)
    else:
        why = "only it is proven" if len(proven) == 1 else "it is the fastest that is proven"
    return _sentences(f"{head}, take {labels(best)}: {why}", *notes)


def _of_shared_drives(candidates: Sequence[Candidate]) -> list[str]:
    """A sentence on each drive of which some results are, and not all."""
    of_drive: dict[int, list[str]] = {}
    for one in candidates:
        if one.drive is not None:
            of_drive.setdefault(one.drive, []).append(one.label)
    return [f"{_listed(some, 'and')} are of one drive" for some in of_drive.values() if len(some) > 1]


def caveat(candidates: Sequence[Candidate], headlines: Sequence[str]) -> str:
    """What keeps the ratios from being a ranking, "" if every candidate is proven; `headlines`: the verdict
    on the plausibility of each."""
    out = [one for one in candidates if one.is_out]
    unproven = [one.label for one in candidates if not one.is_proven and not one.is_out]
    parts = [f"The rate of {one.label} is worth nothing, since it {one.fault}" for one in out]
    if unproven:
        alone = all(one.is_of_the_drive_of(candidates[0]) for one in candidates)
        wins = "a set-up that sends no flushes" if alone else "a drive that ignores flushes"
        parts.append(
            f"Ratios are not a ranking: no cuts have proven that {_listed(unproven, 'or')} keeps what it"
            f" acknowledged, and {wins} always wins"
        )
        if len(set(headlines)) > 1:
            each = (f"{one.label}: {word}" for one, word in zip(candidates, headlines, strict=True))
            parts.append(f"The plausibilities differ ({'; '.join(each)})")
    return _sentences(*parts)


def _of_one_drive(first: Candidate, other: Candidate, ratio: Ratio | None) -> str:
    """What two runs, or two set-ups, of one drive show. There is nothing to choose between."""
    head = f"Both results are of {_one_drive(first)}"
    if first.is_out or other.is_out:
        same = first.fault == other.fault
        bad = [("it" if same else one.label, one.fault) for one in (first, other) if one.is_out]
        parts = [f"Do not use {label}: it {fault}" for label, fault in dict.fromkeys(bad)]
        return _sentences(
            head, *parts, *(f"{one.label} {one.state}" for one in (first, other) if not one.is_out)
        )
    if first.state == other.state:
        known = f"It {first.state}"
    else:
        known = f"{first.label} {first.state}, {other.label} {other.state}"
    return _sentences(
        f"{head}: {_speed(first, other, ratio)}",
        *(["The ratio is between two runs or set-ups of it"] if ratio is not None else []),
        known,
        *([_AGAIN] if _is_open(ratio) else []),
    )


def _one_drive(one: Candidate) -> str:
    if len(one.serials) == 1:
        return f"one drive (serial {one.serials[0]})"
    more = f" and {len(one.serials) - 2} more" if len(one.serials) > 2 else ""
    return f"the same drives (serials {', '.join(one.serials[:2])}{more})"


def _with_both(first: Candidate, other: Candidate, ratio: Ratio | None) -> str:
    cuts = f"in {_cuts(first):,} and {_cuts(other):,} cuts"
    if _is_open(ratio):
        return _sentences(f"Both are proven, {cuts}, but {_speed(first, other, ratio)}", _AGAIN)
    if not _differs(ratio):
        return _sentences(f"Take either: {_speed(first, other, ratio)}, and both are proven, {cuts}")
    fast = first if ratio.value < 1 else other
    speed = _speed(first, other, ratio, "it")
    return _sentences(f"Take {fast.label}: {speed}, and both are proven, {cuts}", *_once_more(ratio))


def _with_one(first: Candidate, other: Candidate, ratio: Ratio | None) -> str:
    """One of them is proven: it is taken unless the other one is faster."""
    proven, left = (first, other) if first.is_proven else (other, first)
    speed, state = _speed(first, other, ratio), f"{left.label} {left.state}"
    if _is_open(ratio):
        return _sentences(f"Take {proven.label}: it {proven.state}, but {speed}", state, _AGAIN)
    if not _differs(ratio):
        return _sentences(f"Take {proven.label}: it {proven.state}, and {speed}", state)
    if (ratio.value > 1) == (proven is other):
        faster = _speed(first, other, ratio, "it")
        return _sentences(f"Take {proven.label}: {faster}, and {proven.state}", state, *_once_more(ratio))
    return _sentences(
        f"Only {proven.label} is proven, in {counted(_cuts(proven), 'cut')}",
        f"{speed}, but {state}: {left.advice}",
    )


def _once_more(ratio: Ratio) -> list[str]:
    """The advice where a drive is taken for what few rounds showed."""
    return [] if ratio.has_interval else [_ONCE_MORE]


def _with_a_loser(first: Candidate, other: Candidate) -> str:
    if first.is_out and other.is_out:
        return _sentences(f"Take neither: {first.label} {first.fault}, and {other.label} {other.fault}")
    out, left = (first, other) if first.is_out else (other, first)
    head = f"Do not take {out.label}: it {out.fault}"
    if left.is_proven:
        return _sentences(head, f"Take {left.label}: it {left.state}")
    return _sentences(head, f"{left.label} {left.state}: {left.advice}")


def _speed(first: Candidate, other: Candidate, ratio: Ratio | None, subject: str = "") -> str:
    """How fast one commits compared with the other; `subject`: in the place of the faster one's label."""
    if ratio is None:
        return "no cell that commits was measured in both"
    if _is_open(ratio):
        return f"{first.label} and {other.label} had too few rounds to tell their speeds apart"
    if not _is_shown(ratio):
        return f"no difference in speed is shown between {first.label} and {other.label}"
    fast, slow = (other, first) if ratio.value > 1 else (first, other)
    if not _is_large(ratio):
        share = _times(ratio) - 1
        words = f"{share:.0%}" if share >= 0.01 else "under 1%"
        as_much = "and two runs of one drive have differed by as much"
        return f"{fast.label} commits {words} faster than {slow.label}, {as_much}"
    unsure = "" if ratio.has_interval else " (in too few rounds to be sure)"
    who = subject or fast.label
    return f"{who} commits {multiple(_times(ratio))} times as fast as {slow.label}{unsure}"


def _differs(ratio: Ratio | None) -> TypeGuard[Ratio]:
    """Whether there is a difference for which a drive is taken."""
    return ratio is not None and _is_shown(ratio) and _is_large(ratio)


def _is_shown(ratio: Ratio) -> bool:
    """Whether the rounds show a difference: by the interval, or where there are too few for one by none of
    the one lying among those of the other."""
    return ratio.shows_difference if ratio.has_interval else ratio.apart


def _is_open(ratio: Ratio | None) -> bool:
    """Whether there were too few rounds to say if there is a difference."""
    return ratio is not None and not ratio.has_interval and not ratio.apart


def _is_large(ratio: Ratio) -> bool:
    return _times(ratio) >= TIMES_MIN


def _times(ratio: Ratio) -> float:
    """The faster one's rate to the slower one's."""
    return max(ratio.value, 1 / ratio.value)


def _cuts(one: Candidate) -> int:
    assert one.proof is not None
    return one.proof.cuts


def _listed(words: Sequence[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _sentences(*parts: str) -> str:
    return " ".join(f"{part}." for part in parts)
