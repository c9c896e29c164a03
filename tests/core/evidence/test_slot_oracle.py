"""The oracle calls legal what an honest drive can leave behind, and nothing else."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from durability.evidence.observation import EARLIER_RUN, SUPERBLOCK_WRITER
from durability.evidence.slot_oracle import SlotOracle
from durability.formats.plan import MAIN, Plan
from tests.core.evidence.histories import History, histories
from tests.core.evidence.memory_target import SECTOR, Disk, Found, MakePlan, scan, small, words

WORKLOADS = ("overwrite", "append")
DAMAGE = b"\xa5" * SECTOR


def written(plan: Plan, frontier: int) -> Disk:
    """A disk on which every writer's operations up to `frontier` are done."""
    disk = Disk(plan)
    for writer in range(plan.writers):
        disk.write_to(writer, frontier)
    return disk


def only(found: Found) -> tuple[str | None, int]:
    """Class and slot of the one finding."""
    (judgement,) = found.wrong
    return judgement.finding, judgement.slot


def honest(draw: st.DataObject, cut: History) -> Disk:
    """What an honest drive with a volatile cache leaves: all that was flushed, any sectors of the rest."""
    plan = cut.plan
    disk = Disk(plan)
    disk.write_to(0, cut.done)
    appends = plan.workload == "append"
    first_kept = max(0, cut.issued // plan.slots - 1)
    for suffix in [name for name in disk.files if appends and name != MAIN]:
        if int(suffix.rpartition(".")[2]) < first_kept:
            del disk.files[suffix]
    for seq in range(cut.done + 1, cut.issued + 1):
        slot = disk.slot_of(0, seq)
        data = disk.record(0, slot, seq)
        for sector in range(len(data) // SECTOR):
            fate = draw.draw(st.sampled_from(["kept", "lost", "damaged"]), label=f"seq {seq} sector {sector}")
            if fate != "lost":
                bytes_kept = data[sector * SECTOR :][:SECTOR] if fate == "kept" else DAMAGE
                disk.put(0, slot, bytes_kept, sector)
    return disk


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
@given(data=st.data())
def test_an_honest_drive_never_gives_a_finding(
    make_plan: MakePlan, workload: str, data: st.DataObject
) -> None:
    """On an honest drive, every slot is legal or excused, whatever part of the unflushed writes is kept, lost
    or damaged."""
    cut = data.draw(histories(make_plan, workload, operations=200))
    found = scan(honest(data, cut), (cut.acked,))
    note(f"{cut} proven {found.oracle.proven}")
    assert found.wrong == []
    assert found.above_ceiling == 0
    assert found.oracle.proven[0] <= cut.done


@pytest.mark.parametrize("workload", WORKLOADS)
@given(data=st.data())
@pytest.mark.slow
def test_a_dropped_acknowledged_write_is_always_found(
    make_plan: MakePlan, workload: str, data: st.DataObject
) -> None:
    """Where an older state replaces the newest acknowledged version, slot and seq are named."""
    cut = data.draw(histories(make_plan, workload, operations=200).filter(lambda cut: cut.acked > 0))
    plan = cut.plan
    disk = honest(data, cut)
    kept_from = max(0, cut.acked - plan.slots // 2) if workload == "append" else 0
    seq = data.draw(st.integers(kept_from + 1, cut.acked), label="dropped")
    slot = disk.slot_of(0, seq)
    newest = disk.newest(0, slot, cut.issued)
    if newest != seq:  # overwritten since: dropping it cannot show
        seq = disk.newest(0, slot, cut.acked)
    if workload == "append":
        disk.put(0, slot, bytes(plan.record_bytes))
    else:
        disk.put(0, slot, disk.record(0, slot, disk.newest(0, slot, seq - 1)))
    found = scan(disk, (cut.acked,))
    (judgement,) = [one for one in found.wrong if one.slot == slot]
    assert judgement.finding == "lost"
    assert judgement.oldest_lost_seq == seq


@given(data=st.data())
@pytest.mark.slow
def test_any_flipped_bit_in_an_acknowledged_record_is_corrupt(
    make_plan: MakePlan, data: st.DataObject
) -> None:
    """One flipped bit makes a slot `corrupt`; where a write may have been under way, it is only damage."""
    plan = small(make_plan)
    disk = written(plan, 100)
    slot = data.draw(st.integers(0, plan.slots - 1), label="slot")
    bit = data.draw(st.integers(0, plan.record_bytes * 8 - 1), label="bit")
    damaged = bytearray(disk.get(0, slot))
    damaged[bit // 8] ^= 1 << bit % 8
    disk.put(0, slot, bytes(damaged))
    found = scan(disk, (100,))
    in_flight = slot == disk.slot_of(0, 101)
    assert [(one.finding, one.slot) for one in found.wrong] == ([] if in_flight else [("corrupt", slot)])
    assert found.in_flight_damaged == in_flight


@given(length=st.integers(0, 64 * 1024 - 1))
@pytest.mark.slow
def test_any_truncation_of_a_file_is_found(make_plan: MakePlan, length: int) -> None:
    """Every slot that a short file lacks, even in part, is `truncated`, in flight or not."""
    plan = small(make_plan)
    disk = written(plan, 100)
    start = plan.extent(0).offset_bytes
    del disk.files[MAIN][start + length :]
    found = scan(disk, (100,))
    assert [one.slot for one in found.wrong] == list(range(length // plan.record_bytes, plan.slots))
    assert set(found.findings) == {"truncated"}


@given(data=st.data())
@pytest.mark.slow
def test_any_mixture_of_sectors_is_named(make_plan: MakePlan, data: st.DataObject) -> None:
    """A slot of one older version is `lost`; any other mixture with an older one is `torn`."""
    plan = small(make_plan, record_bytes=4096, block_bytes=4096)
    disk = written(plan, 250)
    free = sorted(set(range(plan.slots)) - set(SlotOracle(plan, (250,)).in_flight_slots(0).tolist()))
    slot = data.draw(st.sampled_from(free), label="slot")
    newest = disk.newest(0, slot, 250)
    versions = [newest]
    while versions[-1]:
        versions.append(disk.newest(0, slot, versions[-1] - 1))
    mix = data.draw(st.lists(st.sampled_from(versions), min_size=8, max_size=8), label="mix")
    for sector, seq in enumerate(mix):
        disk.put(0, slot, disk.record(0, slot, seq)[sector * SECTOR :][:SECTOR], sector)
    found = scan(disk, (250,))
    if set(mix) == {newest}:
        assert found.wrong == []
        return
    (judgement,) = found.wrong
    assert judgement.finding == ("lost" if len(set(mix)) == 1 else "torn")
    assert judgement.expected_seq == newest
    assert judgement.found_seq == min(mix)
    assert judgement.oldest_lost_seq == versions[versions.index(min(mix)) - 1]


@given(data=st.data())
@pytest.mark.slow
def test_any_misplaced_record_is_named_with_both_places(make_plan: MakePlan, data: st.DataObject) -> None:
    """A record in another slot, of whichever writer, is `misdirected`, and the text names both places."""
    plan = small(make_plan, writers=2, control_slots=4)
    disk = written(plan, 100)
    home = data.draw(st.tuples(st.integers(0, 1), st.integers(0, plan.slots - 1)), label="home")
    place = data.draw(
        st.tuples(st.integers(0, 1), st.integers(0, plan.slots - 1)).filter(lambda place: place != home),
        label="place",
    )
    sector = data.draw(st.integers(0, 1), label="sector")
    disk.put(*place, disk.get(*home)[sector * SECTOR :][:SECTOR], sector)
    (judgement,) = scan(disk, (100, 100)).wrong
    assert (judgement.writer, judgement.slot) == place
    assert judgement.finding == "misdirected"
    assert f"writer {home[0]} slot {home[1]}" in judgement.text
    assert f"writer {place[0]} slot {place[1]}" in judgement.text


def test_a_sector_within_the_wrong_place_of_its_own_record_is_misdirected(make_plan: MakePlan) -> None:
    """A record whose two sectors changed places is not mistaken for itself."""
    disk = written(small(make_plan), 100)
    record = disk.get(0, 5)
    disk.put(0, 5, record[SECTOR:] + record[:SECTOR])
    assert only(scan(disk, (100,))) == ("misdirected", 5)


def test_superblock_and_control_sectors_in_a_slot_are_misdirected(make_plan: MakePlan) -> None:
    """Superblock and control sectors in a writer's slot are findings of class `misdirected`, and the text
    names their own place."""
    plan = small(make_plan, control_slots=4)
    disk = written(plan, 100)
    disk.put(0, 5, bytes(disk.files[MAIN][:SECTOR]))
    disk.put(0, 6, disk.get(plan.control_writer, 2)[:SECTOR])
    found = scan(disk, (100,))
    assert [one.finding for one in found.wrong] == ["misdirected", "misdirected"]
    assert "superblock copy 0" in found.wrong[0].text
    assert f"writer {plan.control_writer} slot 2" in found.wrong[1].text


def test_data_of_other_runs_are_told_apart(make_plan: MakePlan) -> None:
    """An earlier run's record in its place is `lost`; of another place or target it is `foreign`."""
    plan = small(make_plan)
    disk = written(plan, 100)
    slots = [slot for slot in range(plan.slots) if slot not in SlotOracle(plan, (100,)).in_flight_slots(0)][
        :3
    ]
    earlier = Disk(dataclasses.replace(plan, run=99))
    stranger = Disk(dataclasses.replace(plan, target=99))
    disk.put(0, slots[0], earlier.record(0, slots[0], 0))
    disk.put(0, slots[1], earlier.record(0, slots[0], 0))
    disk.put(0, slots[2], stranger.record(0, slots[2], 0))
    found = scan(disk, (100,))
    assert [one.finding for one in found.wrong] == ["lost", "foreign", "foreign"]
    assert found.wrong[0].found_seq == EARLIER_RUN
    assert found.wrong[0].oldest_lost_seq == disk.newest(0, slots[0], 64)


def test_an_intact_sector_that_the_plan_does_not_have_is_foreign(make_plan: MakePlan) -> None:
    """A seq that the schedule never sends to this slot is no version of it, however sound its checks are."""
    plan = small(make_plan)
    disk = written(plan, 100)
    slot = next(slot for slot in range(plan.slots) if slot not in SlotOracle(plan, (100,)).in_flight_slots(0))
    disk.put(0, slot, disk.record(0, slot, disk.newest(0, slot, 100) + 1))
    assert only(scan(disk, (100,))) == ("foreign", slot)


def test_an_unreadable_sector_is_a_finding_only_without_a_write_in_flight(make_plan: MakePlan) -> None:
    """An I/O error is `unreadable` in an idle slot and counted as damage in one in flight."""
    plan = small(make_plan)
    disk = written(plan, 100)
    busy = SlotOracle(plan, (100,)).in_flight_slots(0).tolist()
    idle = next(slot for slot in range(plan.slots) if slot not in busy)
    assert only(scan(disk, (100,), {(0, idle): {1}})) == ("unreadable", idle)
    found = scan(disk, (100,), {(0, disk.slot_of(0, 101)): {1}})
    assert (found.wrong, found.in_flight_damaged) == ([], 1)


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("begun", [0, 1, 2])
def test_only_the_group_after_the_newest_can_have_been_in_flight(
    make_plan: MakePlan, group: int, begun: int
) -> None:
    """Operation 99 is acknowledged, the target shows `begun` more groups. A slot is excused if its operation
    is of the next group. Had a later one been begun, the next would have been acknowledged, and be seen."""
    plan = small(make_plan, group=group, credit=4 * group)
    newest = 99 + begun * group
    disk = written(plan, newest)
    touched = [disk.slot_of(0, seq) for seq in range(newest + 1, 99 + plan.credit + 1)]
    for number, slot in enumerate(touched):
        before = disk.get(0, slot)
        disk.put(0, slot, DAMAGE, 0)
        found = scan(disk, (99,))
        excused = number < group
        assert (len(found.wrong), found.in_flight_damaged) == (0, 1) if excused else (1, 0), number
        disk.put(0, slot, before)


@pytest.mark.parametrize("group", [1, 3])
def test_groups_that_cannot_be_read_may_have_been_acknowledged(make_plan: MakePlan, group: int) -> None:
    """If two groups after the newest one are unreadable, only one can be in flight, so the other is an
    `unreadable` finding. Damage to the next group is only `unreadable` too; damage to later groups is
    `corrupt`."""
    plan = small(make_plan, slots=128, group=group, credit=6 * group)
    disk = written(plan, 99)
    bad = {(0, disk.slot_of(0, 99 + number * group)): {0, 1} for number in (1, 2)}
    for number in range(3, 6):
        slot = disk.slot_of(0, 99 + number * group)
        before = disk.get(0, slot)
        disk.put(0, slot, DAMAGE, 0)
        hidden = {"unreadable": 2} if number == 3 else {"unreadable": 1, "corrupt": 1}
        assert scan(disk, (99,), bad).findings == hidden
        disk.put(0, slot, before)
    oracle = scan(disk, (99,), bad).oracle
    assert (oracle.last_issued(0), oracle.last_hidden(0)) == (99 + group, 99 + 3 * group)
    for writer, slot in bad:
        oracle.prove_again(oracle.observe(writer, slot, disk.get(writer, slot)))
    assert oracle.last_hidden(0) == 99 + group


def test_a_second_reading_proves_operations(make_plan: MakePlan) -> None:
    """A slot in flight that could not be read shows its operation in the end; the first reading is kept."""
    plan = small(make_plan)
    disk = written(plan, 103)
    slots = [disk.slot_of(0, seq) for seq in (101, 102, 103)]
    oracle = scan(disk, (100,), {(0, slot): {0, 1} for slot in slots}).oracle
    assert oracle.proven == (100,)
    assert oracle.newest_seen < (100,)
    assert {one.slot for one in oracle.without_version()} == set(slots)

    oracle.prove_again(oracle.observe(0, slots[2], disk.get(0, slots[2])))

    assert (oracle.proven, oracle.newest_seen) == ((102,), (103,))
    assert len(oracle.without_version()) == 3


def test_a_slot_may_have_two_versions_in_flight(make_plan: MakePlan) -> None:
    """Where one pass ends and the next begins, two newer versions than the acknowledged one are legal."""
    plan = small(make_plan, record_bytes=2048, block_bytes=2048)
    disk = Disk(plan)
    acked = next(
        acked
        for acked in range(plan.slots, 40 * plan.slots)
        if disk.newest(0, disk.slot_of(0, acked + 1), acked + plan.credit) != acked + 1
    )
    slot = disk.slot_of(0, acked + 1)
    oldest, middle, newest = (disk.newest(0, slot, seq) for seq in (acked, acked + 1, acked + plan.credit))
    disk.write(0, *range(1, acked + 1))

    def lay(*seqs: int) -> Found:
        for sector, seq in enumerate(seqs):
            disk.put(0, slot, disk.record(0, slot, seq)[sector * SECTOR :][:SECTOR], sector)
        return scan(disk, (acked,))

    assert lay(oldest, middle, middle, oldest).wrong == []
    # A sector of the newest proves the middle one acknowledged, and with it all that the window lacks.
    found = lay(oldest, middle, newest, middle)
    assert found.oracle.proven == (newest - 1,)
    assert slot in [one.slot for one in found.wrong if one.order_violation]
    assert slot not in [one.slot for one in lay(newest, middle, newest, middle).wrong]


def test_an_older_version_in_a_slot_in_flight_is_lost(make_plan: MakePlan) -> None:
    """A write in flight excuses damage, never an intact version older than the newest acknowledged one."""
    plan = small(make_plan)
    disk = written(plan, 200)
    slot = disk.slot_of(0, 201)
    newest = disk.newest(0, slot, 200)
    older = disk.newest(0, slot, newest - 1)
    disk.put(0, slot, disk.record(0, slot, older))
    (judgement,) = scan(disk, (200,)).wrong
    assert (judgement.finding, judgement.expected_seq, judgement.found_seq) == ("lost", newest, older)
    disk.put(0, slot, DAMAGE, 0)
    assert only(scan(disk, (200,))) == ("torn", slot)


def test_testimony_is_per_writer(make_plan: MakePlan) -> None:
    """One writer's sectors prove nothing about another writer's acknowledgements."""
    plan = small(make_plan, writers=2)
    disk = written(plan, 100)
    disk.write(0, *range(101, 106))
    assert scan(disk, (100, 100)).oracle.proven == (104, 100)


def test_a_misdirected_sector_testifies(make_plan: MakePlan) -> None:
    """An intact sector proves what was acknowledged before it, wherever it lies."""
    plan = small(make_plan, writers=2)
    disk = written(plan, 100)
    disk.write(1, 101, 102, 103, 104)
    slot = disk.slot_of(1, 105)
    idle = next(
        slot for slot in range(plan.slots) if slot not in SlotOracle(plan, (100, 100)).in_flight_slots(0)
    )
    disk.put(0, idle, disk.record(1, slot, 105)[:SECTOR])
    found = scan(disk, (100, 100))
    assert found.oracle.proven == (100, 104)
    assert only(found) == ("misdirected", idle)


def test_a_version_above_the_ceiling_is_no_finding_but_is_told(make_plan: MakePlan) -> None:
    """A write that was never allowed says that the log is behind; it neither testifies nor counts as loss."""
    plan = small(make_plan)
    disk = written(plan, 120)
    found = scan(disk, (100,))
    assert found.wrong == []
    assert found.above_ceiling == 12
    assert found.oracle.proven == (107,)


def test_damage_beside_a_slot_in_flight_is_collateral(make_plan: MakePlan) -> None:
    """A finding that shares a block with a write in flight is marked; one block further it is not."""
    plan = small(make_plan, pattern="sequential", record_bytes=512, block_bytes=2048)
    disk = written(plan, 100)  # in flight: slots 36 to 43
    for slot in (44, 35, 32, 31):
        disk.put(0, slot, DAMAGE)
    assert [(one.slot, one.collateral) for one in scan(disk, (100,)).wrong] == [
        (31, False),
        (32, False),
        (35, False),
        (44, False),
    ]
    disk = written(plan, 102)  # in flight: slots 38 to 45
    for slot in (35, 36, 46, 48):
        disk.put(0, slot, DAMAGE)
    assert [(one.slot, one.collateral) for one in scan(disk, (102,)).wrong] == [
        (35, False),
        (36, True),
        (46, True),
        (48, False),
    ]


def test_the_worst_class_names_a_slot(make_plan: MakePlan) -> None:
    """A slot that is wrong in several ways counts once, under the class that says most."""
    plan = small(make_plan, record_bytes=2048, block_bytes=2048)
    disk = written(plan, 100)
    slot = next(slot for slot in range(plan.slots) if slot not in SlotOracle(plan, (100,)).in_flight_slots(0))
    disk.put(0, slot, disk.record(0, slot, 0)[:SECTOR])
    disk.put(0, slot, DAMAGE, 1)
    assert only(scan(disk, (100,))) == ("corrupt", slot)
    disk.put(0, slot, disk.get(0, (slot + 1) % plan.slots)[:SECTOR], 2)
    assert only(scan(disk, (100,))) == ("misdirected", slot)


@pytest.mark.parametrize(("content", "expected"), [(None, None), (DAMAGE, "corrupt"), (b"", "truncated")])
def test_superblock_copies_are_judged(
    make_plan: MakePlan, content: bytes | None, expected: str | None
) -> None:
    """Each copy was synced before the run, so a damaged or missing one is a finding."""
    plan = small(make_plan)
    data = bytes(Disk(plan).files[MAIN][plan.superblock_offsets[1] :])
    if content is not None:
        data = content + data[SECTOR:] if content else b""
    judgement = SlotOracle(plan, (0,)).judge_superblock(1, data)
    assert (judgement.finding, judgement.writer, judgement.slot) == (expected, SUPERBLOCK_WRITER, 1)


def test_what_is_damaged_has_lost_its_newest_operation(make_plan: MakePlan) -> None:
    """Garbage and I/O errors show no version; an older version beside garbage does."""
    plan = small(make_plan, pattern="sequential")
    disk = written(plan, 150)
    disk.put(0, 20, DAMAGE)
    disk.put(0, 5, disk.record(0, 5, 6)[:SECTOR] + DAMAGE[:SECTOR])
    found = scan(disk, (150,), {(0, 30): {0}})
    lost = {one.slot: (one.finding, one.oldest_lost_seq, one.expected_seq) for one in found.wrong}
    assert lost[20] == ("corrupt", 149, 149)
    assert lost[5] == ("corrupt", 70, 134)
    assert lost[30] == ("unreadable", 95, 95)
    assert found.oldest_lost == (70,)


def test_an_append_file_may_not_be_shorter_than_what_was_acknowledged(make_plan: MakePlan) -> None:
    """The length is metadata that the sync must carry: records past the end are `truncated`."""
    plan = small(make_plan, workload="append")
    disk = written(plan, 40)
    del disk.files[".0.0"][38 * plan.record_bytes + 100 :]
    found = scan(disk, (40,))
    assert [(one.finding, one.slot) for one in found.wrong] == [("truncated", 38), ("truncated", 39)]
    assert found.oldest_lost == (39,)


def test_a_hole_in_an_append_file_is_lost_and_half_a_hole_is_torn(make_plan: MakePlan) -> None:
    """Zeros within the acknowledged prefix are the state from before the write."""
    plan = small(make_plan, workload="append")
    disk = written(plan, 40)
    disk.put(0, 10, bytes(plan.record_bytes))
    disk.put(0, 20, bytes(SECTOR))
    assert [(one.finding, one.slot) for one in scan(disk, (40,)).wrong] == [("lost", 10), ("torn", 20)]


def test_the_tail_of_an_append_file_may_hold_anything(make_plan: MakePlan) -> None:
    """Past the acknowledged length, zeros, old blocks, half records and garbage are excused."""
    plan = small(make_plan, workload="append")
    disk = written(plan, 40)
    disk.put(0, 40, bytes(plan.record_bytes))
    disk.put(0, 41, DAMAGE)
    disk.put(0, 42, disk.record(0, 3, 4))
    disk.files[".0.0"].extend(b"partial")
    found = scan(disk, (40,))
    assert (found.wrong, found.above_ceiling, found.in_flight_damaged) == ([], 0, 2)
    disk.put(0, 48, bytes(plan.record_bytes))
    assert scan(disk, (40,)).above_ceiling == 1


def test_a_missing_append_file_is_truncated_unless_it_may_have_been_removed(make_plan: MakePlan) -> None:
    """A full file may be gone once the one after the next may exist, and not a moment before."""
    plan = small(make_plan, workload="append")
    for acked, lost in ((127 - 8, 64), (128 - 8, 0)):
        disk = written(plan, acked)
        del disk.files[".0.0"]
        assert scan(disk, (acked,)).findings["truncated"] == lost


def test_an_append_file_that_was_removed_for_good_is_resurrected(make_plan: MakePlan) -> None:
    """The sync of the directory that made file g durable made the removal of file g-3 durable too."""
    plan = small(make_plan, workload="append")
    for acked, back in ((192, 0), (193, 1), (256, 1), (257, 2)):
        disk = Disk(plan)
        for seq in range(1, acked + 1):  # and no file is ever removed
            disk.put(0, seq - 1, disk.record(0, seq - 1, seq))
        found = scan(disk, (acked,))
        assert [one.suffix for one in found.wrong] == [f".0.{number}" for number in range(back)]
        assert found.findings["resurrected"] == back
    assert (found.oldest_lost, found.report().operations_lost) == ((None,), 0)
    assert found.wrong[0].text == "file TARGET.0.0: resurrected; its removal was durable before seq 193"
    assert not any(one.order_violation for one in found.wrong)


def test_the_target_itself_may_prove_a_removal_of_append(make_plan: MakePlan) -> None:
    """A record after the rotation proves the removal, with or without a log. Files that are not the run's do
    not matter."""
    plan = small(make_plan, workload="append")
    for acked in ((190,), None):
        disk = written(plan, 194)
        disk.files.update({name: bytearray() for name in (".0.0", ".0.0.tmp", ".5.0", ".0.x")})
        found = scan(disk, acked)
        assert [(one.finding, one.suffix, one.order_violation) for one in found.wrong] == [
            ("resurrected", ".0.0", True)
        ]


def test_without_a_log_only_an_order_violation_is_a_finding(make_plan: MakePlan) -> None:
    """The target's testimony proves a stale slot lost, but no damage: all may have been in flight."""
    plan = small(make_plan)
    disk = written(plan, 100)
    stale, damaged = disk.slot_of(0, 90), disk.slot_of(0, 91)
    disk.put(0, stale, disk.record(0, stale, disk.newest(0, stale, 89)))
    disk.put(0, damaged, DAMAGE)
    found = scan(disk, None)
    assert found.oracle.proven == (99,)
    assert only(found) == ("lost", stale)
    assert found.wrong[0].order_violation
    assert scan(written(plan, 0), None).wrong == []


def test_the_control_arm_counts_completed_writes_that_are_gone(make_plan: MakePlan) -> None:
    """Slots that lack a completed write are counted; a newer version, or a slot never written, is not."""
    plan = small(make_plan, control_slots=8)
    disk = Disk(plan)
    writer = plan.control_writer
    disk.write(writer, 1, 3, 4, 5)
    data = words(bytes(disk.files[".control"]))
    assert SlotOracle(plan, (0,)).screen_control(0, data, 4) == 1
    assert SlotOracle(plan, (0,)).screen_control(0, data, 0) == 0


def test_damage_in_the_control_arm_shows_no_loss(make_plan: MakePlan) -> None:
    """A write in flight may damage any slot; a sector of an older version shows a loss, beside damage too."""
    plan = small(make_plan, control_slots=8)
    disk = Disk(plan)
    writer = plan.control_writer
    disk.write(writer, *range(1, 13))
    for junk, of, sector in (
        (b"\xa5" * SECTOR, 5, 0),
        (bytes(plan.control_record_bytes), 6, 0),
        (b"\xa5" * SECTOR, 7, 0),
        (disk.record(writer, disk.slot_of(writer, 7), 0)[:SECTOR], 7, 1),
    ):
        disk.put(writer, disk.slot_of(writer, of), junk, sector=sector)
    assert SlotOracle(plan, (0,)).screen_control(0, words(bytes(disk.files[".control"])), 12) == 1


@pytest.mark.slow
def test_screening_in_pieces_is_screening_at_once(make_plan: MakePlan) -> None:
    """However a file is cut into calls, the same slots are named."""
    plan = small(make_plan, slots=9_000, record_bytes=512, block_bytes=512)
    disk = written(plan, 12_000)
    for slot in (0, 8191, 8192, 8_999):
        disk.put(0, slot, DAMAGE)
    extent = plan.extent(0)
    data = words(bytes(disk.files[MAIN][extent.offset_bytes : extent.end_bytes]))
    oracle = SlotOracle(plan, (12_000,))
    pieces = [0, 1, 700, 8191, 9_000]
    found = [
        start + int(number)
        for start, end in pairwise(pieces)
        for number in oracle.screen(0, start, data[start * 64 : end * 64])
    ]
    assert found == oracle.screen(0, 0, data).tolist() == [0, 8191, 8192, 8_999]
