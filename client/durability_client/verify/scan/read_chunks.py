"""Pieces and chunks: a piece is consecutive slots of one file that are read at once; a chunk is its data.

Only this module converts between slots, rows (slots counted from the start of a piece), bytes and sectors. It
neither reads nor judges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from durability import limits
from durability.formats.mixing import U64, Words
from durability.formats.plan import Extent
from durability_client.verify.scan.target_reader import CHUNK_BYTES, Content

_GAP_BYTES = 256 << 10  # reading over a gap of this size costs a drive less than another request


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """`slots` slots of `extent` from `first_slot` on. `wanted`: the slots to examine, or None for all."""

    extent: Extent
    first_slot: int
    slots: int
    wanted: Words | None = None

    @property
    def offset(self) -> int:
        """Byte of the file at which the first slot starts."""
        return self.extent.offset_of(self.first_slot)

    @property
    def length(self) -> int:
        """Length of all slots in bytes."""
        return self.slots * self.extent.record_bytes

    @property
    def wanted_slots(self) -> Words:
        """The slots to examine, ascending: `wanted`, or all slots of the piece."""
        if self.wanted is not None:
            return self.wanted
        return np.arange(self.first_slot, self.first_slot + self.slots, dtype=U64)


class Chunk:
    """The data that a read of `piece` returned, valid until its buffer is used again."""

    def __init__(self, piece: Piece, content: Content) -> None:
        self.piece = piece
        self.content = content
        self._record_bytes = piece.extent.record_bytes
        self.whole = len(content.data) // self._record_bytes  # number of complete records

    @cached_property
    def doubtful(self) -> frozenset[int]:
        """The rows that cannot be compared, because they are partly unreadable or incomplete."""
        touched = (
            range(span.start // self._record_bytes, -(-span.end // self._record_bytes))
            for span in self.content.unreadable
        )
        return frozenset(range(self.whole, self.piece.slots)).union(*touched)

    def words(self, rows: Sequence[int] | NDArray[np.intp] | None = None) -> Words:
        """The complete records, or those of `rows` (ascending), one per row of the array."""
        data = self.content.data[: self.whole * self._record_bytes]
        words = np.frombuffer(data, dtype=U64).reshape(self.whole, self._record_bytes // 8)
        return words if rows is None or len(rows) == len(words) else words[np.asarray(rows, dtype=np.intp)]

    def record(self, row: int) -> memoryview:
        """The bytes of one record, fewer at the end of the file."""
        return self.content.data[row * self._record_bytes : (row + 1) * self._record_bytes]

    def unreadable_sectors(self, row: int) -> frozenset[int]:
        """The sectors of one record whose reads failed, counted from its start."""
        start, stop = row * self._record_bytes, (row + 1) * self._record_bytes
        spans = (
            range(
                (max(span.start, start) - start) // limits.SECTOR_BYTES,
                -(-(min(span.end, stop) - start) // limits.SECTOR_BYTES),
            )
            for span in self.content.unreadable
            if span.start < stop and span.end > start
        )
        return frozenset[int]().union(*spans)


def pieces_within(extent: Extent, slots: int) -> Iterator[Piece]:
    """The first `slots` slots of `extent`."""
    per_piece = max(1, CHUNK_BYTES // extent.record_bytes)
    for start in range(0, slots, per_piece):
        yield Piece(extent=extent, first_slot=extent.first_slot + start, slots=min(per_piece, slots - start))


def pieces_around(extent: Extent, slots: Words) -> Iterator[Piece]:
    """Pieces of `extent` that hold `slots` (ascending), without the larger gaps between them."""
    if not len(slots):
        return
    for wanted in np.split(slots, _breaks(extent, slots)):
        first, last = int(wanted[0]), int(wanted[-1])
        yield Piece(extent=extent, first_slot=first, slots=last - first + 1, wanted=wanted)


def bytes_around(extent: Extent, slots: Words) -> int:
    """Total bytes of the pieces of `pieces_around`."""
    if not len(slots):
        return 0
    breaks = _breaks(extent, slots)
    gaps = slots[breaks] - slots[breaks - 1] - U64(1)
    return (int(slots[-1] - slots[0]) + 1 - int(gaps.sum())) * extent.record_bytes


def _breaks(extent: Extent, slots: Words) -> NDArray[np.intp]:
    """Indices into `slots` at which a new piece begins."""
    per_piece = max(1, CHUNK_BYTES // extent.record_bytes)
    gap = max(1, _GAP_BYTES // extent.record_bytes)
    numbers = (slots - U64(extent.first_slot)) // U64(per_piece)
    return np.flatnonzero((np.diff(slots) > U64(gap)) | (np.diff(numbers) > 0)) + 1
