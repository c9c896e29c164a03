"""What a kind of criterion is, and what all kinds share: the limit, the answer, and which of two counts.

A kind registers itself here under `kind`; `criteria` has them all. Refuses to look at evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from durability.acceptance.drive_evidence import DriveEvidence
from durability.acceptance.profile import Criterion, DecisionWord
from durability.units import few_digits

Sense: TypeAlias = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What the limit of a kind is: `unit` in which it is written, and where it may lie."""

    sense: Sense
    unit: str
    low: float = 0.0
    high: float = 1e12
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a kind answers: the word, the `figure` that it rests on, and the `source` of that."""

    word: DecisionWord
    figure: str
    source: str = ""


Look: TypeAlias = Callable[[DriveEvidence, Criterion], Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionKind:
    """A kind of criterion. `asks`: what it asks, for people; `limit`: None if it has none; `counts_cuts`:
    whether the criterion names a class of cut."""

    name: str
    asks: str
    limit: Limit | None
    counts_cuts: bool
    look: Look


_KINDS: dict[str, CriterionKind] = {}
KINDS: Mapping[str, CriterionKind] = MappingProxyType(_KINDS)


def kind(
    name: str, asks: str, limit: Limit | None = None, *, counts_cuts: bool = False
) -> Callable[[Look], Look]:
    """Registers the function that looks at the evidence for a kind of criterion."""

    def register(look: Look) -> Look:
        _KINDS[name] = CriterionKind(name=name, asks=asks, limit=limit, counts_cuts=counts_cuts, look=look)
        return look

    return register


def limit_text(criterion: Criterion) -> str:
    """The limit for people, "" if there is none."""
    limit = KINDS[criterion.kind].limit
    if limit is None or criterion.limit is None:
        return ""
    of_class = f" of class {criterion.cut_class}" if KINDS[criterion.kind].counts_cuts else ""
    whole = criterion.limit == int(criterion.limit)
    number = f"{criterion.limit:,.0f}" if whole else f"{criterion.limit:,}"
    return f"{limit.sense} {number} {limit.unit}{of_class}"


def worst(criterion: Criterion, values: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The value that is farthest on the wrong side of the limit, or nearest to it."""
    limit = KINDS[criterion.kind].limit
    return min(values) if limit is not None and limit.sense == "at least" else max(values)


def held(criterion: Criterion, value: float, figure: str, source: str) -> Finding:
    """The figure against the limit of its criterion."""
    return Finding(word="pass" if _is_kept(criterion, value) else "refuse", figure=figure, source=source)


def number(criterion: Criterion, value: float) -> str:
    """The value for people, with as many digits as it takes to see on which side of the limit it is."""
    texts = (few_digits(value), *(f"{value:,.{digits}f}" for digits in range(1, 7)))
    kept = _is_kept(criterion, value)
    fitting = (one for one in texts if _is_kept(criterion, float(one.replace(",", ""))) == kept)
    return next(fitting, f"{value!r}")


def _is_kept(criterion: Criterion, value: float) -> bool:
    limit = KINDS[criterion.kind].limit
    assert limit is not None and criterion.limit is not None
    return value >= criterion.limit if limit.sense == "at least" else value <= criterion.limit


WORST_FIRST: tuple[DecisionWord, ...] = ("refuse", "not shown", "pass")


def worse(first: Finding | None, other: Finding) -> Finding:
    """The one that counts of two."""
    return other if first is None else min(first, other, key=lambda one: WORST_FIRST.index(one.word))
