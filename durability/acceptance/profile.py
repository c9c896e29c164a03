"""Profile: what is asked of a drive before it is taken, criterion by criterion, each with its reason.

A criterion is a declaration: its kind, a limit, whether it is required or optional, and why. `criteria` knows
the kinds. Refuses a kind that does not exist, and a limit that its kind does not take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from durability.evidence.cut import CutClass

DecisionWord: TypeAlias = Literal["pass", "refuse", "not shown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """What is asked. `limit`: in the unit of the kind, None for a kind without one. `cut_class`: the weakest
    class of cut that counts, for kinds that count cuts. `required`: else it is optional, and decides
    nothing."""

    kind: str
    limit: float | None
    cut_class: CutClass
    required: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The criteria for a purpose. `title`: one line for people; `about`: a few sentences on whom it is
    for."""

    name: str
    title: str
    about: str
    criteria: tuple[Criterion, ...]
