"""The drive log: what was promised, and how it is broken; in memory, or in a file that a kill cut short."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from durability_lab.drive.drive_log import LABEL_BYTES, SECTOR_BYTES, Broken, DriveLog
from tests.lab.drive.small_drives import HONEST, LIARS, SIZE_BYTES, Host

SECTORS = 16


class Disk:
    """Contents that can be set at will; sectors in `dead` cannot be read."""

    def __init__(self) -> None:
        self.data = bytearray(SECTORS * SECTOR_BYTES)
        self.dead: set[int] = set()

    def put(self, sector: int, data: bytes) -> None:
        self.data[sector * SECTOR_BYTES : sector * SECTOR_BYTES + len(data)] = data

    def read(self, offset: int, length: int) -> bytes:
        sectors = range(offset // SECTOR_BYTES, (offset + length) // SECTOR_BYTES)
        if self.dead.intersection(sectors):
            raise OSError(errno.EIO, "dead")
        return bytes(self.data[offset : offset + length])


@pytest.fixture(params=["memory", "file"])
def drive_log(request: pytest.FixtureRequest, tmp_path: Path) -> DriveLog:
    """A new drive log of each kind."""
    return DriveLog(str(tmp_path / "drive_log") if request.param == "file" else None)


def labelled(number: int) -> bytes:
    return (b"DURB" + number.to_bytes(4, "big")).ljust(LABEL_BYTES, b"-") + bytes([number]) * 456


def plain(number: int) -> bytes:
    return bytes([number]) * SECTOR_BYTES


def broken(drive_log: DriveLog, disk: Disk, sectors: int = SECTORS) -> dict[int, str]:
    found = drive_log.broken(disk.read, sectors * SECTOR_BYTES)
    assert [entry.offset for entry in found] == sorted(entry.offset for entry in found)
    return {entry.offset // SECTOR_BYTES: entry.kind for entry in found}


def test_nothing_is_promised_at_first(drive_log: DriveLog) -> None:
    """A flush without writes, and writes without a flush, are not promises that could be broken."""
    disk = Disk()
    drive_log.flushed()
    assert broken(drive_log, disk) == {}
    drive_log.wrote(0, plain(1) + plain(2))
    disk.put(0, plain(9))
    assert broken(drive_log, disk) == {}
    assert drive_log.promises().sectors == 0
    assert drive_log.promises().writes == 1


def test_flush_promises_the_newest_of_all_that_was_written(drive_log: DriveLog) -> None:
    """Each sector that was written, at its newest version; the older ones are broken promises then."""
    disk = Disk()
    drive_log.wrote(0, plain(1) + plain(2))
    drive_log.wrote(512, plain(3))
    drive_log.flushed()
    disk.put(0, plain(1) + plain(2))
    assert broken(drive_log, disk) == {1: "older"}
    disk.put(1, plain(3))
    assert broken(drive_log, disk) == {}
    promises = drive_log.promises()
    assert (promises.sectors, promises.writes, promises.flushes) == (2, 2, 1)


def test_fua_promises_its_own_sectors_only(drive_log: DriveLog) -> None:
    """A forced write is promised when it returns; what was written elsewhere before is not."""
    disk = Disk()
    drive_log.wrote(0, plain(1))
    drive_log.wrote(512, plain(2))
    drive_log.forced(512, 512)
    assert broken(drive_log, disk) == {1: "blank"}
    drive_log.flushed()
    assert broken(drive_log, disk) == {0: "blank", 1: "blank"}


def test_everything_written_after_the_promise_is_legal(drive_log: DriveLog) -> None:
    """Any later version may be there, in any order; one from before the promise may not."""
    disk = Disk()
    for number in (1, 2):
        drive_log.wrote(0, plain(number))
    drive_log.flushed()
    for number in (3, 4, 5):
        drive_log.wrote(0, plain(number))
    for number, kind in ((1, "older"), (2, None), (3, None), (4, None), (5, None), (6, "garbage")):
        disk.put(0, plain(number))
        assert broken(drive_log, disk).get(0) == kind, number


def test_flush_after_a_cut_promises_nothing_from_before_it(drive_log: DriveLog) -> None:
    """Writes in flight at a cut stay legal beside the promised version until the sector is written again."""
    disk = Disk()
    drive_log.wrote(0, plain(1))
    drive_log.flushed()
    drive_log.wrote(0, plain(2))
    drive_log.cut()
    drive_log.flushed()
    for number in (1, 2):
        disk.put(0, plain(number))
        assert broken(drive_log, disk) == {}
    drive_log.wrote(0, plain(3))
    drive_log.flushed()
    assert broken(drive_log, disk) == {0: "older"}


def test_each_kind_of_damage_has_its_name(drive_log: DriveLog) -> None:
    """Zeros that were written there are older, others blank; contents of another sector are elsewhere."""
    disk = Disk()
    drive_log.wrote(0, plain(0) + plain(1) + plain(2))
    drive_log.wrote(0, b"".join(plain(number) for number in range(10, 10 + SECTORS)))
    drive_log.flushed()
    disk.put(0, b"".join(plain(number) for number in range(10, 10 + SECTORS)))
    assert broken(drive_log, disk) == {}
    disk.put(0, plain(0))
    disk.put(1, plain(1))
    disk.put(2, plain(10))
    disk.put(3, plain(0))
    disk.put(4, b"x" + plain(14)[1:])
    disk.dead = {7, 9}
    assert broken(drive_log, disk, SECTORS - 2) == {
        0: "older",
        1: "older",
        2: "elsewhere",
        3: "blank",
        4: "garbage",
        7: "unreadable",
        9: "unreadable",
        SECTORS - 2: "gone",
        SECTORS - 1: "gone",
    }


def test_broken_promises_carry_the_labels_of_records(drive_log: DriveLog) -> None:
    """Where a record was promised and another lies, both headers are told; what is no record has none."""
    disk = Disk()
    drive_log.wrote(0, labelled(1) + plain(5) + labelled(2))
    drive_log.flushed()
    disk.put(0, labelled(3) + labelled(4) + plain(7))
    assert drive_log.broken(disk.read, SECTORS * SECTOR_BYTES) == [
        Broken(offset=0, kind="garbage", promised=labelled(1)[:56], found=labelled(3)[:56]),
        Broken(offset=512, kind="garbage", promised=b"", found=labelled(4)[:56]),
        Broken(offset=1024, kind="garbage", promised=labelled(2)[:56], found=b""),
    ]


def test_large_promises_are_checked_to_the_last_sector(drive_log: DriveLog) -> None:
    """However large a run of promised sectors, each one that is wrong or unreadable is found."""
    sectors = 5000
    data = random.Random(1).randbytes(sectors * SECTOR_BYTES)
    drive_log.wrote(0, data)
    drive_log.flushed()
    disk = Disk()
    disk.data = bytearray(data)
    for sector in (0, 2047, 2048, 4999):
        disk.data[sector * SECTOR_BYTES + 100] ^= 1
    disk.dead = {1, 4998}
    assert broken(drive_log, disk, sectors) == {
        **dict.fromkeys((0, 2047, 2048, 4999), "garbage"),
        **dict.fromkeys((1, 4998), "unreadable"),
    }


def test_file_that_a_kill_cut_short_counts_up_to_its_last_whole_entry(tmp_path: Path) -> None:
    """Cut anywhere, the file is read as far as it is whole, and what is appended then is read too."""
    path = tmp_path / "drive_log"
    whole = DriveLog(str(path))
    marks = [0]
    steps: list[Callable[[], None]] = [
        partial(whole.wrote, 0, labelled(1) + labelled(2)),
        whole.flushed,
        partial(whole.wrote, 512, plain(3)),
        partial(whole.forced, 512, 512),
        whole.cut,
    ]
    for step in steps:
        step()
        marks.append(path.stat().st_size)
    whole.close()
    content = path.read_bytes()
    disk = Disk()
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        promises = DriveLog(str(path)).promises()
        assert promises.end == max(mark for mark in marks if mark <= length)
        again = DriveLog(str(path))
        again.wrote(1024, plain(8))
        again.flushed()
        again.close()
        assert broken(again, disk)[2] == "blank", length
        assert again.promises().sectors == (3 if length >= marks[1] else 1), length


def test_promises_are_those_of_their_moment(drive_log: DriveLog) -> None:
    """Later entries in the log do not change promises that were read before, and can still be added."""
    drive_log.wrote(0, plain(1))
    drive_log.flushed()
    before = drive_log.promises()
    drive_log.wrote(512, plain(2))
    drive_log.flushed()
    assert (before.sectors, drive_log.promises().sectors) == (1, 2)


def test_account_that_was_never_written_is_refused(tmp_path: Path) -> None:
    """A file that does not exist is the log of a drive that promised nothing."""
    with pytest.raises(FileNotFoundError):
        DriveLog(str(tmp_path / "none")).promises()


@pytest.mark.parametrize("spec", HONEST + LIARS)
def test_file_and_memory_say_the_same(spec: str, tmp_path: Path) -> None:
    """One load on two drives of a model, one drive log in a file: the same promises, broken alike."""
    for seed in range(2):
        found = []
        for path in (None, str(tmp_path / f"drive log {seed}")):
            host = Host(spec, seed, drive_log=DriveLog(path))
            for _ in range(2):
                host.work(30)
                host.cut()
            assert host.drive_log is not None
            found.append(host.drive_log.broken(host.drive.peek, host.drive.size_bytes))
        assert found[0] == found[1], f"seed {seed}"


@pytest.mark.parametrize("spec", HONEST)
@pytest.mark.parametrize("sector_bytes", [512, 4096])
def test_honest_drive_never_breaks_a_promise(spec: str, sector_bytes: int) -> None:
    """An honest drive keeps all promises through several cuts, for any writes, FUA writes and flushes."""
    for seed in range(10):
        host = Host(spec, seed, sector_bytes, drive_log=DriveLog())
        assert host.drive_log is not None
        for _ in range(3):
            host.work(host.chance.randint(5, 40))
            host.cut()
            assert host.drive_log.broken(host.drive.peek, SIZE_BYTES) == [], f"seed {seed}"
        assert host.drive_log.promises().sectors > 0
