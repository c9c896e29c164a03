"""Reading a target back: an unreadable block is told apart, and says nothing of what lies around it."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from durability_client.verify.target_reader import CHUNK_BYTES, Reader, aligned_buffer
from tests.client.verify.targets import FailingStorage, unreadable
from tests.core.evidence.memory_target import SECTOR

LENGTH = 9 * SECTOR


@pytest.fixture
def storage(tmp_path: Path) -> FailingStorage:
    """A file of nine sectors, of which the last cannot be read."""
    (tmp_path / "target").write_bytes(b"\xa5" * LENGTH)
    return FailingStorage(tmp_path / "target", bad=unreadable(LENGTH - SECTOR))


@pytest.mark.parametrize("wanted", [LENGTH, LENGTH + SECTOR, CHUNK_BYTES])
def test_unreadable_block_does_not_move_the_end_of_the_file(storage: FailingStorage, wanted: int) -> None:
    """Past the end nothing is present, and least of all what an earlier read left in the buffer."""
    buffer = aligned_buffer()
    buffer[:] = b"!" * len(buffer)
    with Reader(storage, "", block_bytes=SECTOR, tick=lambda: None) as reader:
        content = reader.read(buffer, 0, wanted)
    (span,) = content.unreadable
    assert span.start <= LENGTH - SECTOR < span.end
    assert len(content.data) == span.end < LENGTH + mmap.PAGESIZE, (
        "a block, or a page where there is no O_DIRECT"
    )
