"""How far the load that fills the free space has come: a fast cache that was not filled hides the drive.

Drives write into a fast part of their flash first, which may be a third of the free space. Only a load that
writes most of that shows the rate behind it. Refuses to guess how large such a cache is: it says what was
written, of what, and why not more.
"""

from __future__ import annotations

from dataclasses import dataclass

from durability.bench.catalogue import ACCEPT_MINUTES_MAX, HELD_FILL, minutes_to_hold
from durability.bench.result import Result
from durability.units import format_size

FILLED_SHARE = 0.8  # of the free space, that the load covers; a file system that is full behaves otherwise
MOST = 0.5  # of the free space: what counts as most of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """`written_bytes` of `free_bytes` that were free before; `share` at most 1. `text`: a sentence, with the
    reason where it was not most of it."""

    written_bytes: int
    free_bytes: int
    share: float
    text: str

    @property
    def is_most(self) -> bool:
        """Whether most of the free space was written."""
        return self.share >= MOST


def filled(result: Result) -> Filled | None:
    """How much of the free space the load wrote; None where the result has no such load."""
    rounds = result.rounds_of(HELD_FILL.name)
    if not rounds:
        return None
    written = sum(one.writes for one in rounds) * HELD_FILL.block_bytes
    before = result.before
    if result.facts.kind == "device" or before.size_bytes is None or before.used_bytes is None:
        free = result.facts.size_bytes or sum(drive.size_bytes for drive in result.facts.drives)
    else:
        free = max(0, before.size_bytes - before.used_bytes)
    if not free:
        return None
    share = min(1.0, written / free)
    seconds = sum(one.seconds for one in rounds)
    if written > free:
        text = f"all of the free space written, {format_size(free)}, {written / free:.1f} times over"
    else:
        text = f"{format_size(written)} of {format_size(free)} free space written ({share:.0%})"
    if share < MOST:
        needed = minutes_to_hold(HELD_FILL, seconds * MOST / share) if share else None
        more = (
            f"--minutes {needed} fill half"
            if needed
            else f"--minutes {ACCEPT_MINUTES_MAX} fill less than half"
        )
        text += f" in {seconds:,.0f} s, until the time was over: at this rate {more}"
    return Filled(written_bytes=written, free_bytes=free, share=share, text=text)
