"""The data that the benchmark writes: blocks that no layer below can compress or deduplicate, unless a cell
requests such blocks.

On zeros, a drive or file system that compresses or deduplicates would seem faster. So the blocks are slices
of a pool of pseudo-random words. Before each use, each sector gets a unique number, so that all 512-byte
sectors that a job writes differ. Stamping is one numpy call for hundreds of blocks, outside the timed part of
an operation.
"""

from __future__ import annotations

import mmap

import numpy as np

from durability import limits
from durability.bench.cells import Data
from durability.formats.mixing import U64, Words, stream

POOL_BYTES = 1 << 20  # stays in the processor's cache, as an application's buffers do
_BLOCKS_MIN = 4
_WORD = 8
_SECTOR_WORDS = limits.SECTOR_BYTES // _WORD


class Payload:
    """`count` blocks of `block_bytes` in page-aligned memory. The same `seed` gives the same bytes.

    `half`: the second half of each sector is zeros. `repeated`: all blocks are always the same.
    """

    def __init__(self, data: Data, *, block_bytes: int, seed: int) -> None:
        aligned = block_bytes % limits.SECTOR_BYTES == 0
        stride = block_bytes if aligned else -(-block_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.count = max(_BLOCKS_MIN, POOL_BYTES // stride)
        self._memory = mmap.mmap(-1, self.count * stride)
        whole = memoryview(self._memory)
        self.views = [whole[at : at + block_bytes] for at in range(0, len(whole), stride)]
        sectors: Words = np.frombuffer(self._memory, dtype=U64).reshape(-1, _SECTOR_WORDS)
        self._fill(sectors, data, seed, sectors_per_block=stride // limits.SECTOR_BYTES)
        self._stamps: Words | None = sectors[:, 0] if data in ("unique", "half") else None
        self._numbers = np.arange(len(sectors), dtype=U64) + U64(seed & ((1 << 63) - 1))

    def refresh(self) -> None:
        """Make each block differ from all blocks before, if the kind of data requires it."""
        if self._stamps is not None:
            self._stamps[:] = self._numbers
            self._numbers += U64(len(self._numbers))

    @staticmethod
    def _fill(sectors: Words, data: Data, seed: int, *, sectors_per_block: int) -> None:
        if data == "zeros":
            sectors[:] = 0  # allocates memory; otherwise the kernel would map its shared zero page
            return
        if data == "repeated":
            block = stream(seed, sectors_per_block * _SECTOR_WORDS).reshape(sectors_per_block, -1)
            sectors.reshape(-1, *block.shape)[:] = block
            return
        sectors[:] = stream(seed, sectors.size).reshape(sectors.shape)
        if data == "half":
            sectors[:, _SECTOR_WORDS // 2 :] = 0
