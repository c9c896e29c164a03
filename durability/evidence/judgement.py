"""The judgement of one slot: its class of finding, and a sentence that people read.

Plain data, made by `durability.evidence.slot_oracle`. `durability.evidence.verdict` decides what a finding
means for the verdict.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from durability.evidence.observation import EARLIER_RUN, PREFILL, SUPERBLOCK_WRITER, Observation, Span

FindingClass: TypeAlias = Literal[
    "lost",
    "torn",
    "corrupt",
    "misdirected",
    "foreign",
    "unreadable",
    "truncated",
    "absent",
    "stale",
    "resurrected",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the rules say of one slot. `finding` None: legal, or excused.

    `place` is a slot of `writer`, or copy `slot` of the superblock where `writer` is SUPERBLOCK_WRITER; it
    lies at `offset` of the file TARGET + `suffix`. A reappeared `append` file is reported as its first slot.
    `in_flight`: a version newer than A' may have been issued to it. `in_flight_damaged`: such a slot, with
    sectors that hold nothing recognisable. `order_violation`: legal under A, wrong under A'. `collateral`:
    shares a physical block with a slot in flight. `above_ceiling`: holds a version that was never allowed
    to be issued. `out_of_reach`: it holds something, but no version was allowed to be issued to it, and it
    shows none; so it explains nothing that is wrong elsewhere. `expected_seq`: newest operation <= A' on the
    slot (0: the prefill, or none). `found_seq`: the oldest stale version found (EARLIER_RUN: an earlier run's
    data), None if there is none; of a name that must not be there, any version. `oldest_lost_seq`: the first
    acknowledged operation on the slot that its content is known to have lost, None for none. `text` is one
    sentence for people.
    """

    writer: int
    slot: int
    suffix: str
    offset: int
    record_bytes: int
    finding: FindingClass | None
    in_flight: bool = False
    in_flight_damaged: bool = False
    order_violation: bool = False
    collateral: bool = False
    above_ceiling: bool = False
    out_of_reach: bool = False
    expected_seq: int
    found_seq: int | None = None
    oldest_lost_seq: int | None = None
    text: str


def version_name(seq: int) -> str:
    """A version in words."""
    if seq == EARLIER_RUN:
        return "an earlier run's data"
    return "the prefill" if seq == PREFILL else f"seq {seq}"


def place_name(*, writer: int, slot: int, suffix: str, offset: int) -> str:
    """A place in words: whose slot, and where in which file."""
    if writer == SUPERBLOCK_WRITER:
        return f"superblock copy {slot} (offset {offset})"
    return f"writer {writer} slot {slot} (TARGET{suffix} offset {offset})"


def _span_name(span: Span) -> str:
    if span.state == "version":
        return version_name(span.seq)
    if span.state == "stray":
        if span.writer == SUPERBLOCK_WRITER:
            return f"a sector of superblock copy {span.slot} that belongs at offset {span.offset}"
        home = f"writer {span.writer} slot {span.slot}"
        return f"{version_name(span.seq)} of {home}, which belongs at offset {span.offset}"
    if span.state == "earlier":
        return f"data of run {span.run:016x}"
    if span.state == "foreign":
        return f"a record of run {span.run:016x} for offset {span.offset}, where the plan has none"
    return {
        "zero": "zeros",
        "damaged": "nothing recognisable",
        "unreadable": "an I/O error",
        "absent": "the end of the file",
        "missing": "no such name",
        "excess": "data after the end of the record",
    }[span.state]


def describe(observation: Observation, *, place: str, expected: str, finding: FindingClass | None) -> str:
    """One sentence: the place, what should be there, what is."""
    if len(observation.spans) == 1:
        holds = _span_name(observation.spans[0])
    else:
        holds = _join(
            f"{_span_name(span)} in {span.sectors} sector{'s' if span.sectors > 1 else ''}"
            for span in observation.spans
        )
    return f"{place}: {finding or 'legal'}, expected {expected}, found {holds}"


def _join(parts: Iterable[str], most: int = 8) -> str:
    """The parts as a list in words; those after the first `most` are only counted."""
    every = list(parts)
    shown = ", ".join(every[:most])
    return shown if len(every) <= most else f"{shown} and {len(every) - most} more changes"
