"""Reads both superblock copies of a target, for its identity.

Whether they are as they should be is for the scan to say; here a copy that cannot be read holds no plan.
"""

from __future__ import annotations

from collections.abc import Iterator

from durability import limits
from durability.formats.plan import MAIN, Plan
from durability.formats.record import read_superblock
from durability_client.target.storage import Storage
from durability_client.verify.target_reader import Reader, aligned_buffer


def read_superblocks(storage: Storage, known: Plan | None) -> tuple[Plan | None, ...]:
    """What the copies hold, None for one that holds no plan; no copies where the target is gone.

    The second copy ends a file; on a device its place is known only from the plan, `known` or in the first
    copy. Raises FormatError for a plan of another release, OSError where the target cannot be opened.
    """
    if not storage.exists(MAIN):
        return ()
    size = storage.size(MAIN)
    buffer = aligned_buffer(limits.SUPERBLOCK_BYTES)
    plans: list[Plan | None] = []
    with Reader(storage, MAIN, block_bytes=limits.SECTOR_BYTES, tick=lambda: None) as reader:
        plans.append(read_superblock(reader.read(buffer, 0, limits.SUPERBLOCK_BYTES).data))
        for offset in _second_offsets(storage, size, known or plans[0]):
            plans.append(read_superblock(reader.read(buffer, offset, limits.SUPERBLOCK_BYTES).data))
    return tuple(plans)


def _second_offsets(storage: Storage, size: int, plan: Plan | None) -> Iterator[int]:
    if plan is not None:
        yield plan.superblock_offsets[1]
    elif storage.kind == "file" and size >= 2 * limits.SUPERBLOCK_BYTES:
        yield size - limits.SUPERBLOCK_BYTES
