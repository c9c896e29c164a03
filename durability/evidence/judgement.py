"""The judgement of one slot: its class of finding, and a sentence for people.

Judgements are plain data, made by the oracles (`slot_oracle`, `name_oracle`). `durability.evidence.verdict`
decides what a finding means for the verdict.
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
    """The result of the rules for one slot. A reappeared `append` file is reported as its first slot."""

    writer: int  # writer of the slot; SUPERBLOCK_WRITER for a copy of the superblock
    slot: int  # slot number, or number of the superblock copy
    suffix: str  # the slot lies in the file TARGET + `suffix`
    offset: int  # byte offset of the slot in that file
    record_bytes: int
    finding: FindingClass | None  # class of the finding; None: the content is legal, or excused
    in_flight: bool = False  # a version newer than A' may have been issued to the slot
    in_flight_damaged: bool = False  # a slot in flight has sectors that hold nothing recognisable
    order_violation: bool = False  # legal under A, wrong under A'
    collateral: bool = False  # the slot shares a physical block with a slot in flight
    above_ceiling: bool = False  # the slot holds a version that was never allowed to be issued
    # The slot holds something that shows no version, but no version was allowed to be issued to it; so it
    # explains no finding elsewhere.
    out_of_reach: bool = False
    expected_seq: int  # newest operation <= A' on the slot; 0: the prefill, or none
    # Oldest stale version found, EARLIER_RUN for an earlier run's data; None if there is none. For a name
    # that must not be there: any version found.
    found_seq: int | None = None
    # First acknowledged operation on the slot known to be lost, None if there is none.
    oldest_lost_seq: int | None = None
    text: str  # one sentence for people


def version_name(seq: int) -> str:
    """A version as text."""
    if seq == EARLIER_RUN:
        return "an earlier run's data"
    return "the prefill" if seq == PREFILL else f"seq {seq}"


def place_name(*, writer: int, slot: int, suffix: str, offset: int) -> str:
    """A place as text: the writer and slot, and the file and offset."""
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
    """One sentence: the place, the finding, the expected content and the content found."""
    if len(observation.spans) == 1:
        holds = _span_name(observation.spans[0])
    else:
        holds = _join(
            f"{_span_name(span)} in {span.sectors} sector{'s' if span.sectors > 1 else ''}"
            for span in observation.spans
        )
    return f"{place}: {finding or 'legal'}, expected {expected}, found {holds}"


def _join(parts: Iterable[str], most: int = 8) -> str:
    """The parts as a text list. Parts after the first `most` are only counted."""
    every = list(parts)
    shown = ", ".join(every[:most])
    return shown if len(every) <= most else f"{shown} and {len(every) - most} more changes"
