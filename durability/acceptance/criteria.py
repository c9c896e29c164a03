"""The kinds of criteria, each of which looks at one thing in the evidence and answers with a word.

One kind is one function, under `@kind`, in the module of what it looks at. It answers pass or refuse only
from evidence, names that evidence, and otherwise says "not shown" and what is missing. Of several results or
campaigns in the evidence the worst counts. Which are in it is not decided here: of the results that a server
keeps, the newest that fits, unless others are named.
"""

from __future__ import annotations

from durability.acceptance import criteria_of_cuts, criteria_of_results  # noqa: F401  # they register kinds
from durability.acceptance.kinds import KINDS, CriterionKind, limit_text

__all__ = ["KINDS", "CriterionKind", "limit_text"]
