"""Pages, as flash is programmed: how data divide into them, where they may land by mistake, how bits flip.

Arithmetic on offsets and bytes, for the fault models; it knows neither drives nor media. `chance` is a source
of numbers from 0 to 1. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from durability_lab.drive.media import Part

PAGE_BYTES: Final = 4096  # what these drives program at once
TEAR_BYTES: Final = 512  # a page that is not programmed whole ends at a multiple of this


def pages(offset: int, data: bytes) -> Iterator[Part]:
    """A piece as the parts of it that lie in one page each."""
    start = 0
    while start < len(data):
        step = min(PAGE_BYTES - (offset + start) % PAGE_BYTES, len(data) - start)
        yield offset + start, data[start : start + step]
        start += step


def pieces(sectors: Mapping[int, bytes], sector_bytes: int) -> Iterator[Part]:
    """Sectors by their number as pieces that are as long as can be, in order."""
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
    """Where `offset` comes to lie if one of the low ten bits of its page's number is another."""
    page, start = divmod(offset, PAGE_BYTES)
    for bit in range(int(chance() * 10), -1, -1):
        other = page ^ 1 << bit
        if (other + 1) * PAGE_BYTES <= size_bytes:
            return other * PAGE_BYTES + start
    return offset


def with_flips(data: bytes, chance: Callable[[], float]) -> bytes:
    """`data` with a bit flipped in three bytes of it, all in the same 512."""
    out = bytearray(data)
    first = TEAR_BYTES * int(chance() * len(data) / TEAR_BYTES)
    start = int(chance() * TEAR_BYTES)
    for number in range(3):
        out[first + (start + 171 * number) % TEAR_BYTES] ^= 1 << int(chance() * 8)
    return bytes(out)
