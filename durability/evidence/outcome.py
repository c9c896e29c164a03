"""The outcome of a verify and its document for `verify --json`: schema `durability.verify/1`, keys in the
order of docs/reference/cli.md.

Only this module makes the document. So the document that is printed, stored on the server and put into a
report is the same. It decides nothing and adds nothing that the verdict does not depend on:
`durability.evidence.judge` decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import cast, get_args

from durability.evidence.at_risk import AtRisk, LossWindow
from durability.evidence.cut import Cut, CutClass
from durability.evidence.flushes import LeafFlushes, leaf_flushes
from durability.evidence.identity import Identity
from durability.evidence.judgement import FindingClass, Judgement
from durability.evidence.scan_report import Example, ScanReport
from durability.evidence.verdict import Verdict
from durability.formats.case import Case
from durability.formats.facts import Facts
from durability.formats.packing import Value
from durability.formats.plan import Plan
from durability.formats.run_statistics import Statistics

VERIFY_SCHEMA = "durability.verify/1"
NO_FLUSH = "no-flush"  # code of the warning that syncs were acknowledged but a drive received no flush
EXAMPLES_MAX = 16  # examples in the document; the server stores more of them, with their bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a verdict of durable requires."""

    cut: CutClass = "power"  # weakest class of cut
    min_cuts: int = 1  # verified cuts of the series


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A verdict and everything that it depends on."""

    plan: Plan
    case: Case | None  # None: there is no server log
    facts: Facts  # the target as found
    identity: Identity
    report: ScanReport
    cut: Cut
    at_risk: AtRisk
    window: LossWindow | None
    verdict: Verdict
    examples: Sequence[Example]  # a few of the slots that were wrong or damaged, with their bytes
    duration_s: float  # duration of the verify
    requirements: Requirements = Requirements()  # the question that the verdict answers

    @property
    def armed(self) -> Facts:
        """The target at arming, which the verdict is about; the target as found if there is no log of the
        arming."""
        return self.case.armed if self.case is not None and self.case.armed is not None else self.facts

    @property
    def findings(self) -> list[Judgement]:
        """The wrong slots in `examples`, with the classes taking turns, so that many findings of one class do
        not hide another class."""
        found = [one.judgement for one in self.examples if one.is_finding]
        seen: Counter[str | None] = Counter()
        turns: list[int] = []
        for judgement in found:
            turns.append(seen[judgement.finding])
            seen[judgement.finding] += 1
        return [found[number] for number in sorted(range(len(found)), key=turns.__getitem__)]

    @property
    def control_completed(self) -> int:
        """Number of writes of the control arm for which the target must have been searched."""
        return 0 if self.case is None or self.identity.moved else self.case.control

    @property
    def statistics(self) -> Statistics | None:
        """The newest statistics that the server received."""
        return self.case.statistics if self.case is not None else None

    def document(self) -> dict[str, Value]:
        """The outcome as plain values, as `verify --json` prints it and the server stores it."""
        case, report, verdict = self.case, self.report, self.verdict
        return {
            "schema": VERIFY_SCHEMA,
            "run": f"{self.plan.run:016x}",
            "verdict": verdict.word,
            "reasons": [{"code": reason.code, "text": reason.text} for reason in verdict.reasons],
            "subject": subject(self.plan, self.armed, self.statistics),
            "cut": {
                "class": self.cut.cut_class,
                "proof": list(self.cut.proof),
                "attested": self.cut.attested,
            },
            "acked": sum(case.frontiers) if case is not None else 0,
            "checked": report.checked,
            "at_risk": _named(self.at_risk, "ms1 ms10 ms100 ms1000"),
            "in_flight": report.in_flight,
            "in_flight_damaged": report.in_flight_damaged,
            "findings": {name: report.findings.get(name, 0) for name in get_args(FindingClass)},
            "order_violations": report.order_violations,
            "collateral": report.collateral,
            "unstable": report.unstable,
            "loss_window": _window(self.window),
            "control": {"completed": self.control_completed, "lost": report.control_lost},
            "strength": _named(verdict.strength, "cuts losses bound"),
            "examples": [example(judgement) for judgement in self.findings[:EXAMPLES_MAX]],
            "duration_s": round(self.duration_s, 3),
            "lost": {"operations": report.operations_lost, "prefill": report.prefill_lost},
            "requirements": _named(self.requirements, "cut min_cuts"),
        }


def subject(plan: Plan, facts: Facts, statistics: Statistics | None) -> dict[str, Value]:
    """The subject of the verdict (rule 17): the whole stack, from the operations down to the drives."""
    file_system = facts.file_system
    leaves = leaf_flushes(plan, facts, statistics)
    warnings = [{"code": one.code, "text": one.text} for one in facts.warnings]
    warnings += [
        {"code": NO_FLUSH, "text": f"{leaf.drive.name}: {leaf.note}"} for leaf in leaves if leaf.none_sent
    ]
    return {
        "path": facts.path,
        "kind": plan.target_kind,
        **_named(plan, "workload pattern sync direct group writers record_bytes slots"),
        "file_system": cast("Value", asdict(file_system)) if file_system else None,
        "layers": list(facts.layers),
        "drives": [_drive(leaf) for leaf in leaves],
        "kernel": facts.host.kernel,
        "virtualisation": facts.host.virtualisation,
        "warnings": warnings,
        "syncs": statistics.syncs(plan.group) if statistics else None,
        "commit_us": _commit_us(statistics) if statistics else None,
    }


def _named(source: object, names: str) -> dict[str, Value]:
    """The fields with these names, in this order."""
    return {name: getattr(source, name) for name in names.split()}


def _drive(leaf: LeafFlushes) -> dict[str, Value]:
    per_sync = leaf.per_sync
    return {
        **_named(leaf.drive, "name model serial firmware size_bytes write_cache fua rotational"),
        "atomic_write_bytes": leaf.drive.atomic_write_bytes,
        "flushes": leaf.flushes,
        "flushes_per_sync": None if per_sync is None else round(per_sync, 4),
        "fua_writes": None,  # Linux does not count them
        "flush_note": leaf.note,
    }


def _commit_us(statistics: Statistics) -> dict[str, Value]:
    latencies = statistics.latencies()
    return {
        "p50": latencies.percentile(50) / 1000,
        "p99": latencies.percentile(99) / 1000,
        "max": latencies.max_value / 1000,
    }


def example(judgement: Judgement) -> dict[str, Value]:
    """One finding, for people and scripts; places as in the plan."""
    return {
        "class": judgement.finding,
        **_named(judgement, "writer slot"),
        "file_suffix": judgement.suffix,
        **_named(judgement, "offset expected_seq found_seq order_violation collateral text"),
    }


def _window(window: LossWindow | None) -> dict[str, Value] | None:
    if window is None:
        return None
    return {
        "ms_min": round(window.ms_min, 3),
        "ms_max": None if window.ms_max is None else round(window.ms_max, 3),
        "operations": window.operations,
    }
