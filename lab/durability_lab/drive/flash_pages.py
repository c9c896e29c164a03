"""Flash pages: division of data into pages, places of misdirected pages, and bit flips.

This module is arithmetic on offsets and bytes for the fault models. It does not depend on drives or media
objects. `chance` is a source of random numbers from 0 to 1. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from durability_lab.drive.media import Part

PAGE_BYTES: Final = 4096  # these drives program one page at once
TEAR_BYTES: Final = 512  # a partly programmed page ends at a multiple of this


def pages(offset: int, data: bytes) -> Iterator[Part]:
    """Divide a piece into parts that lie in one page each."""
    start = 0
    while start < len(data):
        step = min(PAGE_BYTES - (offset + start) % PAGE_BYTES, len(data) - start)
        yield offset + start, data[start : start + step]
        start += step


def pieces(sectors: Mapping[int, bytes], sector_bytes: int) -> Iterator[Part]:
    """Join sectors, given by their number, into the longest contiguous pieces, in order."""
    piece: list[bytes] = []
    first = 0
    for sector in sorted(sectors):
        if piece and sector != first + len(piece):
            yield first * sector_bytes, b"".join(piece)
            piece = []
        first = first if piece else sector
        piece.append(sectors[sector])
    if piece:
        yield first * sector_bytes, b"".join(piece)


def page_nearby(offset: int, size_bytes: int, chance: Callable[[], float]) -> int:
    """`offset` after a flip of one of the low ten bits of its page number, within `size_bytes`."""
    page, start = divmod(offset, PAGE_BYTES)
    for bit in range(int(chance() * 10), -1, -1):
        other = page ^ 1 << bit
        if (other + 1) * PAGE_BYTES <= size_bytes:
            return other * PAGE_BYTES + start
    return offset


def with_flips(data: bytes, chance: Callable[[], float]) -> bytes:
    """`data` with one bit flipped in each of three bytes, all in the same 512 bytes."""
    out = bytearray(data)
    first = TEAR_BYTES * int(chance() * len(data) / TEAR_BYTES)
    start = int(chance() * TEAR_BYTES)
    for number in range(3):
        out[first + (start + 171 * number) % TEAR_BYTES] ^= 1 << int(chance() * 8)
    return bytes(out)
