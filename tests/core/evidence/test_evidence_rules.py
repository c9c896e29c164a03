"""One test for each rule of docs/explanation/evidence.md: what the rule does, and the wrong verdict that its
absence gives.

A false loss fails an honest drive; a false pass clears one that lies. Rules about acting (1, 3, 5, 10) are
shown here by their consequence; that client and server keep them is tested beside these.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from durability.evidence.at_risk import cut_interval_ns
from durability.evidence.identity import identify
from durability.evidence.outcome import subject
from durability.evidence.slot_oracle import SlotOracle
from durability.evidence.strength import strength, upper_bound
from durability.evidence.verdict import VerdictWord
from durability.formats.case import Case, DriveState, PastVerdict, PowerOff, TargetFailure
from durability.formats.plan import Plan
from durability.protocol.frontiers import Frontiers
from tests.core.evidence.memory_target import (
    LAST_NS,
    MS,
    SECTOR,
    Disk,
    MakePlan,
    apart,
    codes,
    judged,
    make_case,
    make_statistics,
    scan,
    small,
    words,
)
from tests.sample_facts import drive, facts

ACKED = 2000


@pytest.fixture(name="plan", scope="module")
def fixture_plan(make_plan: MakePlan) -> Plan:
    """64 slots of two sectors, one writer."""
    return small(make_plan)


@pytest.fixture(name="disk")
def fixture_disk(plan: Plan) -> Disk:
    """What an honest drive holds after 2000 acknowledged operations."""
    disk = Disk(plan)
    disk.write_to(0, ACKED)
    return disk


def idle_slot(plan: Plan, acked: int = ACKED) -> int:
    """A slot without a write in flight."""
    busy = SlotOracle(plan, (acked,)).in_flight_slots(0).tolist()
    return next(slot for slot in range(plan.slots) if slot not in busy)


def word(case: Case, plan: Plan, disk: Disk) -> str:
    """The verdict after a power loss."""
    return judged(case, plan, scan(disk, case.frontiers)).verdict.word


@pytest.mark.slow
def test_rule_1_acknowledge_only_after_success(plan: Plan, disk: Disk) -> None:
    """False loss without it: a write that failed with EIO and was acknowledged is missing on any drive."""
    acknowledged_in_spite_of_an_error = ACKED + 1
    case = make_case(plan, (acknowledged_in_spite_of_an_error,))
    assert word(case, plan, disk) == "loss"
    assert word(make_case(plan, (ACKED,)), plan, disk) == "durable"


@pytest.mark.slow
def test_rule_2_acknowledgements_are_cumulative(plan: Plan, disk: Disk) -> None:
    """False pass without it: if an acknowledgement per record is lost on the way, that record is not
    checked."""
    heard = Frontiers(plan)
    merged = Frontiers(plan)
    for frontiers in (heard, merged):
        frontiers.granted((ACKED,))
    for seq in range(1, ACKED + 1):
        heard.advance((seq,))
    merged.advance((ACKED,))
    assert merged.acked == heard.acked
    slot = disk.slot_of(0, ACKED - 5)
    disk.put(0, slot, disk.record(0, slot, 0))
    assert scan(disk, merged.acked).findings == {"lost": 1}


@pytest.mark.slow
def test_rule_3_one_process_writes_a_run(plan: Plan, disk: Disk) -> None:
    """False pass without it: a second process that writes on after the cut heals what the drive has lost."""
    for seq in range(ACKED - 10, ACKED + 1):
        slot = disk.slot_of(0, seq)
        disk.put(0, slot, disk.record(0, slot, disk.newest(0, slot, seq - 1)))
    assert scan(disk, (ACKED,)).findings == {"lost": 11}
    disk.write(0, *range(ACKED - 10, ACKED + 1))
    assert scan(disk, (ACKED,)).wrong == []


@pytest.mark.slow
def test_rule_4_credit_bounds_what_is_in_flight(plan: Plan, disk: Disk) -> None:
    """False pass without it: if any slot may be in flight, damage is excused anywhere."""
    slot = idle_slot(plan)
    disk.put(0, slot, b"\xa5" * SECTOR)
    assert scan(disk, (ACKED,)).findings == {"corrupt": 1}
    assert scan(disk, None).wrong == []  # no log, no bound
    disk.write(0, *range(ACKED + 1, ACKED + 20))  # the log has forgotten acknowledgements
    found = scan(disk, (ACKED,))
    verdict = judged(make_case(plan, (ACKED,)), plan, found).verdict
    assert (verdict.word, codes(verdict)[0]) == ("inconclusive", "log-behind")


@pytest.mark.slow
def test_rule_5_nothing_is_judged_before_arming(plan: Plan, disk: Disk) -> None:
    """False loss without it: a cut during the prefill leaves slots that never held anything."""
    for slot in range(20, plan.slots):
        disk.put(0, slot, bytes(plan.record_bytes))
    found = scan(disk, (0,))
    assert found.wrong
    verdict = judged(make_case(plan, (0,), armed=None), plan, found).verdict
    assert (verdict.word, codes(verdict)[0]) == ("inconclusive", "not-armed")
    off = PowerOff(asked_ns=1, confirmed_ns=2, boot_id="b", subject="machine", cut_class="power", text="off")
    by_campaign = judged(make_case(plan, (0,), armed=None, power_offs=(off,)), plan, found).verdict
    assert codes(by_campaign) == codes(verdict) and "attestation-contradicted" not in codes(verdict)


@pytest.mark.slow
def test_rule_6_the_disk_testifies(plan: Plan, disk: Disk) -> None:
    """False pass without it: what the drive acknowledged after the last received ack could be lost unseen."""
    disk.write(0, ACKED + 1, ACKED + 3)  # the write between them was synced before the last, and is not here
    (judgement,) = scan(disk, (ACKED,)).wrong
    assert (judgement.finding, judgement.order_violation) == ("lost", True)
    assert judgement.expected_seq == ACKED + 2


@pytest.mark.slow
def test_rule_7_legal_content_is_a_set(plan: Plan, disk: Disk) -> None:
    """False loss without it: an honest drive may tear, drop or garble what it has not acknowledged."""
    slot = disk.slot_of(0, ACKED + 1)
    disk.put(0, slot, disk.record(0, slot, ACKED + 1)[:SECTOR])
    assert scan(disk, (ACKED,)).wrong == []
    disk.put(0, slot, b"\xa5" * SECTOR)
    found = scan(disk, (ACKED,))
    assert (found.wrong, found.in_flight_damaged) == ([], 1)
    disk.put(0, idle_slot(plan), b"\xa5" * SECTOR)  # and a slot without a write in flight has no excuse
    assert scan(disk, (ACKED,)).findings == {"corrupt": 1}
    disk.put(0, disk.slot_of(0, ACKED + 2), b"\xa5" * SECTOR)  # nor has one that the writer had not reached
    assert scan(disk, (ACKED,)).findings == {"corrupt": 2}
    hidden = scan(disk, (ACKED,), {(0, slot): {0, 1}})  # but what cannot be read may show that it had
    assert (hidden.findings, hidden.in_flight_damaged) == ({"corrupt": 1, "unreadable": 1}, 1)


@pytest.mark.slow
def test_rule_8_every_acknowledged_slot_is_checked(plan: Plan, disk: Disk) -> None:
    """False pass without it: a mapping table that forgets loses old records as well as new ones."""
    assert scan(disk, (ACKED,)).checked == plan.slots
    oldest = ACKED - plan.slots + 1
    while disk.newest(0, disk.slot_of(0, oldest), ACKED + plan.credit) != oldest:
        oldest += 1
    slot = disk.slot_of(0, oldest)
    disk.put(0, slot, disk.record(0, slot, disk.newest(0, slot, oldest - 1)))
    (judgement,) = scan(disk, (ACKED,)).wrong
    assert (judgement.finding, judgement.expected_seq) == ("lost", oldest)
    unstable = dataclasses.replace(scan(disk, (ACKED,)), judgements=[], unstable=1)
    assert codes(judged(make_case(plan, (ACKED,)), plan, unstable).verdict) == ["unstable"]


@pytest.mark.slow
def test_rule_9_identity_before_loss(plan: Plan, disk: Disk) -> None:
    """False loss without it: the wrong disk, or one used again since, holds none of this run's records."""
    case = make_case(plan, (ACKED,))
    assert identify(case, facts(uuid="another"), (None, None)).by is None
    assert identify(case, facts(), (None, None)).by == "hardware"  # the right disk: what is gone is lost
    reused = Disk(dataclasses.replace(plan, run=77))
    verdict = judged(case, plan, scan(reused, (ACKED,)), superblock=reused.plan).verdict
    assert (verdict.word, codes(verdict)) == ("inconclusive", ["superseded"])
    old = Disk(plan)
    old.write_to(0, ACKED - 20)
    for other in ({"serial": "S2"}, {"model": "Other"}, {"serial": ""}):  # the second: both in one dock
        on_mirror: dict[str, Any] = {"offset_bytes": None, "volume": "md-a"}
        mirror = facts(drives=(drive(), drive(name="sdb", **other)), **on_mirror)
        half = facts(boot="boot-2", uptime_s=30, drives=mirror.drives[:1], **on_mirror)
        verdict = judged(make_case(plan, (ACKED,), armed=mirror), plan, scan(old, (ACKED,)), now=half).verdict
        assert (verdict.word, codes(verdict)[0]) == ("inconclusive", "drive-missing")
    loss = PastVerdict(run=case.run, verdict="loss", cut_class="power", at_risk_ms1000=1, wall="")
    assert word(make_case(plan, (ACKED,), verdicts=(loss,)), plan, disk) == "loss"


@pytest.mark.slow
def test_rule_10_an_unfinished_scan_is_no_verdict(plan: Plan, disk: Disk) -> None:
    """False pass without it: half a scan has seen no loss; false loss if a hanging read counted as one."""
    found = dataclasses.replace(scan(disk, (ACKED,)), finished=False, failure="a read hung for 120 s")
    verdict = judged(make_case(plan, (ACKED,)), plan, found).verdict
    assert (verdict.word, codes(verdict)) == ("inconclusive", ["scan-unfinished"])


@pytest.mark.slow
def test_rule_11_a_cut_must_be_shown(plan: Plan, disk: Disk) -> None:
    """False pass without it: a drive that lies keeps all data as long as its power is not cut."""
    case = make_case(plan, (ACKED,))
    found = scan(disk, (ACKED,))
    assert codes(judged(case, plan, found, now=facts()).verdict) == ["cut-not-shown"]
    contradicted = judged(case, plan, found, now=facts(), attested="pulled the plug").verdict
    assert codes(contradicted) == ["attestation-contradicted", "cut-not-shown"]
    reset = facts(boot="boot-2", uptime_s=30)
    assert codes(judged(case, plan, found, now=reset).verdict) == ["cut-class"]
    bare = (drive(unsafe_shutdowns=None),)
    slot = PowerOff(
        asked_ns=LAST_NS,
        confirmed_ns=LAST_NS + MS,
        boot_id="server-boot",
        subject="drive",
        cut_class="power",
        text="off",
    )
    switched = make_case(plan, (ACKED,), armed=facts(drives=bare), power_offs=(slot,))
    crashed = judged(switched, plan, found, now=facts(boot="boot-2", uptime_s=30, drives=bare)).verdict
    assert codes(crashed) == ["attestation-contradicted", "cut-class"]
    assert judged(case, plan, found).verdict.word == "durable"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["fin", "rst", "stop", "client-error"])
def test_rule_12_the_cut_must_meet_load(plan: Plan, disk: Disk, end: str) -> None:
    """False pass without it: a client that died before the cut gave the drive time to drain its cache."""
    found = scan(disk, (ACKED,))
    case = make_case(plan, (ACKED,), session_end=end)
    assert judged(case, plan, found, attested="pulled the plug").verdict.word == "inconclusive"
    states: tuple[tuple[DriveState, VerdictWord], ...] = (("dead", "durable"), ("answered", "inconclusive"))
    for seen, word in states:
        error = TargetFailure(at_ns=LAST_NS, drive=seen, text="")
        failed = make_case(plan, (ACKED,), session_end="target-error", target_error=error)
        assert judged(failed, plan, found, attested="pulled the plug").verdict.word == word
    disk.write(0, *range(ACKED + 1, ACKED + plan.credit + 1))  # all credit used: the writer waited
    waited = judged(make_case(plan, (ACKED,)), plan, scan(disk, (ACKED,)))
    assert codes(waited.verdict) == ["nothing-at-risk"]


@pytest.mark.slow
def test_rule_13_records_must_be_at_risk(plan: Plan, disk: Disk) -> None:
    """False pass without it: two seconds before the cut, idle or hung, are enough for most caches."""
    idle = make_case(plan, (ACKED,), last_receipt_ns=LAST_NS + 2000 * MS)
    found = scan(disk, (ACKED,))
    assert codes(judged(idle, plan, found).verdict) == ["nothing-at-risk"]
    error = TargetFailure(at_ns=LAST_NS + 2000 * MS, drive="dead", text="")
    hung = make_case(plan, (ACKED,), session_end="target-error", target_error=error)
    assert codes(judged(hung, plan, found).verdict) == ["nothing-at-risk"]
    risk = judged(make_case(plan, (ACKED,)), plan, found).at_risk
    assert 0 < risk.ms1 <= risk.ms10 <= risk.ms100 <= risk.ms1000 == plan.slots - plan.credit


@pytest.mark.slow
def test_rule_14_the_cut_is_an_interval(plan: Plan, disk: Disk) -> None:
    """Without it a loss window of 1 ms would be printed that the heartbeat cannot resolve."""
    case = make_case(plan, (ACKED,))
    interval = cut_interval_ns(case)
    assert interval is not None
    earliest, latest = interval
    assert latest is not None and earliest < LAST_NS < latest
    slot = disk.slot_of(0, ACKED - 99)
    disk.put(0, slot, disk.record(0, slot, disk.newest(0, slot, ACKED - 100)))
    window = judged(case, plan, scan(disk, (ACKED,))).window
    assert window is not None and window.ms_max is not None
    assert window.ms_max - window.ms_min >= (latest - earliest) / MS
    assert window.operations == 100


@pytest.mark.slow
def test_rule_15_the_control_arm_is_no_evidence_of_loss(make_plan: MakePlan) -> None:
    """False loss without it: writes that were never synced may go, and prove nothing of those that were."""
    plan = small(make_plan, control_slots=4)
    disk = Disk(plan)
    disk.write_to(0, ACKED)
    disk.write(plan.control_writer, 1)
    found = scan(disk, (ACKED,))
    found.control_lost = found.oracle.screen_control(0, words(bytes(disk.files[".control"])), 3)
    assert found.control_lost == 2
    assert judged(make_case(plan, (ACKED,), control=3), plan, found).verdict.word == "durable"
    disk.put(0, idle_slot(plan), disk.record(plan.control_writer, 1, 2)[:SECTOR])
    assert scan(disk, (ACKED,)).oracle.proven == (ACKED,)  # its sectors do not testify


def test_rule_16_strength_is_counted_honestly(plan: Plan) -> None:
    """False confidence without it: one cut proves little, and an unverified cut may hide a loss."""
    kept = PastVerdict(run="1", verdict="durable", cut_class="power", at_risk_ms1000=5, wall="")
    thirty = make_case(plan, (ACKED,), series=apart(*(kept,) * 29))
    assert strength(thirty, cut_class="power", verdict="durable", at_risk_ms1000=5).bound == pytest.approx(
        upper_bound(0, 30)
    )
    hidden = dataclasses.replace(kept, verdict="unverified")
    together = make_case(plan, (ACKED,), series=(dataclasses.replace(kept, enumerations=("a",)),) * 29)
    assert strength(together, cut_class="power", verdict="durable", at_risk_ms1000=5).cuts == 2
    holed = make_case(plan, (ACKED,), series=apart(*(kept,) * 28, hidden))
    assert strength(holed, cut_class="power", verdict="durable", at_risk_ms1000=5).bound is None


def test_rule_17_the_verdict_is_on_the_stack(plan: Plan) -> None:
    """False blame without it: file system, options and layers below it lose data as well as drives do."""
    stack = facts(layers=("md0", "sda", "sdb"), drives=(drive(), drive(name="sdb", serial="S2")))
    named = subject(plan, stack, make_statistics(operations=(ACKED,), flushes={"sda": 0, "sdb": 2001}))
    assert named["layers"] == ["md0", "sda", "sdb"]
    assert "no flush was sent" in str(named["drives"])
