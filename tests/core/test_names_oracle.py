"""The oracle of names calls legal what an honest file system on an honest drive can leave, nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from durability.exposure import at_risk, loss_window
from durability.mixing import U64
from durability.names import NamesOracle
from durability.observation import EARLIER_RUN
from durability.plan import MAIN, Plan
from tests.core.evidence import SECTOR, Disk, Found, MakePlan, codes, judge, look_up, make_case, scan, small

WORKLOADS = ("create", "rename", "unlink")
DAMAGE = b"\xa5" * SECTOR


def plan_of(make_plan: MakePlan, workload: str, **changes: Any) -> Plan:
    """Small enough that every name turns over often: 32 names of two sectors, in sequence."""
    return small(make_plan, **{"workload": workload, "slots": 32, "pattern": "sequential", **changes})


def written(plan: Plan, frontier: int) -> Disk:
    """A directory in which every writer's operations up to `frontier` are done."""
    disk = Disk(plan)
    for writer in range(plan.writers):
        disk.write_to(writer, frontier)
    return disk


def only(found: Found) -> tuple[str | None, int]:
    """Class and slot of the one finding."""
    (judgement,) = found.wrong
    return judgement.finding, judgement.slot


@dataclasses.dataclass(frozen=True)
class Event:
    """One operation on a slot; it `puts` a version there, or takes the name away."""

    seq: int
    puts: bool


def events(plan: Plan, frontier: int) -> dict[int, list[Event]]:
    """By slot the operations up to `frontier`, the prefill first: told from the contracts alone."""
    told = {slot: [Event(0, True)] for slot in range(plan.prefilled_names)}
    seqs = np.arange(1, frontier + 1, dtype=U64)
    slots = seqs - U64(1) if plan.workload == "create" else plan.schedule(0).slot_of(seqs)
    for seq, slot in zip(seqs.tolist(), slots.tolist(), strict=True):
        if plan.workload == "create" and slot >= plan.slots:
            told[slot - plan.slots].append(Event(seq, False))
        removes = plan.workload == "unlink" and (seq - 1) // plan.slots % 2 == 0
        told.setdefault(slot, []).append(Event(seq, not removes))
    return told


def idle(plan: Plan, acked: int) -> dict[int, list[Event]]:
    """The operations of the slots that nothing in flight can have touched."""
    busy = {
        slot
        for slot, told in events(plan, acked + plan.credit).items()
        if any(event.seq > acked for event in told)
    }
    return {slot: told for slot, told in events(plan, acked).items() if slot not in busy}


@dataclasses.dataclass(frozen=True)
class Cut:
    """Of the operations up to `issued`, the drive acknowledged `done` and the server knows of `acked`."""

    plan: Plan
    done: int
    acked: int
    issued: int


@st.composite
def cuts(draw: st.DrawFn, make_plan: MakePlan, workload: str) -> Cut:
    """Any history of one writer that the rules of issuing allow."""
    group = draw(st.sampled_from([1, 2, 4]))
    sectors = draw(st.sampled_from([1, 2, 8]))
    plan = plan_of(
        make_plan,
        workload,
        pattern="sequential" if workload == "create" else draw(st.sampled_from(["random", "sequential"])),
        group=group,
        credit=8,
        slots=draw(st.sampled_from([32, 40])),
        record_bytes=sectors * SECTOR,
        block_bytes=sectors * SECTOR,
    )
    done = draw(st.integers(0, 150 // group)) * group
    acked = max(0, done - draw(st.integers(0, plan.credit // group)) * group)
    issued = min(done + draw(st.integers(0, group)), acked + plan.credit)
    return Cut(plan=plan, done=done, acked=acked, issued=issued)


def honest(data: st.DataObject, cut: Cut) -> Disk:
    """What an honest stack leaves: all that was synced, and of the last group what the contracts allow.

    Each step of the group reached the journal or did not, whatever became of the others; a name that was made
    has any content, one that was renamed is whole because its file was synced before.
    """
    disk, plan = Disk(cut.plan), cut.plan
    disk.write_to(0, cut.done)
    for seq in range(cut.done + 1, cut.issued + 1):
        slot = disk.slot_of(0, seq)
        name, record = f".0.{slot}", disk.record(0, slot, seq)
        kept = data.draw(st.booleans(), label=f"seq {seq} is in the journal")
        unsynced = data.draw(contents(record, disk.record(0, slot, max(0, seq - 2 * plan.slots))))
        if plan.workload == "rename":
            disk.files[name if kept else f"{name}.tmp"] = bytearray(record if kept else unsynced)
        elif plan.workload == "unlink" and (seq - 1) // plan.slots % 2 == 0:
            if kept:
                disk.remove(0, slot)
        else:
            if plan.workload == "create" and data.draw(st.booleans(), label="the old name is gone"):
                disk.remove(0, slot - plan.slots)
            if kept:
                disk.files[name] = bytearray(unsynced)
    return disk


def contents(record: bytes, older: bytes) -> st.SearchStrategy[bytes]:
    """What a file may hold that was written and not synced: all, nothing, a part, zeros, old blocks."""
    size = len(record)
    return st.one_of(
        st.just(record),
        st.just(older),
        st.integers(0, size).map(lambda length: record[:length]),
        st.integers(0, size).map(lambda length: record[:length].ljust(size, b"\0")),
        st.binary(min_size=size, max_size=size),
    )


@pytest.mark.parametrize("workload", WORKLOADS)
@given(data=st.data())
def test_an_honest_stack_never_gives_a_finding(
    make_plan: MakePlan, workload: str, data: st.DataObject
) -> None:
    """Whatever of the last group reached the journal, every name is legal or excused; with a log or none."""
    cut = data.draw(cuts(make_plan, workload))
    disk = honest(data, cut)
    for acked in ((cut.acked,), None):
        found = scan(disk, acked)
        note(f"{cut} testified {found.oracle.testified} {[one.text for one in found.wrong]}")
        assert found.wrong == []
        assert found.above_ceiling == 0
        assert found.oracle.testified[0] <= cut.done


Breach = Callable[[Disk, int, list[Event]], None]


def _content(make: Callable[[bytes], bytes]) -> Breach:
    def lay(disk: Disk, slot: int, _: list[Event]) -> None:
        disk.files[f".0.{slot}"] = bytearray(make(bytes(disk.files[f".0.{slot}"])))

    return lay


def _older(disk: Disk, slot: int, told: list[Event]) -> bytes:
    return disk.record(0, slot, max(event.seq for event in told[:-1] if event.puts))


def _lay_older(disk: Disk, slot: int, told: list[Event]) -> None:
    disk.files[f".0.{slot}"] = bytearray(_older(disk, slot, told))


def _lay_mixture(disk: Disk, slot: int, told: list[Event]) -> None:
    disk.put(0, slot, _older(disk, slot, told)[:SECTOR])


def _lay_neighbour(disk: Disk, slot: int, _: list[Event]) -> None:
    neighbour = (slot + 1) % disk.plan.slots
    seq = 0 if disk.plan.prefilled_names else neighbour + 1
    disk.put(0, slot, disk.record(0, neighbour, seq)[:SECTOR])


def _lay_stranger(disk: Disk, slot: int, told: list[Event]) -> None:
    stranger = Disk(dataclasses.replace(disk.plan, target=99, workload="overwrite"))
    disk.put(0, slot, stranger.record(0, slot % disk.plan.slots, 0)[:SECTOR])


# What becomes of a name that must hold one version, and the class that it has then. The last two need an
# older version, which a name of `create` never has.
BREACHES: dict[str, tuple[str, Breach]] = {
    "gone": ("absent", lambda disk, slot, _: disk.remove(0, slot)),
    "empty": ("torn", _content(lambda data: b"")),
    "short": ("torn", _content(lambda data: data[: len(data) - 100])),
    "long": ("torn", _content(lambda data: data + b"\0")),
    "zeros": ("torn", _content(lambda data: bytes(len(data)))),
    "half zeros": ("torn", _content(lambda data: bytes(SECTOR) + data[SECTOR:])),
    "damaged": ("corrupt", _content(lambda data: DAMAGE + data[SECTOR:])),
    "misplaced": ("misdirected", _lay_neighbour),
    "strange": ("foreign", _lay_stranger),
    "older": ("stale", _lay_older),
    "mixture": ("torn", _lay_mixture),
}


@pytest.mark.parametrize("workload", WORKLOADS)
@given(data=st.data())
def test_any_broken_promise_is_found(make_plan: MakePlan, workload: str, data: st.DataObject) -> None:
    """One name that is not as was acknowledged gives one finding, of the right class, place and seq."""
    cut = data.draw(cuts(make_plan, workload))
    disk = honest(data, cut)
    sound = {slot: told for slot, told in idle(cut.plan, cut.acked).items() if told[-1].puts}
    assume(sound)
    slot = data.draw(st.sampled_from(sorted(sound)), label="slot")
    told = sound[slot]
    breach = data.draw(st.sampled_from([*BREACHES]), label="breach")
    assume(breach not in ("older", "mixture") or any(event.puts for event in told[:-1]))
    assume(breach != "mixture" or cut.plan.record_bytes > SECTOR)
    expected, lay = BREACHES[breach]
    lay(disk, slot, told)
    (judgement,) = scan(disk, (cut.acked,)).wrong
    note(judgement.text)
    assert (judgement.finding, judgement.writer, judgement.slot) == (expected, 0, slot)
    assert (judgement.suffix, judgement.offset) == (f".0.{slot}", 0)
    assert judgement.expected_seq == told[-1].seq
    assert judgement.text.startswith(f"name .0.{slot}: {expected}, expected ")
    if breach in ("older", "mixture"):
        older = max(event.seq for event in told[:-1] if event.puts)
        assert judgement.found_seq == older
        assert judgement.oldest_lost_seq == min(event.seq for event in told if event.seq > older)
    elif expected in ("absent", "torn"):
        assert judgement.oldest_lost_seq == (told[-1].seq or None)


@pytest.mark.parametrize("workload", ["create", "unlink"])
@given(data=st.data())
def test_a_removed_name_that_is_back_is_resurrected(
    make_plan: MakePlan, workload: str, data: st.DataObject
) -> None:
    """Whatever it holds: that it is there at all undoes an acknowledged removal."""
    cut = data.draw(cuts(make_plan, workload))
    disk = honest(data, cut)
    gone = {slot: told for slot, told in idle(cut.plan, cut.acked).items() if not told[-1].puts}
    assume(gone)
    slot = data.draw(st.sampled_from(sorted(gone)), label="slot")
    told = gone[slot]
    older = data.draw(st.sampled_from([event.seq for event in told if event.puts]), label="version")
    content = data.draw(st.sampled_from([disk.record(0, slot, older), b"", DAMAGE]), label="content")
    disk.files[f".0.{slot}"] = bytearray(content)
    (judgement,) = scan(disk, (cut.acked,)).wrong
    assert (judgement.finding, judgement.slot) == ("resurrected", slot)
    assert judgement.expected_seq == told[-1].seq
    known = len(content) == cut.plan.record_bytes and content[:4] == b"DURB"
    assert judgement.found_seq == (older if known else None)
    undone = min(event.seq for event in told if event.seq > older) if known else told[-1].seq
    assert judgement.oldest_lost_seq == undone
    assert f"expected no such name since seq {told[-1].seq}" in judgement.text


# -- one case at a time ------------------------------------------------------------------------------------


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
        " a file that goes on where the record ends in 1 sector",
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
    """What is not whole is counted as damage; absent, whole and damaged are all legal."""
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
    """Of `create` those from the oldest that may still be there up to the ceiling, and whatever is listed."""
    plan = plan_of(make_plan, "create")
    none = np.empty(0, dtype=U64)
    assert NamesOracle(plan, (60,)).slots_to_check(0, none).tolist() == [*range(28, 68)]
    listed = np.array([99, 3, 40], dtype=U64)
    assert NamesOracle(plan, (60,)).slots_to_check(0, listed).tolist() == [3, *range(28, 68), 99]
    assert NamesOracle(plan, None).slots_to_check(0, listed).tolist() == [3, 40, 99]
    for workload in ("rename", "unlink"):
        oracle = NamesOracle(plan_of(make_plan, workload), (60,))
        assert oracle.slots_to_check(0, listed).tolist() == [*range(32)]


def test_only_names_with_an_operation_count_as_checked(make_plan: MakePlan) -> None:
    """That a name which was never made is not there is no evidence of anything."""
    assert scan(written(plan_of(make_plan, "create"), 20), (20,)).checked == 20
    assert scan(written(plan_of(make_plan, "create"), 60), (60,)).checked == 32
    assert scan(written(plan_of(make_plan, "unlink"), 60), (60,)).checked == 32


def test_the_disk_testifies(make_plan: MakePlan) -> None:
    """An intact sector of seq s, even of a name in flight, proves every operation before its group done."""
    disk = written(plan_of(make_plan, "create"), 60)
    disk.write(0, 61, 63)
    disk.files[".0.62"] = disk.files[".0.62"][:SECTOR]
    found = scan(disk, (60,))
    assert found.oracle.testified == (62,)
    assert [(one.finding, one.slot) for one in found.wrong] == [("resurrected", 29), ("absent", 61)]
    assert all(one.order_violation for one in found.wrong)
    assert found.oldest_lost == (62,)


def test_a_temporary_testifies(make_plan: MakePlan) -> None:
    """`rename` writes it after the sync of the group before; that it has no name yet does not matter."""
    disk = written(plan_of(make_plan, "rename"), 60)
    slot = disk.slot_of(0, 62)
    disk.files[f".0.{slot}.tmp"] = bytearray(disk.record(0, slot, 62)[:700])
    found = scan(disk, (60,))
    assert found.oracle.testified == (61,)
    assert only(found) == ("stale", disk.slot_of(0, 61))
    assert found.wrong[0].order_violation


def test_absence_never_testifies(make_plan: MakePlan) -> None:
    """A name may be absent for reasons that no operation has: three removals in flight prove nothing."""
    disk = written(plan_of(make_plan, "unlink"), 20)
    disk.write(0, 22, 24)
    found = scan(disk, (20,))
    assert (found.wrong, found.oracle.testified) == ([], (20,))


def test_testimony_is_per_writer(make_plan: MakePlan) -> None:
    """A record of another writer under a name testifies for that writer, and is misdirected."""
    plan = plan_of(make_plan, "create", writers=2)
    disk = written(plan, 60)
    disk.write(1, 61, 62)
    disk.files[".0.40"] = bytearray(disk.record(1, 62, 63))
    found = scan(disk, (60, 60))
    assert found.oracle.testified == (60, 62)
    assert only(found) == ("misdirected", 40)
    assert "seq 63 of writer 1 slot 62" in found.wrong[0].text


def test_a_name_above_the_ceiling_is_no_finding_but_is_told(make_plan: MakePlan) -> None:
    """It was never allowed to be made: the log is behind, and nothing is loss."""
    plan = plan_of(make_plan, "create")
    disk = written(plan, 70)
    found = scan(disk, (60,))
    assert found.above_ceiling == 2
    verdict = judge(make_case(plan, (60,)), plan, found)
    assert (verdict.word, codes(verdict)[0]) == ("inconclusive", "log-behind")
    disk = written(plan, 60)
    for slot, content in ((80, b""), (90, DAMAGE)):
        disk.files[f".0.{slot}"] = bytearray(content)
    found = scan(disk, (60,))
    assert (found.wrong, found.above_ceiling) == ([], 2)
    disk = written(plan_of(make_plan, "rename"), 70)
    found = scan(disk, (60,))
    assert (found.wrong, found.above_ceiling) == ([], 2)
    disk = written(plan_of(make_plan, "rename"), 60)
    slot = disk.slot_of(0, 70)
    disk.files[f".0.{slot}.tmp"] = bytearray(disk.record(0, slot, 70))
    assert scan(disk, (60,)).above_ceiling == 2


def test_an_earlier_runs_name_is_resurrected_or_stale(make_plan: MakePlan) -> None:
    """Every name beside the target was removed, and the directory synced, before the run was armed."""
    plan = plan_of(make_plan, "create")
    earlier = Disk(dataclasses.replace(plan, run=99))
    disk = written(plan, 60)
    disk.files[".0.200"] = bytearray(earlier.record(0, 200, 201))
    disk.files[".0.40"] = bytearray(earlier.record(0, 40, 41))
    found = scan(disk, (60,))
    assert [(one.finding, one.slot, one.found_seq) for one in found.wrong] == [
        ("stale", 40, EARLIER_RUN),
        ("resurrected", 200, EARLIER_RUN),
    ]
    assert found.above_ceiling == 0
    assert found.oldest_lost == (41,)


def test_names_and_files_that_no_plan_makes_are_left_alone(make_plan: MakePlan) -> None:
    """Whoever made them, they are not of this run."""
    disk = written(plan_of(make_plan, "rename"), 60)
    for suffix in (".0.32", ".7.1", ".0.007", ".0.1.bak", ".x"):
        disk.files[suffix] = bytearray(DAMAGE)
    found = scan(disk, (60,))
    assert (found.wrong, found.above_ceiling) == ([], 0)


def test_without_a_log_a_name_of_rename_is_whole_and_not_too_old(make_plan: MakePlan) -> None:
    """Its contract has no exception, so what the target itself proves acknowledged is enough."""
    disk = written(plan_of(make_plan, "rename"), 60)
    disk.remove(0, 3)
    disk.files[".0.5"] = bytearray(disk.record(0, 5, 6))
    del disk.files[".0.7"][SECTOR:]
    found = scan(disk, None)
    assert found.oracle.testified == (59,)
    assert [(one.finding, one.slot) for one in found.wrong] == [("absent", 3), ("stale", 5), ("torn", 7)]
    assert [one.order_violation for one in found.wrong] == [False, True, False]
    assert scan(Disk(plan_of(make_plan, "rename")), None).wrong == []


def test_without_a_log_a_name_of_create_may_be_gone_but_not_torn_or_back(make_plan: MakePlan) -> None:
    """How far the writer got nobody knows, so any name may have been removed since; but none comes back."""
    disk = written(plan_of(make_plan, "create"), 60)
    disk.remove(0, 40)
    del disk.files[".0.41"][SECTOR:]
    disk.files[".0.5"] = bytearray(disk.record(0, 5, 6))
    found = scan(disk, None)
    assert [(one.finding, one.slot) for one in found.wrong] == [("resurrected", 5), ("torn", 41)]


def test_without_a_log_nothing_is_certain_of_unlink(make_plan: MakePlan) -> None:
    """Removals leave nothing that testifies: any name may have been removed and made again since."""
    disk = written(plan_of(make_plan, "unlink"), 60)
    disk.remove(0, 3)
    disk.files[".0.5"] = bytearray(DAMAGE)
    assert scan(disk, None).wrong == []


def test_a_prefill_that_nothing_proves_finished_is_not_judged(make_plan: MakePlan) -> None:
    """Without a log and without one record of the run, names may be missing as they were not made yet."""
    disk = Disk(plan_of(make_plan, "rename"))
    disk.remove(0, 3)
    disk.files[".0.4"] = bytearray(DAMAGE)
    assert scan(disk, None).wrong == []


def test_at_risk_are_the_names_whose_loss_would_show(make_plan: MakePlan) -> None:
    """A name that an operation in flight may have touched is not counted, whichever way it would be lost."""
    for workload, acked, counted in (
        ("create", 100, 32 - 8),
        ("rename", 100, 32 - 8),
        ("unlink", 100, 32 - 8),
    ):
        plan = plan_of(make_plan, workload)
        found = scan(written(plan, acked), (acked,))
        risk = at_risk(make_case(plan, (acked,)), plan, newest_seen=found.oracle.newest_seen)
        assert (risk.ms1000, risk.stalled) == (counted, ())
        assert (risk.ms1, risk.ms10) == (2, 11)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_directory_as_it_must_be_is_durable(make_plan: MakePlan, workload: str) -> None:
    """Names give a verdict as slots do: nothing is missing and nothing is wrong."""
    plan = plan_of(make_plan, workload, slots=64)
    found = scan(written(plan, 150), (150,))
    assert judge(make_case(plan, (150,)), plan, found).word == "durable"


def test_a_removal_that_came_undone_is_loss(make_plan: MakePlan) -> None:
    """The loss window reaches back to its acknowledgement, at one operation a millisecond."""
    plan = plan_of(make_plan, "unlink", slots=64)
    disk = written(plan, 150)
    slot = disk.slot_of(0, 141)
    disk.put(0, slot, disk.record(0, slot, disk.newest(0, slot, 140)))
    found = scan(disk, (150,))
    case = make_case(plan, (150,))
    verdict = judge(case, plan, found)
    assert (verdict.word, codes(verdict)) == ("loss", ["findings"])
    assert verdict.headline.endswith("1 resurrected")
    window = loss_window(case, testified=found.oracle.testified, oldest_lost=found.oldest_lost)
    assert window is not None
    assert (window.ms_min, window.operations) == (8.5, 10)


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("acked", [64, 96])
def test_a_writer_at_its_limit_may_have_stalled(make_plan: MakePlan, workload: str, acked: int) -> None:
    """Also where its last operations are removals, which only absence tells of."""
    plan = plan_of(make_plan, workload)
    case = make_case(plan, (acked,))
    for done, stalled in ((acked + plan.credit - 1, ()), (acked + plan.credit, (0,))):
        found = scan(written(plan, done), (acked,))
        assert found.wrong == []
        assert at_risk(case, plan, newest_seen=found.oracle.newest_seen).stalled == stalled


def test_a_whole_directory_is_judged_in_bulk(make_plan: MakePlan) -> None:
    """However the names are cut into calls, the same are found, and each is looked at again alike."""
    plan = plan_of(make_plan, "rename", slots=2000, pattern="random")
    disk = written(plan, 3000)
    for slot in (0, 6, 7, 999, 1999):
        disk.remove(0, slot)
    oracle = NamesOracle(plan, (3000,))
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
    assert NamesOracle(plan, (0,)).judge_superblock(1, main[64 << 10 :]).finding is None
    assert NamesOracle(plan, (0,)).judge_superblock(0, bytes(64 << 10)).finding == "corrupt"
