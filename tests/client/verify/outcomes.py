"""Judged scans, for the tests of what is printed of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from durability.evidence.at_risk import at_risk, loss_window
from durability.evidence.cut import assess
from durability.evidence.identity import identify
from durability.evidence.judgement import Judgement
from durability.evidence.scan_report import Example, Report, empty_report
from durability.evidence.verdict import decide
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability_client.verify.outcome import Outcome
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


def _intact(plan: Plan, acked: tuple[int, ...]) -> Report:
    """What a scan says of a target with nothing amiss."""
    return replace(
        empty_report(plan), finished=True, checked=64, in_flight=8, testified=acked, newest_seen=acked
    )


def judged(
    make_plan: MakePlan,
    *,
    now: Facts | None = None,
    plan: dict[str, Any] | None = None,
    case: dict[str, Any] | None = None,
    **found: Any,
) -> Outcome:
    """A scan of an intact target after a power loss, judged; `found` are fields of its report that differ."""
    chosen = small(make_plan, **(plan or {}))
    acked = (100,) * chosen.writers
    known, here = make_case(chosen, acked, **(case or {})), now or after_power_loss()
    report = replace(_intact(chosen, acked), **found)
    cut = assess(known, here, attested=None, cut_class=None)
    risk = at_risk(known, chosen, newest_seen=report.newest_seen)
    verdict = decide(
        case=known,
        identity=identify(known, here, (chosen, chosen)),
        cut=cut,
        scan=report,
        at_risk=risk,
        require_cut="os",
        min_cuts=1,
    )
    return Outcome(
        plan=chosen,
        case=known,
        facts=here,
        report=report,
        cut=cut,
        at_risk=risk,
        window=loss_window(known, testified=report.testified, oldest_lost=report.oldest_lost),
        verdict=verdict,
        examples=[example_of(chosen)] if report.findings else [],
        duration_s=1.25,
    )
