"""Block size: the best size that was measured, and whether it fits the layers below.

The best size is the smallest that nearly reaches the most bytes per second. A size fits a layer if it is a
multiple of the layer's block size: for any other size the layer must read and rewrite whole blocks. A size is
never said to fit layers that are not visible: below a virtual drive there may be an image or a volume with
its own block size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from durability.bench.catalogue import HEADLINE
from durability.bench.result import LayerBlock, Result
from durability.bench.summary import CellSummary, summarise
from durability.units import counted, few_digits, format_size

NEARLY = 0.9  # share of the most bytes per second that a size must reach to be the best
SIZES_MIN = 3  # sizes that a curve needs before one of them is called the best
_SETTABLE = {
    "recordsize": "set the recordsize to {size}",
    "volblocksize": "make the volume with blocks of {size}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSize:
    """The best size of a curve."""

    block_bytes: int
    bytes_per_s: float
    jobs: int  # writers of the curve
    synced: bool  # whether the writers sync
    largest: bool  # whether this was the largest size measured, so that larger sizes may be better
    known: tuple[LayerBlock, ...]  # known block sizes of the layers below
    unfit: LayerBlock | None  # the first layer that the size does not fit, None if it fits all known layers
    hidden: bool  # whether the machine is virtual, so that lower layers are not visible

    @property
    def text(self) -> str:
        """The best size, its load, its rate and its fit as a sentence."""
        size = format_size(self.block_bytes)
        load = counted(self.jobs, "writer") + ("" if self.synced else " without a sync")
        more = ", the largest measured" if self.largest else ""
        rate = f"{few_digits(self.bytes_per_s / 1e6)} MB/s"
        return f"best size for {load}: {size}{more} ({rate}); {self._fit(size)}"

    def _fit(self, size: str) -> str:
        below = "; blocks below the virtual drive are not visible from here" if self.hidden else ""
        if self.unfit is None:
            if not self.known:
                return f"whether it fits is unknown: no layer says its blocks{below}"
            return f"it fits {', '.join(map(_named, self.known))}{below}"
        block = format_size(self.unfit.block_bytes)
        remedy = _SETTABLE.get(self.unfit.what, "")
        setting = f", or {remedy.format(size=size)}" if remedy else ""
        return (
            f"it does not fit {_named(self.unfit)}, which is rewritten whole: write multiples of"
            f" {block}{setting}"
        )


def best_sizes(result: Result) -> tuple[BestSize, ...]:
    """The best size of each curve of block sizes that was measured."""
    cells = [
        summary
        for one in result.cells
        if one.engine == "durability" and one.rounds and _is_of_a_curve(summary := summarise(one))
    ]
    curves: dict[tuple[int, str, bool], list[CellSummary]] = {}
    for one in cells:
        curves.setdefault((one.cell.jobs, one.cell.sync, one.cell.direct), []).append(one)
    return tuple(_best(result, curve) for curve in curves.values() if len(curve) >= SIZES_MIN)


def _is_of_a_curve(one: CellSummary) -> bool:
    return one.bytes_per_s is not None and (one.cell.group == "block size" or one.cell.name == HEADLINE.name)


def _best(result: Result, curve: Sequence[CellSummary]) -> BestSize:
    sizes = sorted((one.cell.block_bytes, _moved(one)) for one in curve)
    most = max(moved for _, moved in sizes)
    block_bytes, moved = next((size, moved) for size, moved in sizes if moved >= NEARLY * most)
    known = tuple(_known(result))
    cell = curve[0].cell
    return BestSize(
        block_bytes=block_bytes,
        bytes_per_s=moved,
        jobs=cell.jobs,
        synced=cell.sync != "none",
        largest=block_bytes == sizes[-1][0],
        known=known,
        unfit=next((one for one in known if block_bytes % one.block_bytes), None),
        hidden=result.facts.host.virtualisation not in ("none", ""),
    )


def _moved(one: CellSummary) -> float:
    return 0.0 if one.bytes_per_s is None else one.bytes_per_s.median


def _known(result: Result) -> Iterator[LayerBlock]:
    """The known block sizes of the layers, the file system and the drives."""
    yield from result.layer_blocks
    file_system = result.facts.file_system
    if file_system is not None and file_system.block_bytes and file_system.type != "zfs":
        yield LayerBlock(what="blocks", of=file_system.type, block_bytes=file_system.block_bytes)
    for drive in result.facts.drives:
        if drive.physical_block_bytes:
            yield LayerBlock(what="physical blocks", of=drive.name, block_bytes=drive.physical_block_bytes)


def _named(one: LayerBlock) -> str:
    return f"the {one.what} of {one.of} ({format_size(one.block_bytes)})"
