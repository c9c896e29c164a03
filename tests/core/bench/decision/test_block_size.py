"""The best block size: the smallest that moves nearly the most, and whether it fits the layers below."""

from __future__ import annotations

from typing import Any

from durability.bench.catalogue import PROFILES, STANDARD
from durability.bench.cells import KIB, Cell, make_cell
from durability.bench.decision.block_size import best_sizes
from durability.bench.result import LayerBlock, Result
from tests.core.bench.results import Device, facts, simulate

CURVE = tuple(
    cell for cell in STANDARD if cell.group == "block size" or cell is STANDARD[0]
)  # 4, 8, 16, 64 and 128 KiB
FAST = Device(write_ns=1e6, flush_ns=1e6, noise=0.0)  # as long for any size: the largest moves the most


def _result(*blocks: LayerBlock, cells: tuple[Cell, ...] = CURVE, **changes: Any) -> Result:
    return simulate(FAST, cells=cells, layer_blocks=blocks, **changes)


def _of(what: str, kib: int) -> LayerBlock:
    return LayerBlock(what=what, of="tank/data", block_bytes=kib * KIB)


def test_the_smallest_of_the_best_is_taken() -> None:
    """Bytes per second that are nearly the most count as the most."""
    slow = Device(write_ns=1.0, flush_ns=1.0, dirty_bytes_per_s=1e8, noise=0.0)  # the same for any size
    (best,) = best_sizes(simulate(slow, cells=CURVE))
    assert (best.block_bytes, best.largest, best.jobs, best.synced) == (4 * KIB, False, 1, True)
    (best,) = best_sizes(_result())
    assert (best.block_bytes, best.largest) == (128 * KIB, True)
    assert best.text.startswith("best size for 1 writer: 128 KiB, the largest measured (")


def test_it_fits_layers_whose_blocks_it_is_a_multiple_of() -> None:
    """The text names each layer; blocks of the file system and the drive are among them."""
    (best,) = best_sizes(_result(_of("recordsize", 64)))
    assert best.unfit is None
    assert (
        "it fits the recordsize of tank/data (64 KiB), the blocks of ext4 (4 KiB), the physical" in best.text
    )


def test_a_layer_with_larger_blocks_is_named_with_what_to_do() -> None:
    """It rewrites a whole block for each write."""
    (best,) = best_sizes(_result(_of("recordsize", 1024)))
    assert best.unfit == _of("recordsize", 1024)
    assert best.text.endswith(
        "it does not fit the recordsize of tank/data (1 MiB), which is rewritten whole: write multiples of"
        " 1 MiB, or set the recordsize to 128 KiB"
    )
    (best,) = best_sizes(_result(_of("cluster_size", 1024)))
    assert best.text.endswith("write multiples of 1 MiB")


def test_a_guest_is_told_that_it_does_not_see_all() -> None:
    """Below a virtual drive there may be an image or a volume."""
    (best,) = best_sizes(_result(facts=facts(virtualisation="kvm")))
    assert best.hidden and best.text.endswith("; blocks below the virtual drive are not visible from here")


def test_each_curve_has_its_own_and_a_point_is_no_curve() -> None:
    """Eight writers without a sync are another load than one that commits."""
    both = best_sizes(_result(cells=PROFILES["zfs-qcow2"]))
    assert [(one.jobs, one.synced, one.block_bytes >> 10) for one in both] == [
        (8, False, 256),
        (1, True, 128),
    ]
    assert best_sizes(_result(cells=STANDARD[:1])) == ()
    assert best_sizes(_result(cells=(make_cell("block size", "", block_bytes=8 * KIB), STANDARD[0]))) == ()
