"""Tests whether a device can be read, at places all over it, bypassing the caches.

This is needed if the device's file system does not mount. A drive without power, or with a bad sector, fails
a mount just like a drive that lost data. This module does not judge the data.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from durability.formats.plan import MAIN
from durability_client.target.storage import Storage
from durability_client.verify.scan.canary import Presence, presence_of
from durability_client.verify.scan.target_reader import aligned_buffer

_EDGE_BYTES = 128 << 10  # contains the superblocks of file systems and partition tables
_BETWEEN = 16  # places between start and end


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesRead:
    """Result of the reads."""

    read: int  # places that could be read
    failed: int  # places that could not be read
    presence: Presence  # of the device, after the reads


def read_places(storage: Storage, tick: Callable[[], None]) -> PlacesRead:
    """Read the device's start, its end and places between, each through a new descriptor. A failed read
    raises nothing. `tick` is called after each read."""
    storage.drop_caches_below()
    size_bytes = presence_of(storage).main_bytes or 0
    buffer = aligned_buffer(_EDGE_BYTES)
    read = failed = 0
    for offset, length in _places(size_bytes):
        if _reads_well(storage, buffer[:length], offset):
            read += 1
        else:
            failed += 1
        tick()
    return PlacesRead(read=read, failed=failed, presence=presence_of(storage))


def _places(size_bytes: int) -> Iterator[tuple[int, int]]:
    """Offsets and lengths, aligned for O_DIRECT."""
    page = mmap.PAGESIZE
    last = max(0, size_bytes - _EDGE_BYTES) // page * page
    yield 0, min(_EDGE_BYTES, size_bytes)
    for step in range(1, _BETWEEN + 1):
        offset = last * step // (_BETWEEN + 1) // page * page
        yield offset, min(page, size_bytes - offset)
    yield last, min(_EDGE_BYTES, size_bytes - last)


def _reads_well(storage: Storage, buffer: memoryview, offset: int) -> bool:
    try:
        file = storage.open(MAIN)
    except OSError:
        return False
    try:
        return file.pread_into(buffer, offset) == len(buffer) > 0
    except OSError:
        return False
    finally:
        file.close()
