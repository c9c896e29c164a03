"""Decision on a drive: each criterion of a profile gives a line, and the lines give one word.

The decision is "pass" only if all required lines pass, every result is complete, and the server was searched
completely for contradicting evidence. It is "refuse" if one required line refuses. In all other cases, and
without any required line, it is "not shown". Optional lines are printed but do not affect the decision.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from durability.acceptance.criteria import KINDS, limit_text
from durability.acceptance.drive_evidence import DriveEvidence
from durability.acceptance.known_cuts import unsearchable
from durability.acceptance.profile import Criterion, DecisionWord, Profile
from durability.errors import EXIT_INCONCLUSIVE, EXIT_LOSS, EXIT_OK
from durability.formats.case import PROVABLE_CUT_CLASSES
from durability.units import counted, percent_at_most

_UNREAD = re.compile(r"(?P<kind>campaign|run|stored result) (?P<name>\S+) (?P<why>cannot be read\b.*)")
_NAMED_MAX = 3  # names in a sentence on evidence that cannot be read
EXIT_CODES: dict[DecisionWord, int] = {"pass": EXIT_OK, "refuse": EXIT_LOSS, "not shown": EXIT_INCONCLUSIVE}


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionLine:
    """One criterion and its finding."""

    criterion: Criterion
    asks: str
    limit: str  # the limit in words
    word: DecisionWord
    figure: str
    source: str  # the evidence, "" for none


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision on one drive."""

    evidence: DriveEvidence
    lines: tuple[CriterionLine, ...]
    word: DecisionWord
    why: str  # the reason, as a sentence without a full stop
    not_proven: tuple[str, ...]  # what the evidence does not prove, in sentences


def decide_on(profile: Profile, evidence: DriveEvidence) -> Decision:
    """The decision on one drive."""
    lines = tuple(_line(criterion, evidence) for criterion in profile.criteria)
    word = _word([line.word for line in lines if line.criterion.required])
    why = _why(lines, word)
    # A drive that failed during the benchmark does not pass, whatever the profile requires.
    lacking = (*filter(None, (one.broken_off for one in evidence.results)), *evidence.unfinished)
    if word == "pass" and lacking:
        word, why = "not shown", f"what was found passes, but {lacking[0]}"
    return Decision(
        evidence=evidence,
        lines=lines,
        word=word,
        why=why,
        not_proven=tuple(_not_proven(evidence)),
    )


def decided_of_all(words: Sequence[DecisionWord]) -> DecisionWord:
    """The decision on several drives together. It is "pass" only if each drive passes."""
    return _word(words)


def _word(words: Sequence[DecisionWord]) -> DecisionWord:
    if "refuse" in words:
        return "refuse"
    return "pass" if words and all(word == "pass" for word in words) else "not shown"


def _line(criterion: Criterion, evidence: DriveEvidence) -> CriterionLine:
    kind = KINDS[criterion.kind]
    found = kind.look(evidence, criterion)
    return CriterionLine(
        criterion=criterion,
        asks=kind.asks,
        limit=limit_text(criterion),
        word=found.word,
        figure=found.figure,
        source=found.source,
    )


def _why(lines: Sequence[CriterionLine], word: DecisionWord) -> str:
    required = [line for line in lines if line.criterion.required]
    if word == "pass":
        return f"all {counted(len(required), 'required criterion', 'required criteria')} pass"
    deciding = [line for line in required if line.word == word]
    if not deciding:
        return "the profile requires nothing"
    first = deciding[0]
    more = "" if len(deciding) == 1 else f"; and {len(deciding) - 1} more"
    return f"{first.criterion.kind}: {first.figure}{more}"


def folded(sentences: Sequence[str]) -> tuple[str, ...]:
    """The sentences, with those on unreadable evidence merged into one for each kind and reason. The merged
    sentence gives the first names: a server may have many campaigns of a later release."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for one in sentences:
        match = _UNREAD.fullmatch(one)
        kinds.setdefault((match["kind"], match["why"]) if match else (one, ""), []).append(
            match["name"] if match else one
        )
    return tuple(_of_kind(kind, why, names) for (kind, why), names in kinds.items())


def _of_kind(kind: str, why: str, names: Sequence[str]) -> str:
    if not why:
        return kind
    if len(names) == 1:
        return f"{kind} {names[0]} {why}"
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    why = why.replace("what it says does", "what they say does")
    return f"{len(names)} {kind}s {why}: {', '.join(names[:_NAMED_MAX])}{more}"


def _not_proven(evidence: DriveEvidence) -> Iterator[str]:
    # Try the strongest class first: cuts of weaker classes may have left the drive powered.
    best = next(filter(None, map(evidence.bounding, PROVABLE_CUT_CLASSES)), None)
    if best is None:
        yield "How often this drive loses data at a cut: no series of cuts without a loss bounds it."
    elif evidence.disputed:  # as in `clean-cuts`
        cuts = f"{counted(best.cuts, 'cut')} of class {best.cut_class} without a loss"
        yield f"How often this drive loses data at a cut: {cuts}, but {evidence.disputed}."
    else:
        assert best.bound is not None
        yield (
            f"That it never loses data: {counted(best.cuts, 'cut')} of class {best.cut_class} without a loss"
            f" allow a loss in up to {percent_at_most(best.bound)} of such cuts (95 % confidence)."
        )
    classes = {one.cut_class for one in evidence.proofs}
    if classes and "power" not in classes:
        yield "What a loss of the host's or the provider's own power does: none was cut."
    yield "Anything of another drive of this model, of another firmware, or of this drive years from now."
    yield "That data stay for months without power, or in heat and cold that were not tested."
    for one in evidence.results:
        if one.broken_off:
            yield f"What the benchmark would have shown further on: {one.broken_off}."
    for sentence in evidence.to_verify:
        yield f"What cuts with unknown outcome lost: {sentence}."
    for sentence in folded(evidence.unfinished):
        yield f"That there is no other evidence: {sentence}."
    for sentence in evidence.left_out:
        yield f"What other clients say of it. {sentence}."
    unasked = "" if evidence.searched else "no server was asked for cuts"
    if why := unsearchable(evidence.facts[0]) or unasked:
        yield f"That no other cut of it lost data: {why}."
    if not evidence.results:
        yield "How fast it is: no result of the benchmark is part of the evidence."
