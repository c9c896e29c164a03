"""Lookups: reads the contents of many names of the target at a time.

A name that cannot be found, or whose metadata are damaged, is missing. A name whose file cannot be opened or
read because of an I/O error is unreadable. The list of the directory is not used here: each name is opened by
itself, and opened again for each lookup. This module does not decide which names should exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from durability import limits
from durability.evidence.name_oracle import MISSING, FoundNames
from durability.formats.mixing import U64, Words
from durability.formats.plan import Name, Plan
from durability_client.target.storage import MEDIUM_ERRORS, Storage
from durability_client.verify.scan.target_reader import Content, Reader, aligned_buffer

_NAMES = 256  # names per lookup, at most
_BATCH_BYTES = 1 << 20
_BEYOND_BYTES = 4096  # bytes read past the record, to find files that are too long


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """Names of one writer to look up at once: those of `slots` (ascending), or their `temporary` names."""

    writer: int
    slots: Words
    temporary: bool = False


class NameLookup:
    """Looks up names of one plan. For `tick` see `Reader`."""

    def __init__(self, storage: Storage, plan: Plan, *, block_bytes: int, tick: Callable[[], None]) -> None:
        self._storage = storage
        self._record_bytes = plan.record_bytes
        self._block_bytes = block_bytes
        self._tick = tick
        self._row_bytes = -(-plan.record_bytes // _BEYOND_BYTES) * _BEYOND_BYTES + _BEYOND_BYTES
        self._rows = max(1, min(_NAMES, _BATCH_BYTES // plan.record_bytes))

    def buffer(self) -> memoryview:
        """A buffer for the contents of one request."""
        return aligned_buffer(self._rows * self._row_bytes)

    def requests(self, writer: int, slots: Words, *, temporary: bool = False) -> Iterator[LookupRequest]:
        """Requests for `slots` (ascending); each has at most as many names as fit in a buffer."""
        for start in range(0, len(slots), self._rows):
            yield LookupRequest(writer, slots[start : start + self._rows], temporary)

    def look_up(self, request: LookupRequest, buffer: memoryview) -> FoundNames:
        """Read the contents of the names of `request` into `buffer`.

        Raises OSError for any error that is not the medium's.
        """
        lengths = np.empty(len(request.slots), dtype=np.int64)
        unreadable: dict[int, frozenset[int]] = {}
        for row, slot in enumerate(request.slots.tolist()):
            view = buffer[row * self._row_bytes : (row + 1) * self._row_bytes]
            suffix = Name(request.writer, slot, request.temporary).suffix
            length, lost = self._read(suffix, view)
            lengths[row] = length
            view[max(0, length) :] = bytes(len(view) - max(0, length))  # clears data of the last request
            if lost:
                unreadable[row] = lost
        words = np.frombuffer(buffer[: len(lengths) * self._row_bytes], dtype=U64).reshape(len(lengths), -1)
        return FoundNames(
            writer=request.writer,
            slots=request.slots,
            lengths=lengths,
            words=words[:, : self._record_bytes // 8],
            unreadable=unreadable,
        )

    def _read(self, suffix: str, view: memoryview) -> tuple[int, frozenset[int]]:
        """Read one name. Returns the bytes present, at most a record and `_BEYOND_BYTES`, and the unreadable
        sectors of the record."""
        try:
            with Reader(self._storage, suffix, block_bytes=self._block_bytes, tick=self._tick) as reader:
                content = reader.read(view, 0, self._record_bytes + _BEYOND_BYTES)
        except FileNotFoundError:
            self._tick()
            return MISSING, frozenset()
        except OSError as error:
            if error.errno not in MEDIUM_ERRORS:
                raise
            self._tick()
            return self._record_bytes, frozenset(range(self._record_bytes // limits.SECTOR_BYTES))
        return len(content.data), self._lost(content)

    def _lost(self, content: Content) -> frozenset[int]:
        """The sectors of the record that cannot be read."""
        spans = (
            range(
                span.start // limits.SECTOR_BYTES,
                -(-min(span.end, self._record_bytes) // limits.SECTOR_BYTES),
            )
            for span in content.unreadable
        )
        return frozenset[int]().union(*spans)
