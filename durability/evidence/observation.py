"""What one slot holds, sector by sector, without a judgement.

Each sector is classified alone, by its content and its place. The result depends only on the plan and the
bytes. `slot_oracle` decides which versions are legal. A sector whose checks fail shows nothing, whatever its
header looks like.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from durability import limits
from durability.formats.plan import Plan
from durability.formats.record import KIND_RECORD, KIND_SUPERBLOCK, SECTOR_WORDS, Sectors, parse
from durability.formats.versions import Versions

# version: an intact sector of this very slot
# stray: intact, of this run, but of another place
# earlier: intact, of another run on this target, written to this place
# foreign: intact, but none of these
# zero: only zeros
# damaged: its checks fail
# unreadable: the read failed
# absent: past the end of the file or device
# missing (names only): the name does not exist
# excess (names only): the file continues after the end of the record
SectorState: TypeAlias = Literal[
    "version", "stray", "earlier", "foreign", "zero", "damaged", "unreadable", "absent", "missing", "excess"
]

PREFILL = 0
EARLIER_RUN = -1  # in place of a seq: an earlier run's data, which are older than the prefill
NO_SEQ = -2
SUPERBLOCK_WRITER = -1  # in place of a writer: a superblock; its slot is the number of the copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Neighbouring sectors of one record with the same state and claims."""

    state: SectorState
    sectors: int  # number of sectors
    seq: int = NO_SEQ  # the version, for `version` and `stray`; else NO_SEQ
    # The next four are what the sectors claim, if they are intact.
    run: int = 0
    writer: int = 0
    slot: int = 0
    offset: int = 0  # byte offset of the first sector


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What slot `slot` of `writer` holds; the spans cover the record in order (`excess` comes after it)."""

    writer: int
    slot: int
    spans: tuple[Span, ...]

    @property
    def whole_version(self) -> int | None:
        """The version that all sectors hold, or None."""
        first = self.spans[0]
        return first.seq if len(self.spans) == 1 and first.state == "version" else None

    @property
    def unreadable(self) -> bool:
        """Whether the read of any sector failed."""
        return any(span.state == "unreadable" for span in self.spans)

    @property
    def missing(self) -> bool:
        """Whether the name does not exist."""
        return self.spans[0].state == "missing"


def whole(writer: int, slot: int, seq: int, sectors: int) -> Observation:
    """The observation of a slot that is known to hold version `seq` in all its sectors."""
    return Observation(
        writer=writer,
        slot=slot,
        spans=(Span(state="version", sectors=sectors, seq=seq, writer=writer, slot=slot),),
    )


def missing(writer: int, slot: int, sectors: int) -> Observation:
    """The observation of a slot whose name does not exist."""
    return Observation(writer=writer, slot=slot, spans=(Span(state="missing", sectors=sectors),))


class Observer:
    """Observes slots of one plan. Observations do not depend on earlier ones."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._versions = Versions(plan)

    def observe(
        self, writer: int, slot: int, data: bytes | bytearray | memoryview, unreadable: Collection[int] = ()
    ) -> Observation:
        """The content of `data`, read at the slot's place. Shorter data mean that the file ends there.
        `unreadable`: numbers of the sectors within the record whose reads failed; their bytes in `data` are
        ignored."""
        _, offset, record_bytes = self._versions.place(writer, slot)
        present = min(len(data), record_bytes) // limits.SECTOR_BYTES
        usable = memoryview(data)[: present * limits.SECTOR_BYTES]
        sectors = parse(usable)
        words = np.frombuffer(usable, dtype="<u8").reshape(-1, SECTOR_WORDS)
        spans: list[Span] = []
        for index in range(record_bytes // limits.SECTOR_BYTES):
            if index in unreadable:
                span = Span(state="unreadable", sectors=1)
            elif index >= present:
                span = Span(state="absent", sectors=1)
            elif not sectors.intact[index]:
                span = Span(state="damaged" if words[index].any() else "zero", sectors=1)
            else:
                span = self.identify(
                    sectors,
                    index,
                    writer=writer,
                    slot=slot,
                    index=index,
                    offset=offset + index * limits.SECTOR_BYTES,
                )
            _append(spans, span)
        return Observation(writer=writer, slot=slot, spans=tuple(spans))

    def identify(
        self, sectors: Sectors, position: int, *, writer: int, slot: int, index: int, offset: int
    ) -> Span:
        """Classify the intact `sectors[position]`, found at `offset`: sector `index` of (`writer`,
        `slot`)."""
        span = Span(
            state="foreign",
            sectors=1,
            run=int(sectors.run[position]),
            writer=int(sectors.writer[position]),
            slot=int(sectors.slot[position]),
            offset=int(sectors.offset[position]),
        )
        if int(sectors.target[position]) != self._plan.target:
            return span
        if span.run != self._plan.run:
            return replace(span, state="earlier") if span.offset == offset else span
        kind, number, seq = (
            int(sectors.kind[position]),
            int(sectors.index[position]),
            int(sectors.seq[position]),
        )
        if kind == KIND_SUPERBLOCK:
            return self._stray_superblock(span, number)
        if kind != KIND_RECORD or not self._is_own(span, number, seq):
            return span
        here = (span.writer, span.slot, number, span.offset) == (writer, slot, index, offset)
        return replace(span, state="version" if here else "stray", seq=seq)

    def _stray_superblock(self, span: Span, number: int) -> Span:
        for copy, start in enumerate(self._plan.superblock_offsets):
            if span.offset == start + number * limits.SECTOR_BYTES:
                return replace(span, state="stray", writer=SUPERBLOCK_WRITER, slot=copy)
        return span

    def _is_own(self, span: Span, number: int, seq: int) -> bool:
        """True if this run's plan has such a sector: the place fits the slot, and the slot fits the seq."""
        plan = self._plan
        if span.writer > plan.control_writer or span.slot >= limits.SLOTS_MAX:
            return False
        endless = self._versions.endless(span.writer)
        slots = plan.control_slots if span.writer == plan.control_writer else plan.slots
        if not endless and span.slot >= slots:
            return False
        _, start, record_bytes = self._versions.place(span.writer, span.slot)
        offset_in_record = number * limits.SECTOR_BYTES
        if offset_in_record >= record_bytes or span.offset != start + offset_in_record:
            return False
        return self._versions.is_version(span.writer, span.slot, seq)


def _append(spans: list[Span], span: Span) -> None:
    """Add one sector, merged with the last span if both have the same state and claims."""
    if spans:
        last = spans[-1]
        if (last.state, last.seq, last.run, last.writer, last.slot) == (
            span.state,
            span.seq,
            span.run,
            span.writer,
            span.slot,
        ):
            spans[-1] = replace(last, sectors=last.sectors + 1)
            return
    spans.append(span)
