"""The judge: compares the scan of a target with the server's log of the run.

Only this module combines identity, cut, records at risk, loss window and verdict. So `verify`, the lab and
the tests cannot reach different conclusions. It reads nothing from the target: the scan results are
arguments. It must not be given another target than the run's; the caller rules that out with `identify`
before the scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from durability import limits
from durability.evidence.at_risk import AtRisk, at_risk, loss_window
from durability.evidence.cut import Cut, CutClass, assess, at_least, outlived
from durability.evidence.identity import identify, identify_without_log
from durability.evidence.judgement import Judgement
from durability.evidence.looks import drive_answered, found_alive
from durability.evidence.observation import SUPERBLOCK_WRITER
from durability.evidence.outcome import Outcome, Requirements
from durability.evidence.scan_report import Example, ScanReport
from durability.evidence.verdict import decide
from durability.formats.case import Case
from durability.formats.facts import Facts
from durability.formats.plan import MAIN, Plan
from durability.formats.record import superblocks_within


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The target as it was found."""

    facts: Facts  # facts from the system
    superblocks: tuple[Plan | None, ...]  # the plans in its superblocks, None for a copy that holds no plan

    @property
    def run(self) -> int:
        """The run that a superblock names; 0 if no superblock names one."""
        return next((plan.run for plan in self.superblocks if plan is not None), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """The operator's statement about the cut."""

    text: str | None = None  # None if there is no statement
    cut_class: CutClass | None = None  # None: power, or vm if a guest died or its drives are elsewhere


def judge(
    *,
    plan: Plan,
    case: Case | None,
    found: Found,
    report: ScanReport,
    examples: Sequence[Example],
    attestation: Attestation,
    requirements: Requirements,
    duration_s: float,
) -> Outcome:
    """The outcome of a scan of a run's target. `case` None: there is no server log, and `plan` comes from a
    superblock. `found` must be the target of `case`. `report`, `examples`: the results of the scan.
    `duration_s`: duration of the verify, for the document."""
    among = _runs_among(plan, report, examples)
    if case is None:
        identity = identify_without_log(plan, found.facts, found.superblocks, among)
        cut = Cut(cut_class="none", proof=(), attested=attestation.text, contradictions=())
        unknown = "without a log it is unknown when records were acknowledged"
        risk = AtRisk(ms1=0, ms10=0, ms100=0, ms1000=0, stalled=(), unknown=unknown)
        window = None
    else:
        case = _as_it_ended(case, found.facts)
        identity = identify(case, found.facts, found.superblocks, among)
        cut = assess(case, found.facts, attested=attestation.text, cut_class=attestation.cut_class)
        risk = at_risk(case, plan, may_be_done=report.may_be_done)
        window = loss_window(case, proven=report.proven, oldest_lost=report.oldest_lost)
    beside = plan.contract.needs_file  # otherwise everything except the control arm is in the main file
    verdict = decide(
        case=case,
        identity=identity if beside else replace(identity, moved=""),
        cut=cut,
        scan=report,
        at_risk=risk,
        require_cut=requirements.cut,
        min_cuts=requirements.min_cuts,
    )
    return Outcome(
        plan=plan,
        case=case,
        facts=found.facts,
        identity=identity,
        report=report,
        cut=cut,
        at_risk=risk,
        window=window,
        verdict=verdict,
        examples=examples,
        duration_s=duration_s,
        requirements=requirements,
    )


def _as_it_ended(case: Case, now: Facts) -> Case:
    """The case with the session end that later evidence shows. A system that was alive after its client fell
    silent was not cut. A drive that answered later in the same boot had power."""
    if outlived(case, now) or (case.session_end == "silence" and found_alive(case)):
        case = replace(case, session_end="rst" if case.target_error is None else "target-error")
    if case.target_error is not None and drive_answered(case):
        case = replace(case, target_error=replace(case.target_error, drive="answered"))
    return case


def _runs_among(plan: Plan, report: ScanReport, examples: Iterable[Example]) -> frozenset[int]:
    """The other runs whose superblocks lie where something is wrong. The result is empty if anything is wrong
    elsewhere, except this run's superblocks, because a run overwrites nothing before it has synced its own
    superblocks. Superblocks cover so few slots that all of these slots are examples."""
    wrong = [one for one in examples if one.is_finding]
    if len(wrong) != sum(report.findings.values()):
        return frozenset()
    in_main = [one for one in wrong if one.judgement.suffix == MAIN]
    found = {each for one in in_main for each in superblocks_within(one.data, one.judgement.offset)}
    others = {(run, offset) for run, offset in found if run != plan.run}
    if len(in_main) < len(wrong) or not all(_may_be_under(one.judgement, others) for one in wrong):
        return frozenset()
    return frozenset(run for run, _ in others)


def _may_be_under(judgement: Judgement, superblocks: Iterable[tuple[int, int]]) -> bool:
    """Whether a slot overlaps one of `superblocks`, each a run and an offset. Also true for a superblock of
    this run, because the other run writes over it too, perhaps while it was cut."""
    if judgement.writer == SUPERBLOCK_WRITER:
        return True
    end = judgement.offset + judgement.record_bytes
    return any(
        offset < end and judgement.offset < offset + limits.SUPERBLOCK_BYTES for _, offset in superblocks
    )


def attestation_would_do(outcome: Outcome, cut_class: CutClass | None) -> bool:
    """Whether an operator's statement with this class would show the cut that `outcome` requires. `outcome`
    must have a log."""
    assert outcome.case is not None
    cut = assess(outcome.case, outcome.facts, attested="cut", cut_class=cut_class)
    return at_least(cut.cut_class, outcome.requirements.cut)
