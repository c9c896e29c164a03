"""All kinds of criteria. Each kind looks at one aspect of the evidence and answers with a word.

A kind is a function decorated with `@kind`, in the module for its part of the evidence. It answers "pass" or
"refuse" only from evidence that it names. Otherwise it answers "not shown" and says what is missing. If the
evidence has several results or campaigns, the worst one counts. The caller selects the evidence: of the
results on a server, the newest one that fits, unless the user names others.
"""

from __future__ import annotations

from durability.acceptance import criteria_of_cuts, criteria_of_results  # noqa: F401  # they register kinds
from durability.acceptance.kinds import KINDS, CriterionKind, limit_text

__all__ = ["KINDS", "CriterionKind", "limit_text"]
