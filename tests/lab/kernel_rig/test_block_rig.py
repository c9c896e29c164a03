"""The block rig without the client: what the kernel was told is durable, and what a cut makes of it."""

from __future__ import annotations

import errno
import mmap
import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from durability.campaign.definition.settings import LEAST_BYTES
from durability.errors import SetupError
from durability_lab.kernel_rig import block_rig
from durability_lab.kernel_rig.block_rig import BlockRig
from durability_lab.support.loads import FileSystemName
from tests.lab.support.processes import naming
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("rig_machine")

BLOCK = 4096
BLOCKS = 1024
UNREADABLE = -1


def page(number: int) -> bytes:
    return number.to_bytes(8, "big") * (BLOCK // 8)


def prepare(path: Path) -> None:
    """Write zero to every block of `path` and sync file and directory."""
    with path.open("r+b" if path.is_block_device() else "w+b") as file:
        file.write(page(0) * BLOCKS)
        os.fsync(file.fileno())
    if not path.is_block_device():
        directory = os.open(path.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)


def overwrite(path: Path, count: int) -> None:
    """Write 1 to `count` into the blocks in turn, with an fdatasync each."""
    file = os.open(path, os.O_RDWR)
    try:
        for number in range(1, count + 1):
            os.pwrite(file, page(number), number % BLOCKS * BLOCK)
            os.fdatasync(file)
    finally:
        os.close(file)


def read_numbers(path: Path) -> list[int]:
    """The number in each block, 0 if it is torn and UNREADABLE at an error, asked of the drive."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        return [read_number(file, at) for at in range(0, BLOCK * BLOCKS, BLOCK)]
    finally:
        os.close(file)


def read_number(file: int, offset: int) -> int:
    """As `read_numbers`, of one block."""
    block = mmap.mmap(-1, BLOCK)
    try:
        got = os.preadv(file, [block], offset)
    except OSError as error:
        if error.errno != errno.EIO:  # btrfs says it where a block does not match its checksum
            raise
        return UNREADABLE
    assert got == BLOCK
    return int.from_bytes(block[:8], "big") if block[:] == block[:8] * (BLOCK // 8) else 0


def lost_after_cut(drive: str, file_system: FileSystemName | None) -> int | None:
    """How many of the last BLOCKS synced writes are gone after a cut; None where nothing can be mounted."""
    count = 2 * BLOCKS + 100
    with BlockRig(drive, file_system, seed=11) as rig:
        prepare(rig.target)
        overwrite(rig.target, count)
        rig.cut()
        rig.power_on()
        if file_system:
            try:
                rig.mount()
            except block_rig.MountError:
                return None
        found = read_numbers(rig.target)
        return sum(found[number % BLOCKS] != number for number in range(count - BLOCKS + 1, count + 1))


@pytest.mark.parametrize("file_system", ["ext4", "xfs", "btrfs", None])
@pytest.mark.parametrize("drive", ["honest", "write-through", "filter-honest"])
def test_honest_drives_keep_every_synced_write(drive: str, file_system: FileSystemName | None) -> None:
    """On every file system, all writes for which fdatasync returned are there after the cut."""
    assert lost_after_cut(drive, file_system) == 0


def test_liar_loses_recent_synced_writes_and_keeps_old_ones() -> None:
    """The liar's cut takes what fits its cache, which is the last writes, and nothing before them."""
    lost = lost_after_cut("flush-ignored", None)
    assert lost is not None
    assert 100 < lost < BLOCKS // 2


@pytest.mark.parametrize("file_system", ["ext4", "xfs", "btrfs"])
def test_liar_loses_synced_writes_or_the_file_system(file_system: FileSystemName) -> None:
    """Under a file system the liar's cut takes synced data, or what the mount needs."""
    assert lost_after_cut("flush-ignored", file_system) != 0


@pytest.mark.parametrize("file_system", ["ext4", "xfs", "btrfs"])
def test_amnesiac_loses_the_file_system(file_system: FileSystemName) -> None:
    """A drive that wrote nothing back since it was powered on comes back without a file system."""
    assert lost_after_cut("filter-amnesiac", file_system) is None


def test_cut_drive_fails_and_comes_back_as_another_enumeration() -> None:
    """After the cut a sync is an I/O error; with power the same file is a loop device of a higher diskseq."""

    def attachment(rig: BlockRig) -> tuple[int, str]:
        loop = Path("/sys/block", rig.device.name)
        return int((loop / "diskseq").read_text()), (loop / "loop/backing_file").read_text()

    with BlockRig("honest", "ext4", seed=3) as rig:
        prepare(rig.target)
        before = attachment(rig)
        with rig.target.open("r+b", buffering=0) as file:
            rig.cut()
            file.write(page(1))
            with pytest.raises(OSError, match=r"Input/output error|Read-only") as caught:
                os.fdatasync(file.fileno())
            assert caught.value.errno in {errno.EIO, errno.EROFS}
        rig.power_on()
        after = attachment(rig)
    assert after[0] > before[0]
    assert after[1] == before[1]


@pytest.mark.parametrize("in_order", [True, False])
def test_drive_keeps_its_power_while_its_machine_starts_anew(in_order: bool) -> None:
    """After `detach`, synced data are there. Unsynced data are there only if `detach` was in order."""
    with BlockRig("flush-ignored", "ext4", seed=11, disturbed=True) as rig:
        prepare(rig.target)
        overwrite(rig.target, 100)
        with rig.target.open("r+b") as file:
            file.write(page(7))
        rig.detach(in_order=in_order)
        assert rig.powered
        assert not rig.target.exists()
        rig.attach()
        rig.mount()
        numbers = read_numbers(rig.target)
    assert numbers[1:101] == list(range(1, 101))
    assert numbers[0] == (7 if in_order else 0)


def test_drive_that_stops_answering_answers_again() -> None:
    """A request waits until `answer`, and no longer."""
    with BlockRig("honest", None, seed=11, disturbed=True) as rig:
        rig.stop_answering()
        reader = subprocess.Popen(
            ("dd", f"if={rig.device}", "iflag=direct", "bs=4096", "count=1", "of=/dev/null")
        )
        with pytest.raises(subprocess.TimeoutExpired):
            reader.wait(timeout=0.5)
        rig.answer()
        assert reader.wait(timeout=60) == 0


def test_drive_loses_its_power_at_a_read() -> None:
    """The events of a disturbed rig reach its drive, which is without power until the next `power_on`."""
    with BlockRig("honest", None, seed=11, disturbed=True) as rig:
        prepare(rig.target)
        rig.events.happen(reads=1)
        assert read_numbers(rig.target)[-1] == UNREADABLE
        wait_for(lambda: not rig.powered)
        rig.cut()
        rig.power_on()
        assert rig.powered
        assert read_numbers(rig.target) == [0] * BLOCKS


@pytest.mark.parametrize("file_system", ["ext4", "xfs", "btrfs"])
def test_file_system_is_made_beside_a_rig_that_is_dead(file_system: FileSystemName) -> None:
    """A dead rig's file system, mounted on a loop device that no longer answers, does not prevent a file
    system on another rig."""
    with BlockRig("honest", "ext4", seed=3) as dead:
        dead.cut()
        with BlockRig("honest", file_system, seed=4) as rig:
            prepare(rig.target)
            assert rig.target.stat().st_size > 0


@pytest.mark.parametrize("file_system", ["ext4", "xfs", "btrfs"])
def test_smallest_drive_takes_its_file_system(file_system: FileSystemName) -> None:
    """The least size of each is enough; and a directory may be named as it likes."""
    size_bytes = LEAST_BYTES[file_system]
    with tempfile.TemporaryDirectory(prefix="a=b,c d") as directory:
        for drive in ("honest", "filter-honest"):
            with BlockRig(drive, file_system, seed=3, size_bytes=size_bytes, parent=Path(directory)) as rig:
                rig.target.write_bytes(b"x")
        assert list(Path(directory).iterdir()) == []


def test_directory_that_is_named_too_long_is_refused(tmp_path: Path) -> None:
    """Linux's sockets have short paths; the error says which directory it is about."""
    directory = tmp_path / ("long" * 25)
    directory.mkdir()
    refused = pytest.raises(SetupError, match="long: its path is too long for a socket")
    with refused, BlockRig("honest", None, seed=3, parent=directory):
        pass
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
def test_failure_names_the_tool_and_its_first_line(file_system: FileSystemName) -> None:
    """The error has the tool's name and its first line of output, but not its usage or the script that
    started it."""
    with pytest.raises(SetupError) as caught, BlockRig("honest", file_system, seed=3, size_bytes=4096):
        pass
    assert re.fullmatch(rf"mkfs\.{file_system}: exit code 1: [^\n]+", str(caught.value))


def test_directory_without_room_is_named(tmp_path: Path) -> None:
    """Media that cannot grow are an I/O error to the tools; what is wrong is said."""
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", tmp_path), check=True)
    try:
        (tmp_path / "full").write_bytes(bytes((8 << 20) - (64 << 10)))
        rig = BlockRig("honest", "ext4", seed=3, parent=tmp_path)
        with pytest.raises(SetupError, match=f"no space is left in {tmp_path} "), rig:
            pass
        assert [path.name for path in tmp_path.iterdir()] == ["full"]
    finally:
        subprocess.run(("umount", tmp_path), check=True)


def test_nothing_outlives_the_rig(tmp_path: Path) -> None:
    """After an exception within, cut or not, no mount, process or file of the rig is left."""

    class InterruptionError(Exception):
        pass

    for cut in (False, True):
        held = -1
        with suppress(InterruptionError), BlockRig("honest", "xfs", seed=3) as rig:
            prepare(rig.target)
            held = os.open(rig.target, os.O_RDWR)
            if cut:
                rig.cut()
            raise InterruptionError
        directory = rig.mount_point.parent
        os.close(held)
        assert not directory.exists()
        assert str(directory) not in Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        assert not naming(directory)


def test_write_through_drive_gets_no_flush() -> None:
    """The kernel is told whether there is a volatile cache, again after a cut, and sends flushes if so."""

    def flushes(loop: str) -> int:
        return int(Path("/sys/block", Path(loop).name, "stat").read_text().split()[15])

    def write_cache(loop: str) -> str:
        return Path("/sys/block", Path(loop).name, "queue/write_cache").read_text().strip()

    for drive, cache, flushed in (("write-through", "write through", False), ("honest", "write back", True)):
        with BlockRig(drive, None, seed=3) as rig:
            before = flushes(rig.loop)
            prepare(rig.target)
            overwrite(rig.target, 10)
            assert write_cache(rig.loop) == cache
            assert (flushes(rig.loop) > before) is flushed
            rig.cut()
            rig.power_on()
            assert write_cache(rig.loop) == cache


def test_killed_rig_leaves_nothing() -> None:
    """SIGKILL of the process that has a rig, with a file system mounted: all of it is gone soon after."""
    script = (
        "from durability_lab.kernel_rig.block_rig import BlockRig\n"
        "with BlockRig('honest', 'ext4', seed=1) as rig:\n"
        "    print(rig.mount_point, rig.loop, flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        mount_point, loop = process.stdout.readline().split()
        directory = Path(mount_point).parent
        assert mount_point in Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        process.kill()
    wait_for(lambda: not directory.exists())
    assert str(directory) not in Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    backing = Path("/sys/block", Path(loop).name, "loop/backing_file")
    assert not backing.exists() or str(directory) not in backing.read_text()
    wait_for(lambda: not naming(directory), lambda: naming(directory))


def test_held_device_stops_power_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a client holds the dead device, `power_on` says so instead of making a second device."""
    with BlockRig("honest", None, seed=3) as rig:
        held = os.open(rig.target, os.O_RDONLY)
        try:
            rig.cut()
            with monkeypatch.context() as patched, pytest.raises(SetupError, match="let go"):
                patched.setattr(block_rig, "_DEADLINE_S", 20.0)  # also for `losetup`, which comes first
                rig.power_on()
        finally:
            os.close(held)
