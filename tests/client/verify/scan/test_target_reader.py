"""Reading a target back: an unreadable block is told apart, and says nothing of what lies around it."""

from __future__ import annotations

import errno
import mmap
from pathlib import Path

import pytest

from durability.formats.plan import Plan
from durability_client.target.kernel_storage import KernelFile
from durability_client.target.storage import WritableBuffer
from durability_client.verify.scan.target_reader import CHUNK_BYTES, Reader, aligned_buffer, read_superblocks
from tests.client.verify.targets import FailingFile, FailingStorage, lay_down, unreadable
from tests.core.evidence.memory_target import SECTOR, Disk, MakePlan, small

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


class LargeBlocksFile(FailingFile):
    """A file on a drive with logical blocks of 4096 bytes, opened past the page cache."""

    __slots__ = ()

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        if offset % 4096 or memoryview(buffer).nbytes % 4096:
            raise OSError(errno.EINVAL, "Invalid argument")
        return super().pread_into(buffer, offset)


class LargeBlocksStorage(FailingStorage):
    """Files on such a drive."""

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> KernelFile:
        file = LargeBlocksFile(super().open(suffix, plan=plan, create=create), self._bad, {})
        file.direct = True
        return file


def test_an_unreadable_block_of_a_superblock_hides_no_plan(tmp_path: Path, make_plan: MakePlan) -> None:
    """On a drive with blocks of 4096 bytes no smaller piece is asked for, and the other blocks hold it."""
    plan = small(make_plan, record_bytes=4096, block_bytes=4096)
    path = lay_down(Disk(plan), tmp_path).path
    storage = LargeBlocksStorage(path, bad=unreadable(8192))
    assert read_superblocks(storage, None) == (plan, plan)


@pytest.mark.parametrize("length", [4 * 4096, CHUNK_BYTES])
def test_an_unreadable_block_below_a_layer_of_larger_blocks_is_found(tmp_path: Path, length: int) -> None:
    """LUKS2 with blocks of 4096 bytes, on a drive with blocks of 512, refuses smaller reads. Only its block
    is unreadable."""
    whole, path = b"\xa5" * 8 * 4096, tmp_path / "target"
    path.write_bytes(whole)
    storage = LargeBlocksStorage(path, bad=unreadable(2 * 4096))
    with Reader(storage, "", block_bytes=SECTOR, tick=lambda: None) as reader:
        for _ in range(2):
            content = reader.read(aligned_buffer(), 0, length)
            (span,) = content.unreadable
            assert (span.start, span.end) == (2 * 4096, 3 * 4096)
            assert content.data == (whole[: span.start] + bytes(4096) + whole[span.end :])[:length]


class RefusingFile(FailingFile):
    """A file of which no part can be read since a read failed."""

    __slots__ = ()

    def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
        if memoryview(buffer).nbytes < CHUNK_BYTES:
            raise OSError(errno.EINVAL, "Invalid argument")
        return super().pread_into(buffer, offset)


class RefusingStorage(FailingStorage):
    """Files of that kind."""

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> KernelFile:
        return RefusingFile(super().open(suffix, plan=plan, create=create), self._bad, {})


def test_a_read_that_is_refused_at_every_size_is_an_error(tmp_path: Path) -> None:
    """A read that is refused at every size raises OSError. It is not repeated endlessly, and no sector counts
    as unreadable."""
    (tmp_path / "target").write_bytes(bytes(CHUNK_BYTES))
    storage = RefusingStorage(tmp_path / "target", bad=unreadable(0))
    with (
        Reader(storage, "", block_bytes=SECTOR, tick=lambda: None) as reader,
        pytest.raises(OSError, match="Invalid argument"),
    ):
        reader.read(aligned_buffer(), 0, CHUNK_BYTES)
