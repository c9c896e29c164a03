"""Profile: the criteria that a drive must meet to be accepted, each with its reason.

A criterion declares its kind, a limit, whether it is required or optional, and its reason. `criteria` has the
kinds. `profile_file` refuses unknown kinds, and limits that a kind does not take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from durability.evidence.cut import CutClass

DecisionWord: TypeAlias = Literal["pass", "refuse", "not shown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One criterion of a profile."""

    kind: str
    limit: float | None  # in the unit of the kind, None for a kind without a limit
    cut_class: CutClass  # the weakest class of cut that counts, for kinds that count cuts
    required: bool  # False: the criterion is optional and does not affect the decision
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The criteria for a purpose."""

    name: str
    title: str  # one line for people
    about: str  # a few sentences on the purpose of the profile
    criteria: tuple[Criterion, ...]
