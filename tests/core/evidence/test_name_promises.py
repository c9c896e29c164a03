"""Names by the contracts alone: whatever an honest stack leaves is legal, and any broken promise is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from durability.formats.mixing import U64
from durability.formats.plan import Plan
from tests.core.evidence.histories import History, histories
from tests.core.evidence.memory_target import SECTOR, Disk, MakePlan, scan
from tests.core.evidence.name_disks import WORKLOADS

DAMAGE = b"\xa5" * SECTOR


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


def honest(data: st.DataObject, cut: History) -> Disk:
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


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
@given(data=st.data())
def test_an_honest_stack_never_gives_a_finding(
    make_plan: MakePlan, workload: str, data: st.DataObject
) -> None:
    """On an honest drive, every name is legal or excused, whatever part of the last group reached the
    journal, with or without a log."""
    cut = data.draw(histories(make_plan, workload, operations=150))
    disk = honest(data, cut)
    for acked in ((cut.acked,), None):
        found = scan(disk, acked)
        note(f"{cut} proven {found.oracle.proven} {[one.text for one in found.wrong]}")
        assert found.wrong == []
        assert found.above_ceiling == 0
        assert found.oracle.proven[0] <= cut.done


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


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
@given(data=st.data())
def test_any_broken_promise_is_found(make_plan: MakePlan, workload: str, data: st.DataObject) -> None:
    """One name that is not as was acknowledged gives one finding, of the right class, place and seq."""
    cut = data.draw(histories(make_plan, workload, operations=150))
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


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["create", "unlink"])
@given(data=st.data())
def test_a_removed_name_that_is_back_is_resurrected(
    make_plan: MakePlan, workload: str, data: st.DataObject
) -> None:
    """A name that is back after an acknowledged removal is resurrected, whatever its content."""
    cut = data.draw(histories(make_plan, workload, operations=150))
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
