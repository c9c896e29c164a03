"""Whether a file system mounts after a cut, asked without writing to its drive."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from durability.errors import TargetError
from durability_client.system.programs import run_tool
from durability_client.target.kernel_storage import KernelStorage
from durability_client.verify.mount_probe import cause_of, mount_point, probe_mount, recognised

UUID = "0c2ba21f-a5a6-4b51-ab07-48a4a1e6b9a5"


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_the_mount_probe_tells_a_cut_file_system_from_a_lost_one(
    make_mount: Callable[..., tuple[Path, Path]], make_loop: Callable[..., Path], kind: str
) -> None:
    """A file system that was cut while mounted probes well, its journal included; a wiped one does not."""
    mounted, directory = make_mount(kind)
    storage = KernelStorage(directory / "target")
    for number in range(50):
        (directory / str(number)).touch()
        storage.sync_directory()
    device = make_loop(384 << 20)
    # As the drive is at this moment: the journal is full.
    shutil.copyfile(_backing(mounted), _backing(device))
    file_system = storage.facts().file_system
    assert file_system is not None
    # After a cut there is no second drive with the same file system: kernels differ in what they make of one.
    subprocess.run(("umount", directory), check=True)
    if kind == "btrfs":
        subprocess.run(("btrfs", "device", "scan", "--forget"), check=True)
    probe = probe_mount(device)
    assert probe.mounts, probe.text
    assert (probe.type, probe.uuid) == (kind, file_system.uuid)
    raw = KernelStorage(device).open_bulk("")
    raw.pwrite(mmap.mmap(-1, 1 << 20), 0)
    raw.sync()
    raw.close()
    lost = probe_mount(device)
    assert not lost.mounts
    assert (lost.type, lost.uuid) == ("", "")
    assert "no file system is recognised" in lost.text


def test_the_mount_probe_says_why_a_damaged_file_system_does_not_mount(
    make_mount: Callable[..., tuple[Path, Path]], make_loop: Callable[..., Path]
) -> None:
    """A file system with only its superblock intact is recognised, and the probe says why it does not
    mount."""
    mounted, _ = make_mount("xfs")
    device = make_loop(384 << 20)
    with _backing(mounted).open("rb") as source, _backing(device).open("r+b") as file:
        file.write(source.read(4096))
    probe = probe_mount(device)
    assert probe.type == "xfs"
    assert not probe.mounts
    assert "does not mount with ro,nouuid" in probe.text


def test_the_mount_probe_asks_only_for_what_a_mount_with_replay_gives(
    make_mount: Callable[..., tuple[Path, Path]], make_loop: Callable[..., Path]
) -> None:
    """A file system that is whole only once its log is replayed mounts: that is all an honest drive owes."""
    mounted, directory = make_mount("ext4", mkfs=("-b", "4096"))
    (directory / "file").touch()
    KernelStorage(directory / "file").sync_directory()
    device = make_loop(384 << 20)
    shutil.copyfile(_backing(mounted), _backing(device))
    _spoil_what_the_journal_restores(device)
    failed = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"mount -o ro,noload {device} /mnt && ls -A /mnt/"],
        capture_output=True,
        check=False,
    )
    assert failed.returncode, "without replay it does not mount, or its root cannot be listed"

    probe = probe_mount(device)

    assert probe.mounts, probe.text


@pytest.mark.parametrize("kind", ["ext2", "ext3", "ext4"])
def test_the_mount_probe_does_not_panic(make_loop: Callable[..., Path], kind: str) -> None:
    """A file system may ask for a panic at an error. The probe asks for another behaviour, which each driver
    of ext2, ext3 and ext4 takes."""
    device = make_loop(64 << 20)
    subprocess.run([f"mkfs.{kind}", "-q", device], check=True)
    probe = probe_mount(device)
    assert (probe.type, probe.mounts) == (kind, True), probe.text


@pytest.mark.skipif(not os.access("/run", os.W_OK), reason="needs /run")
def test_the_mount_probe_needs_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mount point lies in memory: the system's own disk may take no file since the cut."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with mount_point() as directory:
        assert Path(directory).parent == Path("/run")
    assert not Path(directory).exists()


def test_the_mount_probe_takes_no_set_up_for_damage(
    make_mount: Callable[..., tuple[Path, Path]], make_loop: Callable[..., Path]
) -> None:
    """A read-only device, or one with signatures of two file systems, is refused: it proves no damage."""
    mounted, directory = make_mount("ext4")
    KernelStorage(directory / "file").sync_directory()
    device = make_loop(384 << 20)
    shutil.copyfile(_backing(mounted), _backing(device))
    subprocess.run(["blockdev", "--setro", device], check=True)
    with pytest.raises(TargetError, match="is read-only"):
        probe_mount(device)
    subprocess.run(["blockdev", "--setrw", device], check=True)
    other, _ = make_mount("xfs")
    with other.open("rb") as source, device.open("r+b") as file:
        file.write(source.read(512))  # its superblock lies before that of ext4
    with pytest.raises(TargetError, match="several file systems"):
        probe_mount(device)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_the_mount_probe_takes_no_log_elsewhere_for_damage(make_loop: Callable[..., Path], kind: str) -> None:
    """The log is on a device that is not named, or not there: nothing of the file system is lost."""
    device, log = make_loop(384 << 20), make_loop(128 << 20)
    make: list[list[object]] = [["mkfs.xfs", "-q", "-l", f"logdev={log},size=64m", device]]
    if kind == "ext4":
        make = [
            ["mke2fs", "-q", "-O", "journal_dev", log],
            ["mkfs.ext4", "-q", "-J", f"device={log}", device],
        ]
    for command in make:
        subprocess.run(list(map(str, command)), check=True)
    with pytest.raises(TargetError, match=f"the log of the {kind} on .* is on another device"):
        probe_mount(device)


def test_the_mount_probe_finds_a_journal_that_cannot_be_replayed(make_loop: Callable[..., Path]) -> None:
    """A file system that mounts only without its journal does not mount; the probe wrote nothing."""
    device = make_loop(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-b", "4096", device], check=True)
    journal = subprocess.run(
        ["debugfs", "-R", "bmap <8> 0", device], check=True, capture_output=True, text=True
    ).stdout
    with device.open("r+b") as file:
        file.seek(int(journal) * 4096)
        file.write(bytes(4096))
    before = _backing(device).read_bytes()
    probe = probe_mount(device)
    assert not probe.mounts
    assert "does not mount with ro,errors=remount-ro:" in probe.text
    assert _backing(device).read_bytes() == before


@pytest.mark.parametrize(
    ("words", "io_error", "refused"),
    [
        ("mount(2) system call failed: Structure needs cleaning.", False, False),
        ("mount failed: Structure needs cleaning", False, False),
        ("wrong fs type or bad option: Structure needs cleaning", False, False),
        ("cannot mount; probably corrupted filesystem on /dev/sda1.", False, False),
        ("mount(2) system call failed: Bad message.", False, False),
        ("mount(2) system call failed: Stale file handle.", False, False),
        ("ls: reading directory '/tmp/x': Bad message", False, False),
        ("can't read superblock on /dev/sda1.", True, False),
        ("ls: reading directory '/tmp/x': Input/output error", True, False),
        ("wrong fs type, bad option, bad superblock on /dev/sda1, missing codepage or helper", False, True),
        ("wrong fs type or bad option: Invalid argument", False, True),
    ],
)
def test_an_error_that_damage_gives_is_damage(words: str, *, io_error: bool, refused: bool) -> None:
    """The kernel says that the file system is damaged, or at least that it does not take it."""
    assert cause_of(f"xfs on /dev/sda1 does not mount with ro: mount: /tmp/x: {words}") == (io_error, refused)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("mount(2) system call failed: Cannot allocate memory.", "start a system with more memory"),
        ("mount(2) system call failed: File exists.", "detach any copy"),
        ("/dev/sda1 already mounted or mount point busy.", "remove the cause"),
        ("unknown filesystem type 'xfs'.", "remove the cause"),
        ("mount(2) system call failed: Function not implemented.", "remove the cause"),
        ("mount(2) system call failed: No such file or directory.", "remove the cause"),
        ("mount failed: Operation not supported", "remove the cause"),
        ("cannot mount /dev/sda1 read-only.", "remove the cause"),
        ("permission denied.", "remove the cause"),
        ("exit code 32", "remove the cause"),
    ],
)
def test_an_error_that_a_system_gives_is_no_damage(words: str, remedy: str) -> None:
    """Any other error may have a cause beside the drive: no verdict, and what to do is said."""
    with pytest.raises(TargetError, match=f"proves no damage: {remedy}"):
        cause_of(f"xfs on /dev/sda1 does not mount with ro: mount: /tmp/x: {words}")


@pytest.mark.parametrize(
    ("code", "said", "found"),
    [
        (0, "DEVNAME=/dev/sda1\nUUID=u-1\nBLOCK_SIZE=4096\nTYPE=ext4\n", ("ext4", "u-1")),
        (0, "DEVNAME=/dev/sda1\nPTTYPE=dos\n", ("", "")),
        (2, "", ("", "")),
    ],
)
def test_a_file_system_is_recognised_by_blkid(code: int, said: str, found: tuple[str, str]) -> None:
    """A device without one is known by the exit code, or by another signature."""
    assert recognised(Path("/dev/sda1"), CompletedProcess((), code, said, "")) == found


@pytest.mark.parametrize(
    ("code", "said"), [(0, '/dev/sda1: UUID="u-1" TYPE="ext4"\n'), (0, ""), (1, ""), (4, ""), (127, "")]
)
def test_an_answer_that_is_not_of_blkid_is_no_empty_device(code: int, said: str) -> None:
    """Another program of that name, with other options, shows no lost file system."""
    with pytest.raises(TargetError, match="blkid does not say what /dev/sda1 holds"):
        recognised(Path("/dev/sda1"), CompletedProcess((), code, said, ""))


def test_blkid_of_this_system_says_what_a_file_holds(tmp_path: Path) -> None:
    """Its answers are understood: for a file system, for zeros, and for no bytes at all."""
    image = tmp_path / "image"
    image.touch()
    blkid = ("blkid", "-p", "-o", "export", str(image))
    assert recognised(image, run_tool(*blkid)) == ("", "")
    image.write_bytes(bytes(8 << 20))
    assert recognised(image, run_tool(*blkid)) == ("", "")
    run_tool("mkfs.ext4", "-q", "-F", "-U", UUID, str(image))
    assert recognised(image, run_tool(*blkid)) == ("ext4", UUID)


def _spoil_what_the_journal_restores(device: Path) -> None:
    """Zero the block of the root directory's names, of which the journal of an ext4 in use has a copy."""
    block = subprocess.run(
        ["debugfs", "-R", "bmap <2> 0", device], check=True, capture_output=True, text=True
    ).stdout
    with device.open("r+b") as file:
        file.seek(int(block) * 4096)
        file.write(bytes(4096))


def _backing(device: Path) -> Path:
    """The file under a loop device."""
    return Path((Path("/sys/block") / device.name / "loop" / "backing_file").read_text().strip())
