"""How much of the free space the fill load wrote: a fast cache that is not full hides the drive's speed.

Drives first write into a fast part of their flash, which may be a third of the free space. Only a load that
writes most of the free space shows the rate behind this cache; rewriting a small part does not. The size of
the cache is not guessed: the text gives the bytes written, the free space, and the reason if most of it was
not written.
"""

from __future__ import annotations

from dataclasses import dataclass

from durability.bench.catalogue import ACCEPT_MINUTES_MAX, HELD_FILL, minutes_to_hold
from durability.bench.cells import MIB, file_sizes
from durability.bench.result import Result
from durability.units import format_size

# The load writes this share of the space that the files of all cells leave free: a full file system behaves
# differently.
FILLED_SHARE = 0.8
MOST = 0.5  # share of the free space that counts as most of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """How much of the free space was written."""

    share: float  # share of the space that was free before; rewritten space counts once
    text: str  # a sentence, with the reason if most of the space was not written

    @property
    def is_most(self) -> bool:
        """Whether most of the free space was written."""
        return self.share >= MOST


def filled(result: Result) -> Filled | None:
    """How much of the free space the load wrote. None if the result has no such load, or if the free space is
    unknown or 0."""
    rounds = result.rounds_of(HELD_FILL.name)
    if not rounds:
        return None
    written = sum(one.writes for one in rounds) * HELD_FILL.block_bytes
    before = result.before
    is_device = result.facts.kind == "device"
    reserved = 0 if is_device else before.reserved_bytes
    if is_device or before.size_bytes is None or before.used_bytes is None:
        free = result.facts.size_bytes or sum(drive.size_bytes for drive in result.facts.drives)
    else:
        free = max(0, before.size_bytes - before.used_bytes)
    if not free:
        return None
    files = _files_bytes(result)
    span = 0 if reserved is None else int(max(0, free - reserved - files) * FILLED_SHARE)
    covered = min(written, span)
    share = covered / free
    seconds = sum(one.seconds for one in rounds)
    text = f"{format_size(covered)} of {format_size(free)} free space written ({_least(share)})"
    if written > span > 0:
        text += f", {written / span:.1f} times over"
    # Largest total size of the files with which the load would still cover most of the free space.
    room = free * (1 - MOST / FILLED_SHARE) - (reserved or 0)
    fits = room * result.size_bytes / files if files else room
    if reserved is None:
        text += "; the result does not say how much of it a program could write"
    elif reserved and fits < MIB:
        text += f"; the file system keeps {format_size(reserved)} of it from programs,"
        text += " so that no --size fills half"
    elif files and span < MOST * free:
        less = format_size(1 << max(0, int(fits).bit_length() - 1)).replace(" ", "")
        text += f"; the files of the other cells take {format_size(files)}: --size {less} leaves enough to"
        text += " fill half"
    elif share < MOST:
        needed = minutes_to_hold(HELD_FILL, seconds * MOST / share) if share else None
        more = (
            f"--minutes {needed} fill half"
            if needed
            else f"--minutes {ACCEPT_MINUTES_MAX} fill less than half"
        )
        text += f" in {seconds:,.0f} s, until the time was over: at this rate {more}"
    return Filled(share=share, text=text)


def _least(share: float) -> str:
    """The share in per cent, rounded down to a tenth: 79.96 % must not become 80 %."""
    return f"{int(1000 * share) / 10:.1f}%"


def _files_bytes(result: Result) -> int:
    """Total size of the files that exist for all cells, also while the load runs. 0 on a device."""
    if result.facts.kind == "device":
        return 0
    cells = [one.cell for one in result.cells if one.cell.place == "target"]
    return sum(file_sizes(cells, result.size_bytes))
