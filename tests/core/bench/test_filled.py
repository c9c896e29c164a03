"""How much of the free space a load wrote: parts that it wrote repeatedly count once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.bench.catalogue import HELD_COMMIT, HELD_FILL, HELD_UNSYNCED, HELD_WRITERS
from durability.bench.filled import FILLED_SHARE, Filled, filled
from tests.core.acceptance.samples import accept_result

GIB = 1 << 30


def load(*, size_gib: float, free_gib: int = 150, mib_per_s: float = 12_000.0, kind: str = "") -> Filled:
    """How far a load of 30 s at this rate has come; the other cells' files take twice the size."""
    result = accept_result(
        size_bytes=int(size_gib * GIB), free_bytes=free_gib * GIB, rates={HELD_FILL.name: mib_per_s}
    )
    if kind:
        result = replace(result, facts=replace(result.facts, kind="device", size_bytes=free_gib * GIB))
    found = filled(result)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("size_gib", "kind", "share", "is_most", "says"),
    [
        (0.25, "", 0.797, True, "119.6 GiB of 150 GiB free space written (79.7%), 2.9 times over"),
        (
            32,
            "",
            0.469,
            False,
            "(46.9%), 5.0 times over; the files of the other cells take 62 GiB: --size 16GiB",
        ),
        (
            64,
            "",
            0.139,
            False,
            "(13.8%), 16.9 times over; the files of the other cells take 124 GiB: --size 16GiB",
        ),
        (
            100,
            "",
            0.0,
            False,
            "0 bytes of 150 GiB free space written (0.0%); the files of the other cells take",
        ),
        (64, "device", FILLED_SHARE, True, "120 GiB of 150 GiB free space written (80.0%), 2.9 times over"),
    ],
)
def test_what_is_written_repeatedly_counts_once(
    size_gib: float, kind: str, share: float, is_most: bool, says: str
) -> None:
    """The load covers 80 % of what the files of all cells leave, however long it goes on; on a device it has
    all of that."""
    found = load(size_gib=size_gib, kind=kind)
    assert (round(found.share, 3), found.is_most) == (share, is_most), found
    assert says in found.text, found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("used", "reserved", "size_gib", "is_most", "says"),
    [
        (500, 50, 1, True, "358.4 GiB of 500 GiB free space written (71.6%)"),
        (800, 50, 1, True, "118.4 GiB of 200 GiB free space written (59.2%)"),
        (800, 50, 32, False, "the files of the other cells take 62 GiB: --size 8GiB leaves enough"),
        (880, 50, 1, False, "54.45 GiB of 120 GiB free space written (45.3%), 53.8 times over; the file"),
        (930, 50, 1, False, "the file system keeps 50 GiB of it from programs, so that no --size fills half"),
        (500, None, 1, False, "0 bytes of 500 GiB free space written (0.0%); the result does not say"),
    ],
)
def test_what_is_reserved_is_free_and_not_written(
    used: int, reserved: int | None, size_gib: int, *, is_most: bool, says: str
) -> None:
    """A drive of 1,000 GiB with an ext4 that keeps 5 % for root: a cache may have that space, the load has
    not. Results before version 3 do not say it."""
    result = accept_result(
        size_bytes=size_gib * GIB,
        free_bytes=(1000 - used) * GIB,
        reserved_bytes=None if reserved is None else reserved * GIB,
        rates={HELD_FILL.name: 100_000.0},
    )
    found = filled(result)
    assert found is not None and found.is_most == is_most and says in found.text, found


def test_the_size_that_is_named_leaves_enough() -> None:
    """With it the same load writes half of the free space."""
    assert load(size_gib=16).is_most and not load(size_gib=32).is_most


def test_a_load_that_ended_early_says_how_long_is_enough() -> None:
    """It had not come to the end of its part."""
    found = load(size_gib=1, mib_per_s=500.0)
    assert found.text.startswith(
        "14.65 GiB of 150 GiB free space written (9.7%) in 30 s, until the time was over"
    )


def test_a_result_without_the_load_says_nothing() -> None:
    """Only `bench --accept` has it."""
    assert filled(accept_result(without=(HELD_COMMIT, HELD_WRITERS, HELD_UNSYNCED, HELD_FILL))) is None
