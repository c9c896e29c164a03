"""Inflation: whether a layer compresses or deduplicates, so that figures measured with zeros are worthless.

The same cell is measured with unique, incompressible data and with data that compress or repeat. Inflation is
flagged if the rate, or the bytes that reached the drives, differ clearly. The intervals must not overlap. The
ratio round by round must be at least `INFLATED`, since zeros are also slightly faster to copy. If bytes do
not reach the drive, the file system or a layer above the drive saved them. If all bytes reach the drive and
the rate is higher, the drive saved them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from durability.bench.cells import KIB, Cell, Data
from durability.bench.intervals import Ratio, Spread, paired_ratio, spread
from durability.bench.measurement import Round
from durability.bench.result import CellRounds
from durability.units import ratio_text

INFLATED = 1.1  # least ratio that is flagged
_SHARE_MIN = 0.001  # least share of written bytes: lower shares count as this, so that ratios are finite

_WORDS: dict[Data, str] = {
    "half": "blocks of which half is zeros",
    "repeated": "one block repeated",
    "zeros": "zeros",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inflation:
    """A cell with data that compress or repeat, compared with the same cell with unique data."""

    cell: Cell
    inflated: bool  # whether inflation is flagged
    rate: Ratio | None  # ratio of operations per second, None if unknown
    written: Ratio | None  # ratio of the bytes that reached the drives per byte written, None if unknown
    text: str  # the finding in words


def inflations(measured: Iterable[CellRounds]) -> tuple[Inflation, ...]:
    """The inflation of each cell in `measured` with data that are not unique, if the same cell was also
    measured with unique data."""
    cells = [one for one in measured if one.engine == "durability" and one.rounds]
    unique = {_apart_from_data(one.cell): one.rounds for one in cells if one.cell.data == "unique"}
    return tuple(
        _judge(one.cell, one.rounds, unique[key])
        for one in cells
        if one.cell.data != "unique" and (key := _apart_from_data(one.cell)) in unique
    )


def _apart_from_data(cell: Cell) -> tuple[object, ...]:
    return (
        *(cell.workload, cell.block_bytes, cell.pattern, cell.sync, cell.direct, cell.file_state),
        *(cell.jobs, cell.shared, cell.writes_per_sync, cell.read_percent, cell.pace_us, cell.place),
    )


def _judge(cell: Cell, rounds: Sequence[Round], unique: Sequence[Round]) -> Inflation:
    rates, unique_rates = ([one.rate for one in some] for some in (rounds, unique))
    faster = paired_ratio(rates, unique_rates)
    written, unique_written = _written(cell, rounds), _written(cell, unique)
    less = paired_ratio(written, unique_written)
    saves = _separate(spread(written), spread(unique_written)) and _exceeds(less and less.inverse())
    gains = _separate(spread(unique_rates), spread(rates)) and _exceeds(faster)
    return Inflation(
        cell=cell,
        rate=faster,
        written=less,
        inflated=saves or gains,
        text=_text(_WORDS[cell.data], faster, less, saves=saves, gains=gains),
    )


def _written(cell: Cell, rounds: Sequence[Round]) -> list[float]:
    """Bytes that reached the drives per byte written, for each round in which this is known."""
    per_operation = cell.dirty_bytes or cell.block_bytes
    shares = []
    for one in rounds:
        if one.work is None or not one.work.operations:
            continue
        known = [disk.write_kib for disk in one.work.disks if disk.write_kib is not None]
        if known:
            share = sum(known) * KIB / (one.work.operations * per_operation)
            shares.append(max(share, _SHARE_MIN))
    return shares


def _separate(below: Spread | None, above: Spread | None) -> bool:
    """Whether the interval of `below` lies completely below the interval of `above`."""
    return (
        below is not None
        and above is not None
        and below.high is not None
        and above.low is not None
        and below.high < above.low
    )


def _exceeds(ratio: Ratio | None) -> bool:
    """Whether even the low end of the ratio's interval is above what faster copying explains."""
    return ratio is not None and ratio.low is not None and ratio.low >= INFLATED


def _text(what: str, faster: Ratio | None, less: Ratio | None, *, saves: bool, gains: bool) -> str:
    rate = f"{ratio_text(faster.value)} times the rate" if faster is not None else "the rate is unknown"
    written = f"{ratio_text(less.value)} times the bytes reach the drives" if less is not None else ""
    figures = f"{rate}, {written}" if written else rate
    if saves:
        return f"{what}: {figures}: the file system or a layer above the drives compresses or deduplicates"
    if gains:
        where = "the drive, or a layer inside it," if less is not None else "a layer below"
        return f"{what}: {figures}: {where} compresses or deduplicates"
    return f"{what}: {figures}: no inflation shown"
