"""The operations on a slot, told by arithmetic, are those that the plan's writers do one after the other."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.formats.mixing import U64, Words
from durability.formats.plan import Plan
from durability.formats.versions import Versions
from durability.formats.workloads import registry
from durability.formats.workloads.workload import NEVER
from tests.core.evidence.memory_target import ENDLESS, MakePlan, small

WORKLOADS = tuple(registry.WORKLOADS)
LAST = 300


def one(number: int) -> Words:
    """An array of one."""
    return np.array([number], dtype=U64)


def history(plan: Plan) -> dict[int, list[tuple[int, bool]]]:
    """By slot, every operation up to LAST in order: its seq, and whether it takes the name away."""
    told: dict[int, list[tuple[int, bool]]] = {}
    seqs = np.arange(1, LAST + 1, dtype=U64)
    slots = seqs - U64(1) if plan.workload in ENDLESS else plan.schedule(0).slot_of(seqs)
    for seq, slot in zip(seqs.tolist(), slots.tolist(), strict=True):
        if plan.workload == "create" and slot >= plan.slots:
            told[slot - plan.slots].append((seq, True))
        told.setdefault(slot, []).append(
            (seq, plan.workload == "unlink" and (seq - 1) // plan.slots % 2 == 0)
        )
    return told


@st.composite
def plans(draw: st.DrawFn, make_plan: MakePlan) -> Plan:
    """A small plan of any workload."""
    workload = draw(st.sampled_from(WORKLOADS))
    pattern = "sequential" if workload in ENDLESS else draw(st.sampled_from(["random", "sequential"]))
    return small(make_plan, workload=workload, pattern=pattern, slots=draw(st.sampled_from([32, 41])))


@pytest.mark.slow
@given(data=st.data())
def test_the_events_of_a_slot_are_what_its_writer_did(make_plan: MakePlan, data: st.DataObject) -> None:
    """Newest, following and removing operations of any slot at any frontier."""
    plan = data.draw(plans(make_plan))
    versions = Versions(plan)
    told = history(plan)
    slot = data.draw(st.sampled_from(sorted(told)), label="slot")
    frontier = data.draw(st.integers(0, LAST), label="frontier")
    events = told[slot]
    newest = max((seq for seq, _ in events if seq <= frontier), default=0)
    assert versions.newest(0, one(slot), frontier).tolist() == [newest]
    for (seq, removes), following in pairwise([(0, False), *events]):
        assert versions.following(0, one(slot), one(seq)).tolist() == [following[0]]
        assert versions.after(0, slot, seq) == following[0]
        assert versions.removals(0, one(slot), one(seq)).tolist() == [removes]
        is_version = not removes and (seq > 0 or plan.workload not in ENDLESS)
        assert versions.is_version(0, slot, seq) == is_version
    assert not versions.is_version(0, slot, frontier) or frontier in (0, *(seq for seq, _ in events))


@pytest.mark.slow
@given(data=st.data())
def test_what_operations_touch_are_the_slots_of_which_they_are_events(
    make_plan: MakePlan, data: st.DataObject
) -> None:
    """Operations touch exactly the slots of which they are events, including the name that `create`
    removes."""
    plan = data.draw(plans(make_plan))
    first = data.draw(st.integers(1, LAST - 20), label="first")
    seqs = range(first, first + 20)
    touched = [slot for slot, events in history(plan).items() if any(seq in seqs for seq, _ in events)]
    assert Versions(plan).touched(0, np.array(seqs, dtype=U64)).tolist() == sorted(touched)


@pytest.mark.parametrize("workload", ENDLESS)
def test_the_events_of_an_endless_slot_end(make_plan: MakePlan, workload: str) -> None:
    """A record of append is written once; a name of create is made, and removed once."""
    versions = Versions(small(make_plan, workload=workload))
    last = versions.after(0, 5, 6) if workload == "create" else 6
    assert versions.following(0, one(5), one(last)).tolist() == [int(NEVER)]
    assert versions.following(0, one(5), one(int(NEVER))).tolist() == [int(NEVER)]
    assert versions.removals(0, one(5), one(int(NEVER))).tolist() == [False]


def test_the_control_arm_is_of_no_workload(make_plan: MakePlan) -> None:
    """The control writer's slots lie in one file and are overwritten, with any workload of the other
    writers."""
    for workload in WORKLOADS:
        changes = {"pattern": "sequential"} if workload in ENDLESS else {}
        plan = small(make_plan, workload=workload, control_slots=4, **changes)
        versions = Versions(plan)
        control = plan.control_writer
        assert versions.slots_of(control, one(5)).tolist() == [0]
        assert versions.newest(control, one(0), 5).tolist() == [5]
        assert versions.removals(control, one(0), one(5)).tolist() == [False]
        assert versions.place(control, 1) == (".control", 4096, 4096)


@pytest.mark.parametrize("pattern", ["sequential", "random"])
@pytest.mark.parametrize("workload", sorted(set(WORKLOADS) - set(ENDLESS)))
def test_a_slot_that_the_plan_does_not_have_has_no_events(
    make_plan: MakePlan, workload: str, pattern: str
) -> None:
    """A slot outside the plan has no events, even beside slots of the plan and for very large numbers."""
    versions = Versions(small(make_plan, workload=workload, pattern=pattern, slots=41))
    slots = np.array([40, 41, 63, 64, (1 << 48) - 1], dtype=U64)
    ours = slots < U64(41)
    for frontier in (0, 20, 41, 90):
        newest = versions.newest(0, slots, frontier)
        assert newest[0] == versions.newest(0, slots[:1], frontier)[0] and not newest[1:].any()
    first = versions.following(0, slots, np.zeros_like(slots))
    second = versions.following(0, slots, first)
    for event in (first, second):
        assert (event == NEVER).tolist() == (~ours).tolist()
        assert not versions.removals(0, slots, event)[1:].any()
    assert versions.prefilled(0, slots).tolist() == ours.tolist()
    assert versions.are_versions(0, slots, np.zeros_like(slots)).tolist() == ours.tolist()
