"""The judge puts identity, cut, risk, loss window and verdict together, and refuses another run's target."""

from __future__ import annotations

import dataclasses

import pytest

from durability.evidence.at_risk import AtRisk
from durability.evidence.judge import Attestation, Found, judge
from durability.evidence.outcome import Outcome, Requirements
from durability.evidence.scan_report import Example, ScanReport
from durability.formats.case import Case
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from tests.core.evidence.memory_target import Disk, MakePlan, after_power_loss, codes, make_case, scan, small
from tests.sample_facts import drive, facts

ACKED = 2000


@pytest.fixture(name="plan", scope="module")
def fixture_plan(make_plan: MakePlan) -> Plan:
    """A small plan."""
    return small(make_plan)


def scanned(plan: Plan, *, lost: int = 0) -> tuple[ScanReport, list[Example]]:
    """The scan of a target after 2000 operations, without the newest `lost` that were acknowledged."""
    disk = Disk(plan)
    disk.write_to(0, ACKED)
    for seq in range(ACKED - lost + 1, ACKED + 1):
        slot = disk.slot_of(0, seq)
        disk.put(0, slot, disk.record(0, slot, disk.newest(0, slot, ACKED - lost)))
    found = scan(disk, (ACKED,))
    return found.report(), found.examples()


def outcome(
    plan: Plan,
    case: Case | None,
    *,
    lost: int = 0,
    now: Facts | None = None,
    superblocks: tuple[Plan | None, ...] | None = None,
    attestation: Attestation | None = None,
    requirements: Requirements | None = None,
) -> Outcome:
    """What the judge says of it, after a power loss unless `now` says otherwise."""
    report, examples = scanned(plan, lost=lost)
    return judge(
        plan=plan,
        case=case,
        found=Found(
            facts=now or after_power_loss(),
            superblocks=(plan, plan) if superblocks is None else superblocks,
        ),
        report=report,
        examples=examples,
        attestation=attestation or Attestation(),
        requirements=requirements or Requirements(),
        duration_s=1.0,
    )


@pytest.mark.slow
def test_everything_that_the_verdict_rests_on_is_in_the_outcome(plan: Plan) -> None:
    """Identity, cut, risk and window are those of the verdict, and what was handed in is passed on."""
    case = make_case(plan, (ACKED,))
    judged = outcome(plan, case, lost=3)
    assert judged.identity.by == "superblock"
    assert judged.cut.cut_class == "power"
    assert judged.at_risk.ms1000 == plan.slots - plan.credit
    assert judged.window is not None and judged.window.operations == 3
    assert (judged.verdict.word, codes(judged.verdict)) == ("loss", ["findings"])
    assert (judged.plan, judged.case, judged.facts) == (plan, case, after_power_loss())
    assert (len(judged.examples), judged.duration_s) == (3, 1.0)
    assert outcome(plan, case).verdict.word == "durable"


@pytest.mark.slow
def test_without_a_log_plan_and_target_alone_are_judged(plan: Plan) -> None:
    """Nothing is known of cut and load, and the operator's word is kept though nothing bears it out."""
    attested = Attestation(text="pulled the plug", cut_class="power")
    judged = outcome(plan, None, attestation=attested)
    assert (judged.verdict.word, codes(judged.verdict)[0]) == ("inconclusive", "no-server-log")
    assert (judged.cut.cut_class, judged.cut.attested) == ("none", "pulled the plug")
    unknown = "without a log it is unknown when records were acknowledged"
    assert judged.at_risk == AtRisk(ms1=0, ms10=0, ms100=0, ms1000=0, stalled=(), unknown=unknown)
    assert judged.window is None
    assert (judged.armed, judged.statistics) == (after_power_loss(), None)
    assert outcome(plan, None, lost=3).verdict.word == "loss"


@pytest.mark.slow
def test_without_a_log_another_runs_superblock_may_be_the_later_one(plan: Plan) -> None:
    """Nothing says which of two runs is older, so nothing that is gone convicts, and no plan is preferred."""
    other = dataclasses.replace(plan, run=7)
    for superblocks in ((plan, other), (other, plan)):
        judged = outcome(plan, None, lost=3, superblocks=superblocks)
        assert judged.verdict.word == "inconclusive"
        assert judged.identity.superseded_by == f"{7:016x}"
        assert codes(judged.verdict)[:2] == ["no-server-log", "superseded"]
    assert outcome(plan, None, lost=3, superblocks=(plan, None)).verdict.word == "loss"


@pytest.mark.slow
def test_what_the_operator_says_and_asks_is_weighed(plan: Plan) -> None:
    """An attestation raises the class as far as the facts allow; a lesser requirement lowers the bar."""
    case = make_case(plan, (ACKED,))
    reset = facts(boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=None),))
    assert codes(outcome(plan, case, now=reset).verdict) == ["cut-class"]
    assert outcome(plan, case, now=reset, requirements=Requirements(cut="os")).verdict.word == "durable"
    word = Attestation(text="pulled the plug")
    assert outcome(plan, case, now=reset, attestation=word).verdict.word == "durable"
    guest = Attestation(text="forced it off", cut_class="vm")
    assert outcome(plan, case, now=reset, attestation=guest).cut.cut_class == "vm"
    many = outcome(plan, case, requirements=Requirements(min_cuts=2))
    assert codes(many.verdict) == ["too-few-cuts"]


@pytest.mark.slow
def test_another_target_is_refused(plan: Plan) -> None:
    """Findings on it would mean nothing."""
    with pytest.raises(AssertionError, match="UUID another, expected uuid-1"):
        outcome(plan, make_case(plan, (ACKED,)), now=facts(uuid="another"), superblocks=(None, None))


def test_run_on_the_target_is_the_one_of_its_superblocks(plan: Plan) -> None:
    """The first copy that can be read says it; 0 where none does."""
    later = dataclasses.replace(plan, run=77)
    assert Found(facts=facts(), superblocks=(None, later)).run == 77
    assert Found(facts=facts(), superblocks=(plan, later)).run == plan.run
    assert Found(facts=facts(), superblocks=(None, None)).run == 0
    assert Found(facts=facts(), superblocks=()).run == 0
