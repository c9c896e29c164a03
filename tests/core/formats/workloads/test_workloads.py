"""Workloads are known by name, and say what the rest of the program asks of them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from durability.errors import PlanError
from durability.formats.mixing import U64
from durability.formats.workloads.registry import DEFAULT, WORKLOADS, workload
from durability.formats.workloads.workload import NEVER
from tests.core.evidence.memory_target import ENDLESS, MakePlan, small

LAYOUTS = {"overwrite": "region", "append": "log", "create": "names", "rename": "names", "unlink": "names"}


def test_workloads_are_registered_by_their_names() -> None:
    """Each is found by the name that it has; `overwrite` is what runs do unless told."""
    assert {name: one.layout for name, one in WORKLOADS.items()} == LAYOUTS
    assert all(workload(name).name == name for name in WORKLOADS)
    assert DEFAULT == "overwrite"


def test_a_name_that_is_none_is_refused(make_plan: MakePlan) -> None:
    """Alone and in a plan, with those that there are."""
    with pytest.raises(
        PlanError, match="workload 'knit' is not one of overwrite, append, create, rename, unlink"
    ):
        workload("knit")
    with pytest.raises(
        PlanError, match="workload 'knit' is not one of overwrite, append, create, rename, unlink"
    ):
        make_plan(workload="knit")


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_a_value(name: str) -> None:
    """It cannot be changed, and a copy that went to another process is equal to it."""
    one = workload(name)
    with pytest.raises(AttributeError):
        one.name = "other"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(one)) == copy.copy(one) == one


@pytest.mark.parametrize("name", WORKLOADS)
def test_slots_are_prefilled_but_for_those_that_are_put_once(name: str) -> None:
    """Slots are prefilled, except in workloads that put each slot only once."""
    one = workload(name)
    assert one.endless == (name in ENDLESS)
    assert one.prefilled == (name not in ENDLESS)


def test_only_create_removes_a_name_with_the_operation_that_makes_one(make_plan: MakePlan) -> None:
    """Each operation of `create` removes the name that is older by the number of kept names; no other
    workload does that."""
    slots = np.array([0, 63, 64, 1000], dtype=U64)
    for name in WORKLOADS:
        plan = small(make_plan, workload=name)
        removed = plan.contract.removed_with(plan.schedule(0), slots)
        never = int(NEVER)
        assert removed.tolist() == ([never, never, 0, 936] if name == "create" else [never] * 4)


def test_room_that_a_writer_takes_beside_the_target() -> None:
    """Three full files of a log; a name per slot, and those of a group that is not synced."""
    room = {
        name: one.room_needed(slots=100, group=8, record_bytes=512, name_bytes=5120)
        for name, one in WORKLOADS.items()
    }
    names = (108 * 5120, 108)
    assert room == {
        "overwrite": (0, 0),
        "append": (3 * 100 * 512, 3),
        "create": names,
        "rename": names,
        "unlink": names,
    }


def test_syncs_that_rest_on_the_file_systems_commit() -> None:
    """Syncs of files whose length or time changes rest on the file system's commit. A sync of names syncs the
    directory."""
    resting = {
        name: [sync for sync in ("fsync", "fdatasync", "dsync", "osync") if one.rests_on_commit(sync)]
        for name, one in WORKLOADS.items()
    }
    assert resting == {
        "overwrite": ["fsync", "osync"],
        "append": ["fsync", "fdatasync", "dsync", "osync"],
        "create": [],
        "rename": [],
        "unlink": [],
    }
    journalled = [name for name, one in WORKLOADS.items() if one.rests_on_commit("dsync", in_journal=True)]
    assert journalled == ["overwrite", "append"]
