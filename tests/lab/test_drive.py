"""The drive model: what a cut takes and what it must not take, for every behaviour."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from durability_lab import drive as drive_module
from durability_lab.drive import BEHAVIOURS, HONEST, LIAR, WRITE_THROUGH, Drive, FileMedia, SparseMedia

SECTOR = 512
SECTORS = 64


def small(behaviour: drive_module.Behaviour = HONEST, seed: int = 1) -> Drive:
    return Drive(SparseMedia(SECTORS * SECTOR), behaviour, seed=seed)


def contents(drive: Drive) -> bytes:
    return drive.read(0, drive.size_bytes)


def fill(number: int, sectors: int) -> bytes:
    return bytes([number % 255 + 1]) * (sectors * SECTOR)


@pytest.mark.parametrize("behaviour", BEHAVIOURS.values(), ids=lambda behaviour: behaviour.name)
@pytest.mark.parametrize("seed", range(20))
def test_reads_give_the_newest_write_until_the_cut(behaviour: drive_module.Behaviour, seed: int) -> None:
    """Whatever lies in the cache or on media, a read of any length and offset gives what was written last."""
    chance = random.Random(seed)
    drive = small(replace(behaviour, cache_bytes=8 * SECTOR), seed)
    expected = bytearray(drive.size_bytes)
    for number in range(200):
        first, count = chance.randrange(SECTORS - 8), chance.randrange(1, 9)
        data = fill(number, count)
        drive.write(first * SECTOR, data, fua=chance.random() < 0.1)
        expected[first * SECTOR : first * SECTOR + len(data)] = data
        if chance.random() < 0.2:
            drive.flush()
        start = chance.randrange(drive.size_bytes)
        length = chance.randrange(drive.size_bytes - start + 1)
        assert drive.read(start, length) == expected[start : start + length], f"seed {seed}"


@pytest.mark.parametrize("seed", range(50))
def test_honest_drive_keeps_what_was_flushed(seed: int) -> None:
    """After a cut each sector holds its last flushed version or one written later, never anything else."""
    chance = random.Random(seed)
    drive = small(HONEST, seed)
    legal: list[set[int]] = [{0} for _ in range(SECTORS)]
    for number in range(1, chance.randrange(2, 250)):
        first, count = chance.randrange(SECTORS - 8), chance.randrange(1, 9)
        fua = chance.random() < 0.1
        drive.write(first * SECTOR, fill(number, count), fua=fua)
        for sector in range(first, first + count):
            version = fill(number, 1)[0]
            legal[sector] = {version} if fua else legal[sector] | {version}
        if chance.random() < 0.3:
            drive.flush()
            legal = [{byte} for byte in contents(drive)[::SECTOR]]
    drive.cut()
    drive.power_on()
    after = contents(drive)
    for sector in range(SECTORS):
        found = set(after[sector * SECTOR : (sector + 1) * SECTOR])
        assert len(found) == 1, f"seed {seed}: sector {sector} is torn within"
        assert found <= legal[sector], f"seed {seed}: sector {sector}"


def test_unflushed_writes_are_kept_lost_and_torn() -> None:
    """An honest drive's cut takes some unflushed writes, leaves some, and tears some between sectors."""
    fates = set()
    for seed in range(100):
        drive = small(HONEST, seed)
        drive.write(0, fill(7, 8))
        drive.cut()
        drive.power_on()
        survivors = drive.read(0, 8 * SECTOR).count(fill(7, 1))
        fates.add({0: "lost", 8: "kept"}.get(survivors, "torn"))
    assert fates == {"lost", "kept", "torn"}


def test_unflushed_writes_are_reordered() -> None:
    """A later unflushed write can survive where an earlier one is lost."""

    def survivors(seed: int) -> tuple[bool, bool]:
        drive = small(HONEST, seed)
        drive.write(0, fill(1, 1))
        drive.write(8 * SECTOR, fill(2, 1))
        drive.cut()
        drive.power_on()
        return drive.read(0, 1) != b"\0", drive.read(8 * SECTOR, 1) != b"\0"

    assert (False, True) in {survivors(seed) for seed in range(100)}


def test_write_through_drive_loses_nothing() -> None:
    """Without a cache every write survives, flushed or not."""
    drive = small(WRITE_THROUGH)
    drive.write(0, fill(1, SECTORS))
    assert drive.dirty_bytes == 0
    drive.cut()
    drive.power_on()
    assert contents(drive) == fill(1, SECTORS)


def test_liar_loses_flushed_writes_but_not_old_ones() -> None:
    """A liar's flush and FUA are empty, yet what no longer fits its cache is on media."""
    drive = small(replace(LIAR, cache_bytes=8 * SECTOR, kept=0.0, torn=0.0))
    for sector in range(32):
        drive.write(sector * SECTOR, fill(sector, 1), fua=True)
        drive.flush()
    assert drive.dirty_bytes == 8 * SECTOR
    drive.cut()
    drive.power_on()
    assert drive.read(0, 24 * SECTOR) == b"".join(fill(sector, 1) for sector in range(24))
    assert drive.read(24 * SECTOR, 8 * SECTOR) == bytes(8 * SECTOR)


@pytest.mark.parametrize("seed", range(5))
def test_same_seed_gives_the_same_damage(seed: int) -> None:
    """Drives of one seed that see the same requests hold the same bytes after the cut; other seeds differ."""

    def after_cut(seed: int) -> bytes:
        drive = small(HONEST, seed)
        for number in range(40):
            drive.write(number % 8 * 8 * SECTOR, fill(number, 8))
        drive.cut()
        drive.power_on()
        return contents(drive)

    assert after_cut(seed) == after_cut(seed)
    assert len({after_cut(other) for other in range(10)}) > 1


def test_without_power_every_request_fails() -> None:
    """After the cut read, write and flush raise EIO, and power makes the drive a newly enumerated one."""
    drive = small()
    before = drive.generation
    drive.cut()
    for request in (lambda: drive.read(0, 1), lambda: drive.write(0, fill(1, 1)), drive.flush):
        with pytest.raises(OSError, match="no power") as caught:
            request()
        assert caught.value.errno == errno.EIO
    drive.power_on()
    assert drive.generation > before
    drive.write(0, fill(1, 1))


@pytest.mark.parametrize(
    ("offset", "length"), [(1, 512), (0, 511), (64 * 512, 512), (63 * 512, 1024), (-512, 512)]
)
def test_requests_beyond_the_contract_are_refused(offset: int, length: int) -> None:
    """A write of part of a sector, or outside the drive, is EINVAL and changes nothing."""
    drive = small()
    with pytest.raises(OSError, match=str(length)) as caught:
        drive.write(offset, bytes(length))
    assert caught.value.errno == errno.EINVAL


def test_media_in_a_file_outlives_the_drive(tmp_path: Path) -> None:
    """What was flushed is in the file, where another drive finds it."""
    path = tmp_path / "media"
    path.write_bytes(bytes(SECTORS * SECTOR))
    drive = Drive(FileMedia(str(path)), HONEST, seed=1)
    drive.write(5 * SECTOR, fill(9, 3))
    drive.flush()
    assert Drive(FileMedia(str(path)), HONEST, seed=2).read(5 * SECTOR, 3 * SECTOR) == fill(9, 3)


def test_sparse_media_costs_only_what_was_written() -> None:
    """A drive of a tebibyte is made and written at its end without the memory of one."""
    media = SparseMedia(1 << 40)
    media.write((1 << 40) - 3, b"end")
    assert media.read((1 << 40) - 5, 5) == b"\0\0end"


def test_model_needs_the_standard_library_only() -> None:
    """nbdkit's embedded Python, which has no packages, can run the model."""
    source = drive_module.__file__
    command = (
        "import runpy; names = runpy.run_path(__import__('sys').argv[1]);"
        "drive = names['Drive'](names['SparseMedia'](4096), names['HONEST'], seed=1); drive.flush()"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", command, source], check=True, timeout=60)
