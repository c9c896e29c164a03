"""What a verify came to: the verdict with everything that it rests on, for the page, the document and the
report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from durability.evidence import document as result
from durability.evidence.at_risk import AtRisk, LossWindow
from durability.evidence.cut import Cut
from durability.evidence.scan_report import Example, Report
from durability.evidence.verdict import Verdict
from durability.formats.case import Case
from durability.formats.facts import Facts
from durability.formats.packing import Value
from durability.formats.plan import Plan
from durability.formats.run_statistics import Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything that a verdict rests on, and the verdict. `case` None: there is no server's log."""

    plan: Plan
    case: Case | None
    facts: Facts
    report: Report
    cut: Cut
    at_risk: AtRisk
    window: LossWindow | None
    verdict: Verdict
    examples: Sequence[Example]
    duration_s: float

    @property
    def armed(self) -> Facts:
        """The target at arming, which the verdict is on; as it was found where there is no log of it."""
        return self.case.armed if self.case is not None and self.case.armed is not None else self.facts

    @property
    def statistics(self) -> Statistics | None:
        """The newest statistics that the server received."""
        return self.case.statistics if self.case is not None else None

    def document(self) -> dict[str, Value]:
        """The outcome as `verify --json` prints it and the server keeps it."""
        case = self.case
        return result.document(
            plan=self.plan,
            facts=self.armed,
            statistics=self.statistics,
            acked=case.frontiers if case is not None else (),
            control_completed=case.control if case is not None else 0,
            verdict=self.verdict,
            cut=self.cut,
            scan=self.report,
            at_risk=self.at_risk,
            window=self.window,
            examples=[one.judgement for one in self.examples if one.is_finding],
            duration_s=self.duration_s,
        )
