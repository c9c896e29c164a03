"""Judged scans, for the tests of what is printed of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from durability.evidence.cut import CutClass
from durability.evidence.judge import Attestation, Found, judge
from durability.evidence.judgement import Judgement
from durability.evidence.outcome import Outcome, Requirements
from durability.evidence.scan_report import Example, ScanReport, empty_report
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from tests.core.evidence.memory_target import after_power_loss, make_case, small

MakePlan = Callable[..., Plan]


def example_of(plan: Plan) -> Example:
    judgement = Judgement(
        writer=0,
        slot=7,
        suffix="",
        offset=72704,
        record_bytes=plan.record_bytes,
        finding="lost",
        in_flight=False,
        in_flight_damaged=False,
        order_violation=True,
        collateral=False,
        above_ceiling=False,
        expected_seq=98,
        found_seq=34,
        oldest_lost_seq=98,
        text="writer 0 slot 7 (TARGET offset 72704): lost, expected seq 98 or newer, found seq 34",
    )
    return Example(kind="lost", judgement=judgement, data=bytes(plan.record_bytes))


def _intact(plan: Plan, acked: tuple[int, ...]) -> ScanReport:
    """What a scan says of a target with nothing amiss."""
    return replace(
        empty_report(plan), finished=True, checked=64, in_flight=8, proven=acked, newest_seen=acked
    )


def judged(
    make_plan: MakePlan,
    *,
    now: Facts | None = None,
    plan: dict[str, Any] | None = None,
    case: dict[str, Any] | None = None,
    require_cut: CutClass = "os",
    min_cuts: int = 1,
    attested: str | None = None,
    logged: bool = True,
    **found: Any,
) -> Outcome:
    """A scan of an intact target after a power loss, judged; `found` are fields of its report that differ.
    `logged`: whether there is a server's log."""
    chosen = small(make_plan, **(plan or {}))
    acked = (100,) * chosen.writers
    known, here = make_case(chosen, acked, **(case or {})), now or after_power_loss()
    report = replace(_intact(chosen, acked), **found)
    return judge(
        plan=chosen,
        case=known if logged else None,
        found=Found(facts=here, superblocks=(chosen, chosen)),
        report=report,
        examples=[example_of(chosen)] if report.findings else [],
        attestation=Attestation(text=attested),
        requirements=Requirements(cut=require_cut, min_cuts=min_cuts),
        duration_s=1.25,
    )


def partly_set_aside(make_plan: MakePlan) -> Outcome:
    """Four damaged places of a scan that did not finish: a superblock convicts, and an older log may explain
    the three slots."""
    return judged(
        make_plan,
        findings={"corrupt": 4},
        apart={("superblock", "corrupt"): 1, ("prefill", "corrupt"): 2},
        provisional=frozenset({"unreadable", "corrupt"}),
        finished=False,
    )
