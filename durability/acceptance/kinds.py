"""Kinds of criteria: their registry, their limits and their findings.

The decorator `kind` registers a kind here; importing `criteria` registers all of them. This module does not
look at evidence.
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
    """The limit that a kind takes: its sense, its unit and the range of its values."""

    sense: Sense
    unit: str  # the unit of the limit in a profile
    low: float = 0.0  # the lowest limit that a profile may set
    high: float = 1e12  # the highest limit that a profile may set
    whole: bool = False  # whether the limit must be a whole number


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer of a kind for one drive."""

    word: DecisionWord
    figure: str  # the figure that decides the word, as text
    source: str = ""  # the evidence that the figure comes from


Look: TypeAlias = Callable[[DriveEvidence, Criterion], Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionKind:
    """A kind of criterion."""

    name: str
    asks: str  # description of the requirement, for people
    limit: Limit | None  # None for a kind without a limit
    counts_cuts: bool  # whether the criterion names a class of cut
    look: Look  # looks at the evidence and returns the finding


_KINDS: dict[str, CriterionKind] = {}
KINDS: Mapping[str, CriterionKind] = MappingProxyType(_KINDS)


def kind(
    name: str, asks: str, limit: Limit | None = None, *, counts_cuts: bool = False
) -> Callable[[Look], Look]:
    """Register the function that looks at the evidence for a kind of criterion."""

    def register(look: Look) -> Look:
        _KINDS[name] = CriterionKind(name=name, asks=asks, limit=limit, counts_cuts=counts_cuts, look=look)
        return look

    return register


def limit_text(criterion: Criterion) -> str:
    """The limit as text, "" for a criterion without a limit."""
    limit = KINDS[criterion.kind].limit
    if limit is None or criterion.limit is None:
        return ""
    of_class = f" of class {criterion.cut_class}" if KINDS[criterion.kind].counts_cuts else ""
    whole = criterion.limit == int(criterion.limit)
    number = f"{criterion.limit:,.0f}" if whole else f"{criterion.limit:,}"
    return f"{limit.sense} {number} {limit.unit}{of_class}"


def worst_value(criterion: Criterion, values: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The worst value with its source: the lowest if the limit is "at least", else the highest."""
    limit = KINDS[criterion.kind].limit
    return min(values) if limit is not None and limit.sense == "at least" else max(values)


def compare_with_limit(criterion: Criterion, value: float, figure: str, source: str) -> Finding:
    """The finding of a figure: pass if `value` meets the limit of its criterion, else refuse."""
    return Finding(word="pass" if _meets_limit(criterion, value) else "refuse", figure=figure, source=source)


def value_text(criterion: Criterion, value: float) -> str:
    """The value as text, with enough digits to show on which side of the limit it lies."""
    texts = (few_digits(value), *(f"{value:,.{digits}f}" for digits in range(1, 7)))
    kept = _meets_limit(criterion, value)
    fitting = (one for one in texts if _meets_limit(criterion, float(one.replace(",", ""))) == kept)
    return next(fitting, f"{value!r}")


def _meets_limit(criterion: Criterion, value: float) -> bool:
    limit = KINDS[criterion.kind].limit
    assert limit is not None and criterion.limit is not None
    return value >= criterion.limit if limit.sense == "at least" else value <= criterion.limit


WORST_FIRST: tuple[DecisionWord, ...] = ("refuse", "not shown", "pass")


def worse_finding(first: Finding | None, other: Finding) -> Finding:
    """The worse of two findings, the first if they are equal."""
    return other if first is None else min(first, other, key=lambda one: WORST_FIRST.index(one.word))
