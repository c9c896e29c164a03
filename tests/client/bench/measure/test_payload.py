"""What the benchmark writes: unique down to the sector, unless a cell asks for something else."""

from __future__ import annotations

import mmap
import zlib
from typing import get_args

import numpy as np
import pytest

from durability.bench.cells import Data
from durability_client.bench.measure.payload import Payload

SECTOR = 512


def _sectors(pool: Payload, times: int) -> list[bytes]:
    """Every sector of every block, the pool being refreshed before each of `times` uses."""
    found = []
    for _ in range(times):
        pool.refresh()
        for view in pool.views:
            found += [bytes(view[at : at + SECTOR]) for at in range(0, len(view), SECTOR)]
    return found


@pytest.mark.parametrize("block_bytes", [512, 2300, 4096, 65536, 1 << 20])
def test_no_two_sectors_are_alike(block_bytes: int) -> None:
    """A deduplicating layer of any block size finds nothing, in one use of the pool or over several."""
    sectors = _sectors(Payload("unique", block_bytes=block_bytes, seed=1), 3)
    assert len(set(sectors)) == len(sectors)


@pytest.mark.parametrize(("data", "least", "most"), [("unique", 0.99, 1.01), ("half", 0.45, 0.6)])
def test_blocks_compress_as_they_are_said_to(data: Data, least: float, most: float) -> None:
    """Unique blocks do not compress, half compressible ones to about half, at the size of a sector too."""
    for sector in _sectors(Payload(data, block_bytes=4096, seed=2), 1)[:50]:
        assert least <= len(zlib.compress(sector)) / SECTOR <= most + 0.05
    whole = b"".join(bytes(view) for view in Payload(data, block_bytes=4096, seed=2).views)
    assert least <= len(zlib.compress(whole)) / len(whole) <= most


def test_repeated_blocks_stay_the_same() -> None:
    """One incompressible block again and again: after a refresh as before."""
    pool = Payload("repeated", block_bytes=8192, seed=3)
    blocks = {bytes(view) for view in pool.views}
    pool.refresh()
    assert {bytes(view) for view in pool.views} == blocks
    assert len(blocks) == 1
    assert len(zlib.compress(next(iter(blocks)))) > 8000


def test_zeros_are_zeros() -> None:
    """And stay so."""
    pool = Payload("zeros", block_bytes=4096, seed=4)
    pool.refresh()
    assert not any(any(view) for view in pool.views)


@pytest.mark.parametrize("data", get_args(Data))
@pytest.mark.parametrize("block_bytes", [512, 2300, 4096, 131072])
def test_blocks_can_be_written_directly(data: Data, block_bytes: int) -> None:
    """Blocks have the asked length; those of whole sectors are aligned as O_DIRECT needs them."""
    pool = Payload(data, block_bytes=block_bytes, seed=5)
    assert len(pool.views) == pool.count
    for view in pool.views:
        assert len(view) == block_bytes
        address = np.frombuffer(view, dtype=np.uint8).ctypes.data
        assert address % min(block_bytes & -block_bytes, mmap.PAGESIZE) == 0


def test_other_jobs_write_other_data() -> None:
    """The seed gives the data: the same one the same, another one nothing in common."""
    first, again, other = (
        set(_sectors(Payload("unique", block_bytes=4096, seed=seed), 1)) for seed in (6, 6, 7)
    )
    assert first == again
    assert not first & other
