"""The oracle of names calls legal what an honest file system on an honest drive can leave, nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from durability.evidence.name_oracle import NameOracle
from durability.formats.mixing import U64
from durability.formats.plan import MAIN
from tests.core.evidence.memory_target import SECTOR, Disk, MakePlan, codes, judged, look_up, make_case, scan
from tests.core.evidence.name_disks import WORKLOADS, only, plan_of, written

DAMAGE = b"\xa5" * SECTOR


def test_findings_are_told_in_words(make_plan: MakePlan) -> None:
    """The place, what should be there, and what is."""
    disk = written(plan_of(make_plan, "create"), 60)
    disk.remove(0, 38)
    disk.files[".0.5"] = bytearray(disk.record(0, 5, 6))
    del disk.files[".0.40"][SECTOR:]
    assert [one.text for one in scan(disk, (60,)).wrong] == [
        "name .0.5: resurrected, expected no such name since seq 38, found seq 6",
        "name .0.38: absent, expected seq 39, found no such name",
        "name .0.40: torn, expected seq 41, found seq 41 in 1 sector, the end of the file in 1 sector",
    ]
    disk = written(plan_of(make_plan, "rename"), 60)
    disk.files[".0.9"] = bytearray(disk.record(0, 9, 0))
    disk.files[".0.20"] = bytearray(disk.record(0, 21, 54))
    disk.files[".0.11"].extend(bytes(SECTOR))
    assert [one.text for one in scan(disk, (60,)).wrong] == [
        "name .0.9: stale, expected seq 42 or newer, found the prefill",
        "name .0.11: torn, expected seq 44 or newer, found seq 44 in 2 sectors,"
        " data after the end of the record in 1 sector",
        "name .0.20: misdirected, expected seq 53 or newer,"
        " found seq 54 of writer 0 slot 21, which belongs at offset 0",
    ]


def test_a_renamed_name_is_whole_even_in_flight(make_plan: MakePlan) -> None:
    """Its file was synced before it got the name: absence, half a file and an older one have no excuse."""
    plan = plan_of(make_plan, "rename")
    for seq, content, finding in (
        (61, None, "absent"),
        (61, 0, "torn"),
        (61, SECTOR, "torn"),
        (61, 2 * SECTOR, None),
    ):
        disk = written(plan, 60)
        slot = disk.slot_of(0, seq)
        disk.remove(0, slot)
        if content is not None:
            disk.files[f".0.{slot}"] = bytearray(disk.record(0, slot, seq)[:content])
        found = scan(disk, (60,))
        assert [one.finding for one in found.wrong] == [finding] * (finding is not None)
        assert found.in_flight_damaged == 0


def test_a_mixture_of_two_legal_versions_is_torn(make_plan: MakePlan) -> None:
    """The old and the new file are different files; a name never holds half of each."""
    disk = written(plan_of(make_plan, "rename"), 60)
    slot = disk.slot_of(0, 61)
    disk.put(0, slot, disk.record(0, slot, 61)[:SECTOR])
    assert only(scan(disk, (60,))) == ("torn", slot)


@pytest.mark.parametrize(("workload", "acked"), [("create", 60), ("unlink", 40)])
def test_a_name_that_is_being_made_may_hold_anything(make_plan: MakePlan, workload: str, acked: int) -> None:
    """A name whose operation is in flight may be absent, complete or damaged; damage is counted but is not a
    finding."""
    plan = plan_of(make_plan, workload)
    for content, damaged in ((None, 0), (b"", 1), (DAMAGE, 1), (bytes(3000), 1)):
        disk = written(plan, acked)
        slot = disk.slot_of(0, acked + 1)
        if content is not None:
            disk.files[f".0.{slot}"] = bytearray(content)
        found = scan(disk, (acked,))
        assert (found.wrong, found.in_flight_damaged, found.above_ceiling) == ([], damaged, 0)


def test_a_name_that_is_being_removed_is_whole_or_absent(make_plan: MakePlan) -> None:
    """Taking a name away does not touch what it holds."""
    plan = plan_of(make_plan, "unlink")
    disk = written(plan, 64)
    slot = disk.slot_of(0, 65)
    disk.remove(0, slot)
    assert scan(disk, (64,)).wrong == []
    disk.files[f".0.{slot}"] = bytearray(disk.record(0, slot, 33)[:SECTOR])
    assert only(scan(disk, (64,))) == ("torn", slot)
    disk.files[f".0.{slot}"] = bytearray(disk.record(0, slot, 0))
    assert only(scan(disk, (64,))) == ("stale", slot)


def test_an_unreadable_name_is_a_finding_only_where_it_must_be_readable(make_plan: MakePlan) -> None:
    """An I/O error is `unreadable`, damage in flight, or a name that should not be there at all."""
    plan = plan_of(make_plan, "create")
    disk = written(plan, 61)
    assert only(scan(disk, (60,), {(0, 40): {1}})) == ("unreadable", 40)
    found = scan(disk, (60,), {(0, 60): {0, 1}})
    assert (found.wrong, found.in_flight_damaged) == ([], 1)
    disk.files[".0.3"] = bytearray(plan.record_bytes)
    assert only(scan(disk, (60,), {(0, 3): {0, 1}})) == ("resurrected", 3)


def test_every_name_that_the_rules_ask_for_is_looked_up(make_plan: MakePlan) -> None:
    """The names of `create` from the oldest possible one up to the ceiling are checked, and all listed
    names."""
    plan = plan_of(make_plan, "create")
    none = np.empty(0, dtype=U64)
    assert NameOracle(plan, (60,)).slots_to_check(0, none).tolist() == [*range(28, 68)]
    listed = np.array([99, 3, 40], dtype=U64)
    assert NameOracle(plan, (60,)).slots_to_check(0, listed).tolist() == [3, *range(28, 68), 99]
    assert NameOracle(plan, None).slots_to_check(0, listed).tolist() == [3, 40, 99]
    for workload in ("rename", "unlink"):
        oracle = NameOracle(plan_of(make_plan, workload), (60,))
        assert oracle.slots_to_check(0, none).tolist() == [*range(32)]
        assert oracle.slots_to_check(0, listed).tolist() == [*range(32), 40, 99]


@pytest.mark.parametrize(
    ("workload", "acked"),
    [*((workload, (60,)) for workload in WORKLOADS), ("rename", None), ("unlink", None)],
)
def test_a_name_of_a_larger_earlier_run_must_not_be_there(
    make_plan: MakePlan, workload: str, acked: tuple[int, ...] | None
) -> None:
    """Every name of it was removed before the run was armed, also those whose numbers the run does not use.
    One that holds anything else is not the run's, but of `create` from beyond the ceiling."""
    plan = plan_of(make_plan, workload, pattern="sequential" if workload == "create" else "random")
    earlier = written(plan_of(make_plan, "rename", slots=200, run=plan.run + 1), 0)
    disk = written(plan, 60)
    for slot in (150, 199, (1 << 48) - 1):
        disk.files[f".0.{slot}"] = bytearray(earlier.record(0, slot, 0))
    del disk.files[".0.199"][SECTOR:]
    disk.files[".0.160"] = bytearray(b"mine")
    disk.files[".0.161"] = bytearray(DAMAGE * 2)
    disk.files[".0.162"] = bytearray(disk.record(0, 40, 0))
    found = scan(disk, acked)
    assert [(one.finding, one.slot) for one in found.wrong] == [
        ("resurrected", 150),
        ("resurrected", 199),
        ("resurrected", (1 << 48) - 1),
    ]
    assert {(one.expected_seq, one.oldest_lost_seq, one.order_violation) for one in found.wrong} == {
        (0, None, False)
    }
    assert found.wrong[0].text == (
        f"name .0.150: resurrected, expected no such name{' yet' * (workload == 'create')},"
        f" found data of run {earlier.plan.run:016x}"
    )
    report = found.report()
    assert (report.operations_lost, report.prefill_lost, report.earlier_names_back) == (0, 0, 3)
    assert found.checked == 32 + 6
    assert workload == "create" or found.above_ceiling == 0


def test_only_names_with_an_operation_count_as_checked(make_plan: MakePlan) -> None:
    """A name that was never made and does not exist does not count as checked."""
    assert scan(written(plan_of(make_plan, "create"), 20), (20,)).checked == 20
    assert scan(written(plan_of(make_plan, "create"), 60), (60,)).checked == 32
    assert scan(written(plan_of(make_plan, "unlink"), 60), (60,)).checked == 32


def test_at_risk_are_the_names_whose_loss_would_show(make_plan: MakePlan) -> None:
    """A name that an operation in flight may have touched is not counted, whichever way it would be lost."""
    for workload, acked, counted in (
        ("create", 100, 32 - 8),
        ("rename", 100, 32 - 8),
        ("unlink", 100, 32 - 8),
    ):
        plan = plan_of(make_plan, workload)
        found = scan(written(plan, acked), (acked,))
        risk = judged(make_case(plan, (acked,)), plan, found).at_risk
        assert (risk.ms1000, risk.stalled) == (counted, ())
        assert (risk.ms1, risk.ms10) == (2, 11)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_directory_as_it_must_be_is_durable(make_plan: MakePlan, workload: str) -> None:
    """Names give a verdict as slots do: nothing is missing and nothing is wrong."""
    plan = plan_of(make_plan, workload, slots=64)
    found = scan(written(plan, 150), (150,))
    assert judged(make_case(plan, (150,)), plan, found).verdict.word == "durable"


def test_a_removal_that_came_undone_is_loss(make_plan: MakePlan) -> None:
    """The loss window reaches back to its acknowledgement, at one operation a millisecond."""
    plan = plan_of(make_plan, "unlink", slots=64)
    disk = written(plan, 150)
    slot = disk.slot_of(0, 141)
    disk.put(0, slot, disk.record(0, slot, disk.newest(0, slot, 140)))
    found = scan(disk, (150,))
    outcome = judged(make_case(plan, (150,)), plan, found)
    assert (outcome.verdict.word, codes(outcome.verdict)) == ("loss", ["findings"])
    assert outcome.verdict.headline.endswith("1 resurrected")
    window = outcome.window
    assert window is not None
    assert (window.ms_min, window.operations) == (8.5, 10)


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("acked", [64, 96])
def test_a_writer_at_its_limit_may_have_stalled(make_plan: MakePlan, workload: str, acked: int) -> None:
    """A writer that used all its credit counts as stalled, even if its last operations are removals, which
    leave no record."""
    plan = plan_of(make_plan, workload)
    case = make_case(plan, (acked,))
    for done, stalled in ((acked + plan.credit - 1, ()), (acked + plan.credit, (0,))):
        found = scan(written(plan, done), (acked,))
        assert found.wrong == []
        assert judged(case, plan, found).at_risk.stalled == stalled


@pytest.mark.slow
def test_a_whole_directory_is_judged_in_bulk(make_plan: MakePlan) -> None:
    """However the names are cut into calls, the same are found, and each is looked at again alike."""
    plan = plan_of(make_plan, "rename", slots=2000, pattern="random")
    disk = written(plan, 3000)
    for slot in (0, 6, 7, 999, 1999):
        disk.remove(0, slot)
    oracle = NameOracle(plan, (3000,))
    lookup = look_up(disk, 0, oracle.slots_to_check(0, np.empty(0, dtype=U64)), {})
    wrong = oracle.screen(lookup).wrong
    busy = oracle.in_flight_slots(0).tolist()
    at_once = [one.slot for one in (*wrong, *oracle.in_flight())]
    assert sorted(at_once) == [one.slot for one in scan(disk, (3000,)).wrong] == [0, 6, 7, 999, 1999]
    assert [one.slot for one in wrong] == [slot for slot in (0, 6, 7, 999, 1999) if slot not in busy]
    again = oracle.observe_all(lookup)
    assert [one.slot for one in again] == [*range(2000)]
    assert [one.slot for one in again if one.missing] == [0, 6, 7, 999, 1999]


def test_damaged_superblocks_are_findings_of_names_too(make_plan: MakePlan) -> None:
    """The main file holds nothing else."""
    plan = plan_of(make_plan, "create")
    main = bytes(Disk(plan).files[MAIN])
    assert len(main) == plan.main_bytes == 128 << 10
    assert NameOracle(plan, (0,)).judge_superblock(1, main[64 << 10 :]).finding is None
    assert NameOracle(plan, (0,)).judge_superblock(0, bytes(64 << 10)).finding == "corrupt"
