"""A plan holds nothing that contradicts itself, and survives its encoding."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability import limits
from durability.errors import FormatError, PlanError
from durability.formats.packing import pack, unpack
from durability.formats.plan import CONTROL, MAIN, Name, Plan, parse_name

MakePlan = Callable[..., Plan]


def test_a_plan_survives_its_encoding(make_plan: MakePlan) -> None:
    """A decoded plan equals the encoded one."""
    plan = make_plan(sync="dsync", direct=True, writers=7)
    assert Plan.decode(plan.encode()) == plan


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"run": 0}, "run is not a positive"),
        ({"record_bytes": 1000}, "record_bytes 1000 is not a multiple"),
        ({"record_bytes": 2 << 20}, "record_bytes"),
        ({"writers": 0}, "writers 0"),
        ({"sync": "hope"}, "sync 'hope'"),
        ({"sync": "dsync", "group": 8}, "no meaning with dsync"),
        ({"group": 200}, "less than 2 groups"),
        ({"slots": 999}, "fewer than 1000, as the credit 250 needs"),
        ({"workload": "append"}, "append needs a file"),
        ({"workload": "append", "pattern": "sequential", "target_kind": "device"}, "append needs a file"),
        ({"workload": "create"}, "create needs a file and is always sequential"),
        ({"workload": "rename", "target_kind": "device"}, "rename needs a file"),
        ({"workload": "unlink", "target_kind": "device"}, "unlink needs a file"),
        ({"workload": "link"}, "workload 'link' is not one of overwrite, append, create, rename, unlink"),
        ({"control_slots": -1}, "control_slots"),
    ],
)
def test_a_contradiction_is_refused_by_name(
    make_plan: MakePlan, changes: dict[str, Any], complaint: str
) -> None:
    """Each rule of the plan names the field that breaks it."""
    with pytest.raises(PlanError, match=complaint):
        make_plan(**changes)


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"slots": "many"}, {"direct": 1}, {"extra": 1}, {"run": 1.5}]
)
def test_a_foreign_plan_is_refused(make_plan: MakePlan, change: dict[str, Any]) -> None:
    """Another version, a wrong type or an unknown field is refused, never guessed at."""
    value = unpack(make_plan().encode())
    assert isinstance(value, dict)
    with pytest.raises(PlanError):
        Plan.decode(pack({**value, **change}))


@given(data=st.binary(max_size=300))
def test_garbage_is_no_plan(data: bytes) -> None:
    """Any bytes are refused with a FormatError and nothing else."""
    with pytest.raises(FormatError):
        Plan.decode(data)


@pytest.mark.parametrize("kind", ["file", "device"])
@pytest.mark.parametrize("record_bytes", [512, 4096, 12288, 1 << 20])
def test_no_two_places_overlap(make_plan: MakePlan, kind: str, record_bytes: int) -> None:
    """Superblocks, writers and control arm lie beside each other, and records are aligned to the block."""
    plan = make_plan(target_kind=kind, record_bytes=record_bytes, writers=3)
    spans = [(start, start + limits.SUPERBLOCK_BYTES) for start in plan.superblock_offsets]
    spans += [(extent.offset_bytes, extent.end_bytes) for extent in plan.extents() if extent.suffix == MAIN]
    spans.sort()
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert spans[-1][1] == plan.main_bytes
    control = plan.extent(plan.control_writer)
    assert control.offset_bytes % control.record_bytes == 0
    assert (control.suffix == MAIN) == (kind == "device")


def test_an_append_writer_goes_on_in_a_new_file(make_plan: MakePlan) -> None:
    """Generation G of an append writer is a file of its own that starts with record G * slots + 1."""
    plan = make_plan(workload="append", pattern="sequential")
    extent = plan.extent(1, number=2)
    assert (extent.suffix, extent.first_slot, extent.offset_bytes) == (".1.2", 2000, 0)
    assert extent.offset_of(2001) == 4096
    assert plan.extent_of(1, 2001) == extent


@pytest.mark.parametrize("workload", ["create", "rename", "unlink"])
def test_a_slot_that_is_a_name_is_a_file_of_its_own(make_plan: MakePlan, workload: str) -> None:
    """One record at its beginning; the main file holds the superblocks only, and no name is an extent."""
    plan = make_plan(workload=workload, pattern="sequential")
    extent = plan.extent_of(1, 700)
    assert extent == plan.extent(1, 700)
    assert (extent.suffix, extent.first_slot, extent.slots, extent.offset_of(700)) == (".1.700", 700, 1, 0)
    assert plan.main_bytes == 2 * limits.SUPERBLOCK_BYTES
    assert [one.writer for one in plan.extents()] == [plan.control_writer]
    assert plan.prefilled_names == (0 if workload == "create" else plan.slots)


@given(writer=st.integers(0, 300), number=st.integers(0, limits.SLOTS_MAX - 1), temporary=st.booleans())
def test_a_name_is_known_by_its_suffix(writer: int, number: int, temporary: bool) -> None:
    """A file's suffix is parsed back to its name."""
    name = Name(writer, number, temporary)
    assert parse_name(name.suffix) == name


@pytest.mark.parametrize(
    "suffix",
    [
        MAIN,
        CONTROL,
        ".0",
        ".0.",
        ".0.1.2",
        ".0.01",
        ".00.1",
        ".0.-1",
        ".0.1.tmp.tmp",
        "0.1",
        ".a.1",
        ".0.1 ",
        ".0.²",
    ],
)
def test_what_no_plan_calls_a_file_is_no_name(suffix: str) -> None:
    """The files of others beside the target are not taken for the run's."""
    assert parse_name(suffix) is None
    assert parse_name(f".0.{limits.SLOTS_MAX}") is None
