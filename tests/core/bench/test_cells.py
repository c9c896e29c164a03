"""Cells: names that say all, parameters that do not contradict each other, and every row that is promised."""

from __future__ import annotations

from typing import Any

import pytest

from durability.bench.catalogue import HEADLINE, LADDER, PROFILES, QUICK, STANDARD, sustained
from durability.bench.cells import GROUPS, KIB, MIB, Cell, make_cell, size_word
from durability.errors import FormatError
from tests.core.bench.results import planned_s

CHANGES: dict[str, Any] = {
    "block_bytes": 8 * KIB,
    "pattern": "sequential",
    "sync": "fsync",
    "direct": True,
    "file_state": "sparse",
    "jobs": 4,
    "shared": True,
    "writes_per_sync": 8,
    "pace_us": 500,
    "data": "zeros",
    "place": "memory",
    "depth": 16,
}
PROMISED: tuple[dict[str, Any], ...] = (
    {
        "pattern": "random",
        "sync": "fdatasync",
        "block_bytes": 4 * KIB,
        "jobs": 1,
        "file_state": "overwritten",
    },
    {"sync": "fsync", "block_bytes": 4 * KIB, "jobs": 1, "workload": "overwrite"},
    {"sync": "dsync", "direct": True},
    {"pattern": "sequential", "workload": "overwrite", "block_bytes": 4 * KIB},
    {"workload": "append", "sync": "fdatasync", "block_bytes": 4 * KIB},
    {"workload": "append", "sync": "fdatasync", "block_bytes": 2300, "p99_limit_ms": 10.0},
    *({"block_bytes": kib * KIB, "jobs": 1, "sync": "fdatasync"} for kib in (4, 8, 16, 64, 128)),
    *({"jobs": jobs, "shared": False, "block_bytes": 4 * KIB} for jobs in (1, 2, 4, 8, 16)),
    {"shared": True},
    *({"writes_per_sync": writes, "block_bytes": 4 * KIB, "direct": False} for writes in (8, 32)),
    {"workload": "create", "sync": "fsync", "file_state": "fresh"},
    *(
        {"workload": "mix", "read_percent": 60, "block_bytes": 16 * KIB, "sync": sync}
        for sync in ("fdatasync", "none")
    ),
    {"block_bytes": 64 * KIB, "jobs": 16, "writes_per_sync": 1},
    {"pace_us": 1000},
    {"direct": True, "sync": "none", "workload": "overwrite"},
    {"workload": "flush"},
    {"place": "memory"},
    *({"file_state": state, "workload": "overwrite"} for state in ("overwritten", "fresh", "sparse")),
    *({"group": "data probe", "data": data} for data in ("zeros", "repeated", "half", "unique")),
)


@pytest.mark.parametrize("wanted", PROMISED, ids=str)
def test_the_standard_run_has_every_promised_row(wanted: dict[str, Any]) -> None:
    """A cell with these parameters is measured by a run without options."""
    assert any(all(getattr(cell, name) == value for name, value in wanted.items()) for cell in STANDARD)


def test_the_ladder_goes_from_64_kib_to_64_mib() -> None:
    """Each step has the kernel hand over more before the one flush, past the page cache."""
    assert [step.dirty_bytes for step in LADDER] == [64 * KIB << shift for shift in range(0, 12, 2)]
    assert all(step.direct and step.sync == "fdatasync" and step in STANDARD for step in LADDER)


@pytest.mark.parametrize("cells", [STANDARD, QUICK, sustained(), *PROFILES.values()])
def test_a_set_has_each_name_once_with_the_state_of_the_file(cells: tuple[Cell, ...]) -> None:
    """A name says which cell of a set is meant, and on what kind of file it was measured."""
    assert len({cell.name for cell in cells}) == len(cells)
    assert all(cell.name.endswith(f"-{cell.file_state}") for cell in cells)
    assert all(cell.group in GROUPS and cell.about and len(cell.about) <= 110 for cell in cells)


@pytest.mark.parametrize("change", CHANGES)
def test_every_parameter_is_in_the_name(change: str) -> None:
    """Two cells of one name are the same measurement."""
    assert make_cell("commit", "", **{change: CHANGES[change]}).name != HEADLINE.name


def test_a_name_is_the_same_measurement_in_every_set() -> None:
    """Only how long it is measured depends on the set."""
    apart = ("group", "about", "seconds", "warmup_s", "rounds", "fio", "p99_limit_ms")
    seen: dict[str, dict[str, Any]] = {}
    for cell in (*STANDARD, *QUICK, *(cell for cells in PROFILES.values() for cell in cells)):
        fields = {name: getattr(cell, name) for name in Cell.__slots__ if name not in apart}
        assert seen.setdefault(cell.name, fields) == fields


def test_fio_is_asked_for_the_cells_that_it_can_measure_alike() -> None:
    """Headline, fsync, O_DIRECT with O_DSYNC, 16 KiB and four jobs."""
    marked = [cell for cell in STANDARD if cell.fio]
    assert [(cell.sync, cell.direct, cell.block_bytes, cell.jobs) for cell in marked] == [
        ("fdatasync", False, 4 * KIB, 1),
        ("fsync", False, 4 * KIB, 1),
        ("dsync", True, 4 * KIB, 1),
        ("fdatasync", False, 16 * KIB, 1),
        ("fdatasync", False, 4 * KIB, 4),
    ]


def test_a_run_fits_its_time() -> None:
    """The measured time leaves a fifth of the minute, or of the 20 s of a quick run, for other work."""
    assert 40 <= planned_s(STANDARD) <= 48
    assert 11 <= planned_s(QUICK) <= 15
    assert all(cell.rounds == 5 for cell in STANDARD) and all(cell.rounds == 3 for cell in QUICK)
    assert max(STANDARD, key=lambda cell: cell.seconds) == HEADLINE


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"block_bytes": 0}, "block_bytes is 0"),
        ({"block_bytes": 2 * MIB}, "block_bytes"),
        ({"jobs": 65}, "jobs is 65"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"seconds": 0.0}, "seconds"),
        ({"rounds": 0}, "rounds"),
        ({"read_percent": 60}, "60 % reads"),
        ({"workload": "mix"}, "0 % reads"),
        ({"sync": "none", "writes_per_sync": 1}, "writes to a sync"),
        ({"writes_per_sync": 0}, "writes to a sync"),
        ({"sync": "dsync", "writes_per_sync": 8}, "each write is a sync"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], match: str) -> None:
    """A cell that could not be measured cannot be made."""
    with pytest.raises(FormatError, match=match):
        make_cell("commit", "", **changes)


def test_what_needs_a_file_system_says_so() -> None:
    """Files that grow, are made or have holes exist on no bare device; memory does not need the target."""
    needing = {cell.file_state for cell in STANDARD if cell.needs_file_system}
    assert needing == {"fresh", "sparse"}
    assert not make_cell("controls", "", place="memory", file_state="fresh").needs_file_system


@pytest.mark.parametrize(
    ("size_bytes", "word"), [(4096, "4k"), (2300, "2300b"), (1 << 20, "1m"), (512, "512b")]
)
def test_sizes_in_names(size_bytes: int, word: str) -> None:
    """A size has the largest unit that divides it."""
    assert size_word(size_bytes) == word


@pytest.mark.parametrize(
    ("sync", "apart"),
    [("fdatasync", True), ("fsync", True), ("dsync", False), ("osync", False), ("none", False)],
)
def test_a_sync_is_timed_apart_where_it_is_a_call(sync: str, apart: bool) -> None:
    """A write that syncs itself, or none at all, leaves no sync call to time."""
    assert make_cell("commit", "", sync=sync).has_sync == apart
