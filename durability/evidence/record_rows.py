"""Whole records as arrays: the content of many records, and their faults, without one object per record.

This applies the same rules as `observation` and `slot_oracle` to the common cases: versions of the slot
itself, zeros, damage, an earlier run's data in place, foreign data, and mixes of these. A row with any other
content is not `plain`, and those modules handle it. Such content is a sector of this run that belongs
elsewhere or is beyond the ceiling.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from durability.evidence.judgement import FindingClass
from durability.evidence.observation import EARLIER_RUN, NO_SEQ, PREFILL
from durability.formats.mixing import U64, Words

Flags = NDArray[np.bool_]
Seqs = NDArray[np.int64]

# A code in `JudgedRows.finding` is a position in this tuple plus 1; 0 means no finding.
ROW_FINDINGS: tuple[FindingClass, ...] = ("foreign", "corrupt", "torn", "lost")
_NONE, _FOREIGN, _CORRUPT, _TORN, _LOST = range(5)

_Table = TypeVar("_Table", "Rows", "JudgedRows")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The content of n records of one writer; each array has shape (n,)."""

    slots: Words
    # Lowest and highest seq of the intact versions of the slot in its sectors; NO_SEQ if there are none.
    lowest: Seqs
    highest: Seqs
    # The next four: whether any sector is in that state of `observation.SectorState`.
    zeros: Flags
    damaged: Flags
    earlier: Flags
    foreign: Flags
    plain: Flags  # all sectors are in one of these states; otherwise the other fields mean nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRows:
    """`Judgement` for n records of one writer; each array has shape (n,)."""

    slots: Words
    finding: NDArray[np.int8]  # 0 for no finding, or a position in ROW_FINDINGS plus 1
    in_flight_damaged: Flags
    out_of_reach: Flags
    order_violation: Flags
    collateral: Flags
    expected: Words
    oldest_lost: Words  # 0 for none


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFaults:
    """`Faults` of n records under one pair of frontiers."""

    finding: NDArray[np.int8]
    damaged: Flags
    out_of_reach: Flags
    found: Seqs


def select(rows: _Table, chosen: NDArray[np.intp] | Flags | slice) -> _Table:
    """The selected rows."""
    return type(rows)(**{field.name: getattr(rows, field.name)[chosen] for field in fields(rows)})


def among(slots: Words, ascending: Words) -> Flags:
    """Which of `slots` are in `ascending`. Numpy's `isin` would sort both arrays on each call."""
    positions = np.searchsorted(ascending, slots)
    there = positions < len(ascending)
    there[there] = ascending[positions[there]] == slots[there]
    return there


def joined(parts: Iterable[Rows]) -> Rows | None:
    """All rows of `parts`, ascending by slot; None if there are no parts."""
    every = list(parts)
    if not every:
        return None
    together = Rows(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in every])
            for field in fields(Rows)
        }
    )
    return select(together, np.argsort(together.slots, kind="stable"))


def whole_rows(slots: Words, seqs: Words) -> Rows:
    """Rows that hold one version each."""
    no = np.zeros(len(slots), dtype=np.bool_)
    found = seqs.astype(np.int64)
    return Rows(
        slots=slots,
        lowest=found,
        highest=found,
        zeros=no,
        damaged=no,
        earlier=no,
        foreign=no,
        plain=~no,
    )


def faults(
    rows: Rows, *, expected: Words, latest: Words, endless: bool, prefilled: bool, run_began: bool
) -> RowFaults:
    """What is wrong if `expected` are the newest acknowledged versions and `latest` the newest issued ones.

    `prefilled`: slots have a prefill, so zeros are not legal content. `run_began`: the prefill, or what
    replaces it, is known to have been durable, so an earlier run's data are outdated.
    """
    excused = latest > expected
    tail = (expected == U64(0)) & endless
    wanted = expected.astype(np.int64)
    versions = rows.highest != NO_SEQ
    stale = versions & (rows.lowest < wanted)
    legal = versions & (rows.highest >= wanted)
    blank = rows.damaged | (rows.zeros & prefilled)
    empty = rows.zeros & (not prefilled)
    earlier = rows.earlier & run_began
    foreign = rows.foreign | (rows.earlier & (not run_began))
    kinds = stale.astype(np.int8) + empty + earlier
    alone = (kinds == 1) & ~legal & ~blank & ~foreign & (~stale | (rows.lowest == rows.highest))
    finding = np.where(kinds > 0, np.where(alone, _LOST, _TORN), _NONE)
    finding = np.where(blank & ~excused, _CORRUPT, finding)
    finding = np.where(foreign, _FOREIGN, finding)
    found = np.where(stale, rows.lowest, NO_SEQ)
    found = np.where(empty, PREFILL, found)
    found = np.where(earlier, EARLIER_RUN, found)
    odd = rows.damaged | rows.earlier | rows.foreign
    return RowFaults(
        finding=np.where(tail, _NONE, finding).astype(np.int8),
        damaged=excused & np.where(tail, odd, blank),
        out_of_reach=tail & ~excused,
        found=np.where(tail, NO_SEQ, found),
    )


def alike(rows: Rows, others: Rows) -> Flags:
    """Where both rows have the same content. A row that is not plain equals no other row."""
    same = rows.plain & others.plain
    for name in ("lowest", "highest", "zeros", "damaged", "earlier", "foreign"):
        same &= getattr(rows, name) == getattr(others, name)
    return same
