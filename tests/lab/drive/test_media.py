"""Media: they keep every byte, and of what is written as one all or none, whenever the process is killed."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from durability_lab.drive.media import FileMedia, Media, SparseMedia

SIZE_BYTES = 256 << 10
PARTS = 64
WRITER = f"""
import sys
from durability_lab.drive.media import FileMedia

media = FileMedia(sys.argv[1])
for number in range(1, 256):
    media.write_as_one([(part * 4096, bytes([number]) * 4096) for part in range({PARTS})])
    print(number, flush=True)
"""


@pytest.fixture(params=["memory", "file"])
def media(request: pytest.FixtureRequest, tmp_path: Path) -> Media:
    """New media of each kind."""
    if request.param == "memory":
        return SparseMedia(SIZE_BYTES)
    path = tmp_path / "media"
    path.write_bytes(bytes(SIZE_BYTES))
    return FileMedia(str(path))


@pytest.mark.parametrize("seed", range(5))
def test_media_read_what_was_written(media: Media, seed: int) -> None:
    """Any offset and length, one part or several as one; zeros where nothing was written since a clearing."""
    chance = random.Random(seed)
    expected = bytearray(SIZE_BYTES)
    for number in range(200):
        parts = []
        for _ in range(chance.choice((1, 1, 3))):
            offset = chance.randrange(SIZE_BYTES)
            data = chance.randbytes(chance.randrange(min(70_000, SIZE_BYTES - offset)))
            parts.append((offset, data))
            expected[offset : offset + len(data)] = data
        if len(parts) == 1:
            media.write(*parts[0])
        else:
            media.write_as_one(parts)
        if number == 100:
            media.clear()
            expected = bytearray(SIZE_BYTES)
        offset = chance.randrange(SIZE_BYTES)
        length = chance.randrange(SIZE_BYTES - offset)
        assert media.read(offset, length) == expected[offset : offset + length], f"seed {seed}"
    assert media.size_bytes == SIZE_BYTES


@pytest.mark.parametrize("written", [1, 2, 7, 20, 53])
def test_killed_process_leaves_all_of_what_it_wrote_as_one_or_none(tmp_path: Path, written: int) -> None:
    """After SIGKILL every part is of the same write, the last that was reported done or a later one."""
    path = tmp_path / "media"
    path.write_bytes(bytes(SIZE_BYTES))
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, env={"PYTHONPATH": _lab()}
    ) as process:
        assert process.stdout is not None
        for _ in range(written):
            process.stdout.readline()
        process.kill()
    found = set(FileMedia(str(path)).read(0, PARTS * 4096))
    assert len(found) == 1
    assert found.pop() >= written


def test_sparse_media_costs_only_what_was_written() -> None:
    """A drive of a tebibyte is made and written at its end without the memory of one."""
    media = SparseMedia(1 << 40)
    media.write((1 << 40) - 3, b"end")
    assert media.read((1 << 40) - 5, 5) == b"\0\0end"


def _lab() -> str:
    """Where the package is found."""
    return str(Path(sys.modules["durability_lab"].__path__[0]).parent)
