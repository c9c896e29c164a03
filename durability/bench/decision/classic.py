"""Classic rates: the rates that CrystalDiskMark and KDiskMark show, beside the same writes with a sync each.

fio measures the reads and writes, this tool measures the commits. The number of committing writers equals the
number of writes in flight, and each writer waits for its own sync. A drive is bought for its rates without a
sync and used at its rates with a sync, so the last line compares the two. A value that was not measured is
None.
"""

from __future__ import annotations

from dataclasses import dataclass

from durability.bench.catalogue import CLASSIC, Classic
from durability.bench.cells import Cell
from durability.bench.measurement import Engine
from durability.bench.result import Result
from durability.bench.summary import CellSummary, summarise
from durability.units import few_digits, table_percent

_COMPARED = ("RND4K Q1T1", "SEQ1M Q1T1")  # one write at a time, with and without a sync


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicRow:
    """A row of the table. `synced` has as many committing writers as `write` has writes in flight."""

    label: str
    read: CellSummary | None
    write: CellSummary | None
    synced: CellSummary | None

    @property
    def kept(self) -> float | None:
        """Writes per second with a sync after each, divided by those without a sync. None if unknown."""
        if self.write is None or self.synced is None or self.write.rate is None or self.synced.rate is None:
            return None
        return self.synced.rate.median / self.write.rate.median if self.write.rate.median else None


def classic_rows(result: Result) -> tuple[ClassicRow, ...]:
    """The rows of `result` for which fio measured reads or writes. () if there are none."""
    rows = (_row(result, one) for one in CLASSIC)
    return tuple(row for row in rows if row.read is not None or row.write is not None)


def classic_version(result: Result) -> str:
    """The version of fio that measured the classic cells, "" if no cell was measured."""
    return next(
        (one.engine_version for one in result.cells if one.cell.group == "classic" and one.rounds), ""
    )


def sync_cost(rows: tuple[ClassicRow, ...]) -> str:
    """The share of the rate that remains with a sync after each write, as a sentence. "" if not measured."""
    parts: list[str] = []
    for label in _COMPARED:
        row = next((one for one in rows if one.label == label), None)
        if row is not None and row.kept is not None:
            verb = "" if parts else "keeps "
            parts.append(f"{label} {verb}{_per_cent(row.kept)} ({_pair(row)})")
    return f"with a sync after each write, {', '.join(parts)}" if parts else ""


def _pair(row: ClassicRow) -> str:
    """Rates with and without syncs, in the usual unit of the row: IOPS for random rows, else MB/s."""
    assert row.synced is not None and row.write is not None
    assert row.synced.rate is not None and row.write.rate is not None
    if row.label.startswith("RND"):
        return f"{few_digits(row.synced.rate.median)} of {few_digits(row.write.rate.median)} IOPS"
    size_bytes = row.write.cell.block_bytes
    with_sync, without = (one.median * size_bytes / 1e6 for one in (row.synced.rate, row.write.rate))
    return f"{few_digits(with_sync)} of {few_digits(without)} MB/s"


def _per_cent(share: float) -> str:
    if share >= 1:
        return "all"
    return table_percent(share)


def _row(result: Result, one: Classic) -> ClassicRow:
    return ClassicRow(
        label=one.label,
        read=_summary(result, one.read, "fio"),
        write=_summary(result, one.write, "fio"),
        synced=_summary(result, one.synced, "durability"),
    )


def _summary(result: Result, cell: Cell, engine: Engine) -> CellSummary | None:
    for one in result.cells:
        if one.cell.name == cell.name and one.engine == engine and one.rounds:
            return summarise(one)
    return None
