"""The drive, whatever its model: what it answers, what a cut takes, and that a seed decides all of it."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest

from durability_lab.drive import faults
from durability_lab.drive.drive import Drive, HangingReadError, Model
from durability_lab.drive.faults import FlushIgnored, Honest, WriteThrough, parse
from durability_lab.drive.media import FileMedia, SparseMedia
from tests.lab.drive.small_drives import HONEST, LIARS, SIZE_BYTES, Clock, Host

SECTOR = 512
SECTORS = 64


def small(model: Model | None = None, seed: int = 1) -> Drive:
    return Drive(SparseMedia(SECTORS * SECTOR), model or Honest(), seed=seed)


def contents(drive: Drive) -> bytes:
    return drive.read(0, drive.size_bytes)


def fill(number: int, sectors: int) -> bytes:
    return bytes([number % 255 + 1]) * (sectors * SECTOR)


@pytest.mark.parametrize("sector_bytes", [512, 4096])
@pytest.mark.parametrize("spec", HONEST + LIARS)
def test_reads_give_the_newest_write_until_the_cut(spec: str, sector_bytes: int) -> None:
    """Before a cut, a read of any place and length gives the newest write, for every model, and again after a
    cut for writes made since."""
    for seed in range(3):
        host = Host(spec, seed, sector_bytes)
        for _ in range(2):
            for _ in range(60):
                host.work(1)
                start = host.chance.randrange(host.drive.size_bytes)
                length = host.chance.randrange(min(host.drive.size_bytes - start, 32 << 10) + 1)
                sectors = host.drive.sectors(start, length)
                newest = host.newest[sectors.start : sectors.stop]
                if None not in newest:
                    whole = b"".join(version for version in newest if version is not None)
                    skip = start - sectors.start * sector_bytes
                    assert host.drive.read(start, length) == whole[skip : skip + length], f"seed {seed}"
            host.cut()


@pytest.mark.slow
@pytest.mark.parametrize("sector_bytes", [512, 4096])
@pytest.mark.parametrize("spec", HONEST)
def test_honest_drive_keeps_what_was_flushed(spec: str, sector_bytes: int) -> None:
    """After each of three cuts a sector holds its last promised version or one written later."""
    for seed in range(20):
        host = Host(spec, seed, sector_bytes)
        for _ in range(3):
            host.work(host.chance.randint(1, 60))
            host.cut()
            assert host.broken() == set(), f"seed {seed}"


@pytest.mark.parametrize("spec", HONEST + LIARS)
def test_same_seed_gives_the_same_damage(spec: str) -> None:
    """Drives of one seed that see the same requests at the same times hold the same after their cuts."""
    for seed in range(3):
        hosts = [Host(spec, seed) for _ in range(2)]
        for host in hosts:
            for _ in range(2):
                host.work(40)
                host.cut()
        one, other = (host.drive.media.read(0, SIZE_BYTES) for host in hosts)
        assert one == other, f"seed {seed}"
        assert hosts[0].found() == hosts[1].found(), f"seed {seed}"


def test_another_seed_gives_other_damage() -> None:
    """Another seed gives other damage at a cut."""

    def after_cut(seed: int) -> bytes:
        drive = small(seed=seed)
        for number in range(40):
            drive.write(number % 8 * 8 * SECTOR, fill(number, 8))
        drive.cut()
        drive.power_on()
        return contents(drive)

    assert len({after_cut(seed) for seed in range(10)}) > 5


@pytest.mark.parametrize("sector_bytes", [512, 4096])
@pytest.mark.parametrize("spec", HONEST + LIARS)
def test_killing_its_process_is_as_good_as_a_cut(spec: str, sector_bytes: int, tmp_path: Path) -> None:
    """A drive that is abandoned, made again on its media and told of one cut has the same content as a drive
    that was cut."""
    for seed in range(3):
        path = tmp_path / f"media {seed}"
        path.write_bytes(bytes(SIZE_BYTES))
        killed, cut = Host(spec, seed, sector_bytes, FileMedia(str(path))), Host(spec, seed, sector_bytes)
        for host in (killed, cut):
            host.work(60)
            host.drive.tick()
        cut.cut()
        killed.drive = Drive(
            FileMedia(str(path)), parse(spec), seed=seed, sector_bytes=sector_bytes, cuts=1, clock=Clock()
        )
        assert killed.drive.size_bytes == cut.drive.size_bytes
        assert killed.found() == cut.found(), f"seed {seed}"


def test_unflushed_writes_are_kept_lost_and_torn() -> None:
    """An honest drive's cut takes some unflushed writes, leaves some, and tears some between sectors."""
    fates = set()
    for seed in range(100):
        drive = small(seed=seed)
        drive.write(0, fill(7, 8))
        drive.cut()
        drive.power_on()
        survivors = drive.read(0, 8 * SECTOR).count(fill(7, 1))
        fates.add({0: "lost", 8: "kept"}.get(survivors, "torn"))
    assert fates == {"lost", "kept", "torn"}


def test_unflushed_writes_are_reordered() -> None:
    """A later unflushed write can survive where an earlier one is lost."""

    def survivors(seed: int) -> tuple[bool, bool]:
        drive = small(seed=seed)
        drive.write(0, fill(1, 1))
        drive.write(8 * SECTOR, fill(2, 1))
        drive.cut()
        drive.power_on()
        return drive.read(0, 1) != b"\0", drive.read(8 * SECTOR, 1) != b"\0"

    assert (False, True) in {survivors(seed) for seed in range(100)}


def test_write_through_drive_loses_nothing() -> None:
    """Without a cache every write survives, flushed or not."""
    drive = small(WriteThrough())
    drive.write(0, fill(1, SECTORS))
    drive.cut()
    drive.power_on()
    assert contents(drive) == fill(1, SECTORS)


def test_full_cache_writes_back_what_waits_longest() -> None:
    """A full cache writes its oldest sectors to media; a cut loses the rest."""
    drive = small(FlushIgnored(cache_bytes=8 * SECTOR, kept=0.0, torn=0.0))
    for sector in range(32):
        drive.write(sector * SECTOR, fill(sector, 1), fua=True)
        drive.flush()
    drive.cut()
    drive.power_on()
    assert drive.read(0, 24 * SECTOR) == b"".join(fill(sector, 1) for sector in range(24))
    assert drive.read(24 * SECTOR, 8 * SECTOR) == bytes(8 * SECTOR)


def test_without_power_every_request_fails() -> None:
    """After the cut read, write and flush raise EIO, and power makes the drive a newly enumerated one."""
    drive = small()
    before = drive.generation
    drive.cut()
    for request in (lambda: drive.read(0, 1), lambda: drive.write(0, fill(1, 1)), drive.flush):
        with pytest.raises(OSError, match="no power") as caught:
            request()
        assert caught.value.errno == errno.EIO
    drive.tick()
    drive.cut()
    drive.power_on()
    assert drive.generation > before
    assert drive.cuts == 1
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
    assert contents(drive) == bytes(drive.size_bytes)


def test_drive_that_is_not_whole_sectors_is_refused() -> None:
    """Media of part of a sector, or of none, make no drive."""
    for size_bytes in (0, 700):
        with pytest.raises(ValueError, match="not whole sectors"):
            Drive(SparseMedia(size_bytes), Honest(), seed=1)


def test_flushes_are_counted_also_where_they_are_ignored() -> None:
    """Each flush that comes is one, honoured or not; FUA is none."""
    drive = small(FlushIgnored())
    for _ in range(3):
        drive.write(0, fill(1, 1), fua=True)
        drive.flush()
    assert drive.flushes == 3


def test_hung_read_ends_with_the_next_cut() -> None:
    """A read that never returns keeps no other request waiting, and the cut makes an I/O error of it."""
    drive = small(parse("hanging:share=1.0"))
    drive.cut()
    drive.power_on()
    ends: list[OSError] = []

    def read() -> None:
        try:
            drive.read(0, 1)
        except OSError as error:
            ends.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    drive.write(SECTOR, fill(3, 1))
    assert drive.read(SECTOR, SECTOR) == fill(3, 1)
    drive.flush()
    assert thread.is_alive()
    while thread.is_alive():  # the first cut may come before the read does
        drive.cut()
        thread.join(0.01)
    assert [error.errno for error in ends] == [errno.EIO]


def test_caller_decides_what_a_hung_read_does() -> None:
    """`peek` says at once that a read would hang; `hang` takes the place of waiting."""

    class AbandonedError(Exception):
        pass

    def abandon() -> NoReturn:
        raise AbandonedError

    drive = Drive(SparseMedia(SECTORS * SECTOR), parse("hanging:share=1.0"), seed=1, cuts=1, hang=abandon)
    with pytest.raises(HangingReadError, match="never returns"):
        drive.peek(0, 1)
    with pytest.raises(AbandonedError):
        drive.read(0, 1)


def test_thread_that_keeps_time_does_what_is_due_unasked() -> None:
    """Without any request, what an early acknowledgement put off is on media once it is due."""
    drive = small(parse("early-ack:delay_ms=2"))
    assert drive.due_s is None
    began = time.monotonic()
    drive.write(0, fill(1, 8), fua=True)
    assert drive.media.read(0, 8 * SECTOR) == bytes(8 * SECTOR)
    due_s = drive.due_s
    assert due_s is not None
    drive.wait_until_due()
    assert time.monotonic() >= due_s > began
    drive.tick()
    assert drive.media.read(0, 8 * SECTOR) == fill(1, 8)
    assert drive.due_s is None


def test_model_needs_the_standard_library_only() -> None:
    """nbdkit's embedded Python, which has no packages, can run every model and keep its drive log."""
    command = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "from durability_lab.drive import drive, drive_events, drive_log, faults, media\n"
        "for spec in faults.CATALOGUE:\n"
        "    made = drive.Drive(\n"
        "        media.SparseMedia(65536), faults.parse(spec), seed=1, drive_log=drive_log.DriveLog()\n"
        "    )\n"
        "    made.write(0, bytes(512), fua=True); made.flush(); made.cut()\n"
        "assert {name.partition('.')[0] for name in sys.modules} <= set(sys.stdlib_module_names) | "
        "{'durability_lab', '__main__', '__mp_main__', 'sitecustomize'}\n"
        "print(len(faults.CATALOGUE), 'models')\n"
    )
    lab = Path(sys.modules["durability_lab"].__path__[0]).parent
    alone = [sys.executable, "-I", "-S", "-c", command, str(lab)]
    done = subprocess.run(alone, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{len(faults.CATALOGUE)} models\n"), done.stderr
