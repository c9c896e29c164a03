"""What a run refuses to overwrite or to plan: real files, devices, mounts and file systems."""

from __future__ import annotations

import mmap
import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from durability import limits
from durability.errors import NotOursError, TargetBusyError, TargetError, UsageError
from durability.formats.facts import Facts
from durability.formats.plan import Plan, TargetKind
from durability_client.link.endpoint import Endpoint
from durability_client.run.planning import RunOptions
from durability_client.run.planning import make_plan as plan_for
from durability_client.target import safety_checks
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.safety_checks import (
    Consent,
    block_bytes,
    check_contents,
    check_held_device,
    check_path,
    check_plan,
    check_shown,
    check_space,
    check_unlocked,
    holds_run,
    name_bytes,
)
from durability_client.target.target_files import TargetFiles
from durability_lab.kernel_rig.block_rig import without_loop_mounts
from tests import sample_facts
from tests.loop_devices import looped, wait_until_unused
from tests.opal_drives import LOCKED, MBR_ENABLED, SUPPORTED, opal_says

MakePlan = Callable[..., Plan]
NOTHING = Consent()
DESTROY = Consent(destroy_data=True)
LINUX_PARTITION = struct.pack("<B3sB3sII", 0, bytes(3), 0x83, bytes(3), 2048, 4096)
PARTITION_TABLE = bytes(446) + LINUX_PARTITION + bytes(48) + b"\x55\xaa"


def _facts(path: Path, *, physical: int = 4096, block: int = 4096, offset: int | None = 0) -> Facts:
    """Real facts of `path`, with block sizes and partition offset of some other drive."""
    facts = KernelStorage(path).facts()
    assert facts.file_system is not None
    drives = tuple(replace(drive, physical_block_bytes=physical) for drive in facts.drives)
    return replace(
        facts, drives=drives, file_system=replace(facts.file_system, block_bytes=block), offset_bytes=offset
    )


def test_a_new_file_in_a_directory_passes(tmp_path: Path) -> None:
    """A name that does not exist, in a directory that does, may become a target."""
    check_path(tmp_path / "target", NOTHING)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("kind", ["directory", "fifo", "socket", "character device"])
def test_what_is_no_file_and_no_block_device_is_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories, FIFOs, sockets and character devices are refused, without waiting for their other end."""
    path = tmp_path / "thing"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        monkeypatch.chdir(tmp_path)  # a socket's path must be short
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("thing")
    else:
        path = Path("/dev/null")
    with pytest.raises(TargetError, match=r"is a directory; name a file|neither a regular file nor"):
        check_path(path, NOTHING)


def test_a_missing_directory_is_refused_by_name(tmp_path: Path) -> None:
    """A target below a directory that does not exist names that directory, and makes nothing."""
    with pytest.raises(TargetError, match=f"directory {tmp_path / 'no'} does not exist"):
        check_path(tmp_path / "no" / "target", NOTHING)
    assert not (tmp_path / "no").exists()


def test_a_mistyped_device_name_is_refused() -> None:
    """A name below /dev that does not exist never becomes a file in memory."""
    with pytest.raises(TargetError, match="no such device"):
        check_path(Path("/dev/nvme99n1"), DESTROY)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/dev/nvme99n1", "no such device"),
        ("/no/such/x", "directory /no/such does not exist"),
        ("/tmp", "is a directory; name a file in it"),
        ("/dev/null", "neither a regular file nor a block device"),
    ],
)
def test_what_cannot_be_a_target_is_not_shown(path: str, why: str) -> None:
    """`device` would show another drive for a typing error. A new name in a directory has a place."""
    with pytest.raises(TargetError, match=why):
        check_shown(Path(path))
    check_shown(Path("/tmp/durability.new"))


def test_a_read_only_file_system_is_refused(make_mount: Callable[..., tuple[Path, Path]]) -> None:
    """A target on a file system that is mounted read-only is refused."""
    _, directory = make_mount()
    subprocess.run(["mount", "-o", "remount,ro", str(directory)], check=True)
    with pytest.raises(TargetError, match="mounted read-only"):
        check_path(directory / "target", NOTHING)


@pytest.mark.lab
def test_a_directory_without_permission_is_refused() -> None:
    """A user without write permission on the directory is refused before any action."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with tempfile.TemporaryDirectory() as directory:  # pytest's own is below one that only root may enter
        Path(directory).chmod(0o755)
        program = (
            "import os, pathlib\n"
            "from durability_client.target.safety_checks import Consent, check_path\n"
            "os.setgid(65534); os.setuid(65534)\n"
            f"check_path(pathlib.Path('{directory}/target'), Consent())"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
        )
    assert f"{directory}: no permission to write" in done.stderr


def test_a_device_needs_consent(make_loop: Callable[..., Path]) -> None:
    """A whole device is overwritten only when that was said."""
    device = make_loop()
    with pytest.raises(UsageError, match="--destroy-data"):
        check_path(device, NOTHING)
    check_path(device, DESTROY)


def test_a_device_that_is_another_by_now_is_refused(make_loop: Callable[..., Path]) -> None:
    """A device that got a signature, was attached again, or was replaced after it was examined is refused.
    --force accepts the signature only."""
    device = make_loop()
    storage = KernelStorage(device)
    facts = storage.facts()
    storage.lock()
    check_held_device(device, facts, DESTROY)
    storage.unlock()
    subprocess.run(["mkswap", "--quiet", device], check=True, capture_output=True)
    storage.lock()
    with pytest.raises(NotOursError, match="carries swap"):
        check_held_device(device, facts, DESTROY)
    check_held_device(device, facts, replace(DESTROY, force=True))
    storage.unlock()
    (drive,) = facts.drives
    assert drive.diskseq is not None
    for other in (replace(drive, diskseq=drive.diskseq - 1), replace(drive, name="loop999")):
        changed = replace(facts, drives=(other,))
        with pytest.raises(TargetError, match="attached anew, or replaced, since it was examined"):
            check_held_device(device, changed, replace(DESTROY, force=True))


def test_a_mounted_device_is_refused_whatever_was_said(
    make_mount: Callable[..., tuple[Path, Path]],
) -> None:
    """A mounted device is refused with its mount point, --force or not."""
    device, directory = make_mount()
    with pytest.raises(TargetBusyError, match=f"mounted at {directory}"):
        check_path(device, Consent(destroy_data=True, force=True))


def test_a_device_that_another_holds_is_refused(make_loop: Callable[..., Path]) -> None:
    """A device that another process holds with O_EXCL is refused."""
    device = make_loop()
    holder = KernelStorage(device)
    holder.lock()
    with pytest.raises(TargetBusyError, match="held by"):
        check_path(device, DESTROY)
    holder.unlock()
    check_path(device, DESTROY)


def test_a_device_that_another_program_writes_is_refused(make_loop: Callable[..., Path]) -> None:
    """A virtual machine or a database holds it without O_EXCL. A program that only reads is no obstacle."""
    device = make_loop()
    with _opened(device, "<"):
        check_path(device, DESTROY)
    with _opened(device, "<>") as holder:
        why = rf"{device} is open for writing in process {holder.pid} \(sh\); end that first"
        with pytest.raises(TargetBusyError, match=why):
            check_path(device, Consent(destroy_data=True, force=True))
    check_path(device, DESTROY)


def test_a_program_that_writes_a_device_for_a_moment_is_waited_for(
    make_loop: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of udev open each new device so. This one ends after the first look."""
    device = make_loop()
    with _opened(device, "<>") as holder:
        monkeypatch.setattr(safety_checks, "time", SimpleNamespace(sleep=lambda _: holder.communicate()))
        check_path(device, DESTROY)
        assert holder.returncode is not None, "it was looked at again"


@contextmanager
def _opened(device: Path, how: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the device open until its stdin ends."""
    script = f'exec 3{how}"$0"; echo; read -r _'
    command = ("sh", "-c", script, str(device))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        yield process
        if process.returncode is None:
            process.communicate()


@pytest.mark.parametrize("flags", [LOCKED, MBR_ENABLED])
def test_a_target_on_a_locked_drive_is_refused(
    make_mount: Callable[..., tuple[Path, Path]], flags: int
) -> None:
    """The device itself, and a file in its file system. Drives of other targets are not asked."""
    device, directory = make_mount()
    targets: list[tuple[Path, TargetKind]] = [(device, "device"), (directory / "target", "file")]
    with opal_says(SUPPORTED | flags):
        for path, kind in targets:
            with pytest.raises(TargetError, match=rf"the drive {device.name} is locked \(OPAL\): unlock it"):
                check_unlocked(path, kind, then="verify")
        check_unlocked(Path("/dev/shm/target"), "file", then="verify")
    for path, kind in targets:
        check_unlocked(path, kind, then="verify")


def test_a_read_only_device_is_refused(make_loop: Callable[..., Path]) -> None:
    """A device that the kernel takes for read-only is refused."""
    with pytest.raises(TargetError, match="read-only"):
        check_path(make_loop(read_only=True), DESTROY)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "swap", "dos"])
def test_a_device_with_a_signature_needs_force(make_loop: Callable[..., Path], kind: str) -> None:
    """File systems, swap and partition tables on a device are recognised and named."""
    device = make_loop(384 << 20)
    if kind == "dos":
        with device.open("r+b") as file:
            file.write(PARTITION_TABLE)
    else:
        program = "/usr/sbin/mkswap" if kind == "swap" else f"/usr/sbin/mkfs.{kind}"
        subprocess.run([*without_loop_mounts(), program, "-q", str(device)], check=True)
    with pytest.raises(NotOursError, match=f"carries {kind}"):
        check_path(device, DESTROY)
    check_path(device, Consent(destroy_data=True, force=True))


def test_a_device_of_ours_may_be_used_again(make_loop: Callable[..., Path], make_plan: MakePlan) -> None:
    """A device with the data of an earlier run is accepted without --force; one with a partition table is
    refused."""
    device = make_loop()
    storage = KernelStorage(device)
    TargetFiles(storage, make_plan(target_kind="device")).create()
    written = device.read_bytes()
    check_path(device, DESTROY)
    check_contents(storage)
    assert holds_run(device) and device.read_bytes() == written
    with device.open("r+b") as file:
        file.write(PARTITION_TABLE)
    with pytest.raises(NotOursError, match="carries dos"):
        check_path(device, DESTROY)


@pytest.mark.parametrize("content", [b"somebody's notes", os.urandom(1 << 20), bytes(1 << 20)])
def test_a_file_that_is_not_ours_is_refused(tmp_path: Path, content: bytes) -> None:
    """A file that holds anything that this tool did not write is refused, and stays as it is."""
    path = tmp_path / "target"
    path.write_bytes(content)
    with pytest.raises(NotOursError, match="exists and was not written by this tool"):
        check_contents(KernelStorage(path))
    assert path.read_bytes() == content


def test_empty_files_and_files_of_ours_pass(tmp_path: Path, make_plan: MakePlan) -> None:
    """An empty file, and the files of an earlier run, even without their superblocks, may be overwritten."""
    storage, plan = KernelStorage(tmp_path / "target"), make_plan()
    storage.lock(create=True)
    check_contents(storage)
    TargetFiles(storage, plan).create()
    check_contents(storage)
    for offset in plan.superblock_offsets:
        with storage.path.open("r+b") as file:
            file.seek(offset)
            file.write(bytes(60 << 10))
    check_contents(storage)
    for offset in plan.superblock_offsets:
        with storage.path.open("r+b") as file:
            file.seek(offset)
            file.write(bytes(limits.SUPERBLOCK_BYTES))
    with pytest.raises(NotOursError, match="was not written by this tool"):
        check_contents(storage)
    storage.unlock()


@pytest.mark.parametrize("suffix", [".control", ".0.3", ".0.3.tmp"])
def test_a_sibling_that_is_not_ours_is_refused(tmp_path: Path, make_plan: MakePlan, suffix: str) -> None:
    """A file that happens to have the name of one of the target's is not removed."""
    storage = KernelStorage(tmp_path / "target")
    TargetFiles(storage, make_plan()).create()
    (tmp_path / f"target{suffix}").write_bytes(b"mine")
    with pytest.raises(NotOursError, match=f"target{suffix} exists"):
        check_contents(storage)


@pytest.mark.parametrize("suffix", [".2026.11", ".0.3", ".control"])
def test_the_target_of_another_run_is_no_sibling(tmp_path: Path, make_plan: MakePlan, suffix: str) -> None:
    """A run never removes another run's target that has the name of one of its own files."""
    other = KernelStorage(tmp_path / f"target{suffix}")
    other.lock(create=True)
    TargetFiles(other, make_plan()).create()
    written = other.path.read_bytes()
    storage = KernelStorage(tmp_path / "target")
    storage.lock(create=True)
    with pytest.raises(NotOursError, match=rf"target\{suffix} is the target of another run"):
        check_contents(storage)
    TargetFiles(KernelStorage(tmp_path / "elsewhere"), make_plan()).create()
    (tmp_path / "elsewhere").rename(storage.path)  # an earlier run that had the name first
    with pytest.raises(NotOursError, match=rf"target\{suffix} is the target of another run"):
        check_contents(storage)
    assert other.path.read_bytes() == written


@pytest.mark.parametrize("suffix", [".2026.11", ".0.3", ".0.3.tmp", ".control"])
def test_a_file_of_another_target_is_no_target(tmp_path: Path, make_plan: MakePlan, suffix: str) -> None:
    """The name of a file that belongs, or may belong, to a run is refused, whether it is there or not."""
    storage = KernelStorage(tmp_path / "target")
    beside = tmp_path / f"target{suffix}"
    check_path(beside, NOTHING)
    storage.path.write_bytes(b"somebody's notes")
    check_path(beside, NOTHING)
    storage.path.unlink()
    storage.path.mkdir()
    check_path(beside, NOTHING)
    storage.path.rmdir()
    TargetFiles(storage, make_plan()).create()
    for _ in range(2):
        with pytest.raises(NotOursError, match=rf"target\{suffix} has the name of a file of the run on"):
            check_path(beside, NOTHING)
        beside.touch()
    for name in ("target.1", "target.0.3.4", "target.dat", ".0.3", "other.0.3"):
        check_path(tmp_path / name, NOTHING)


def test_empty_siblings_pass_only_beside_a_target_of_ours(tmp_path: Path, make_plan: MakePlan) -> None:
    """A name that was being made in a cut may be empty; without our main file an empty file is not ours."""
    storage = KernelStorage(tmp_path / "target")
    storage.lock(create=True)
    (tmp_path / "target.0.3").touch()
    with pytest.raises(NotOursError, match=r"target\.0\.3 exists"):
        check_contents(storage)
    (tmp_path / "target.0.3").unlink()
    TargetFiles(storage, make_plan(workload="rename", slots=20, credit=5)).create()
    (tmp_path / "target.0.3").write_bytes(b"")
    check_contents(storage)
    storage.unlock()


@pytest.mark.parametrize(
    ("record", "physical", "block", "passes"),
    [
        (4096, 512, 4096, True),
        (4096, 4096, 4096, True),
        (8192, 4096, 4096, True),
        (512, 512, 512, True),
        (512, 4096, 512, False),
        (512, 512, 4096, False),
        (2048, 512, 4096, False),
        (6144, 4096, 4096, False),
        (4096, 16384, 4096, False),
    ],
)
def test_records_that_share_a_block_need_consent(  # noqa: PLR0917 - the parameters of a matrix
    tmp_path: Path, make_plan: MakePlan, record: int, physical: int, block: int, passes: bool
) -> None:
    """A record must fill whole blocks of the drive and of the file system."""
    facts = _facts(tmp_path / "target", physical=physical, block=block)
    plan = make_plan(record_bytes=record)
    check_plan(facts, plan, Consent(allow_shared_blocks=True))
    if passes:
        check_plan(facts, plan, NOTHING)
        return
    with pytest.raises(UsageError, match="--allow-shared-blocks"):
        check_plan(facts, plan, NOTHING)


def test_small_files_share_no_block(tmp_path: Path, make_plan: MakePlan) -> None:
    """A name of 512 bytes has a block of its file system, but not where the drive's blocks are larger."""
    plan = make_plan(workload="rename", record_bytes=512)
    check_plan(_facts(tmp_path / "target", block=4096), plan, Consent(force=True))
    with pytest.raises(UsageError, match="share blocks of 16384"):
        check_plan(_facts(tmp_path / "target", physical=16384), plan, Consent(force=True))


def test_a_misaligned_partition_needs_consent(tmp_path: Path, make_plan: MakePlan) -> None:
    """Records on a partition that starts within a physical block share blocks, whatever their size."""
    facts = _facts(tmp_path / "target", offset=63 * 512)
    with pytest.raises(UsageError, match="partition starts at byte 32256"):
        check_plan(facts, make_plan(), NOTHING)
    check_plan(facts, make_plan(), Consent(allow_shared_blocks=True))
    check_plan(_facts(tmp_path / "target", offset=2048 * 512), make_plan(), NOTHING)
    check_plan(_facts(tmp_path / "target", offset=None), make_plan(), NOTHING)


def test_a_misaligned_volume_needs_consent(tmp_path: Path, make_plan: MakePlan) -> None:
    """The offset of a volume is unknown, but the kernel knows whether it starts at a physical block."""
    volume, plan = _facts(tmp_path / "target", offset=None), make_plan()
    with pytest.raises(UsageError, match="align the partitions below it, or add --allow-shared-blocks"):
        check_plan(volume, plan, NOTHING, is_misaligned=True)
    check_plan(volume, plan, Consent(allow_shared_blocks=True), is_misaligned=True)
    check_plan(volume, plan, NOTHING, is_misaligned=False)


@pytest.mark.parametrize("workload", ["overwrite", "rename"])
def test_a_file_system_of_smaller_blocks_needs_consent(
    tmp_path: Path, make_plan: MakePlan, workload: str
) -> None:
    """A small ext4 has blocks of 1 KiB: a file may begin within a physical block, whatever its records."""
    plan = make_plan(workload=workload, record_bytes=4096)
    small = _facts(tmp_path / "target", physical=4096, block=1024)
    with pytest.raises(UsageError, match=r"blocks of 1024 bytes, and the drive physical blocks of 4096"):
        check_plan(small, plan, Consent(force=True))
    check_plan(small, plan, Consent(force=True, allow_shared_blocks=True))
    check_plan(_facts(tmp_path / "target", physical=512, block=1024), plan, Consent(force=True))


def test_the_blocks_of_a_logs_drive_align_no_partition(tmp_path: Path, make_plan: MakePlan) -> None:
    """Only the drive that the partition is on must have whole blocks before it."""
    one = _facts(tmp_path / "target", physical=512, offset=63 * 512)
    with_log = replace(one, drives=(*one.drives, replace(one.drives[0], physical_block_bytes=4096)))
    check_plan(with_log, make_plan(), NOTHING)


def test_the_block_is_the_largest_of_drive_and_file_system(tmp_path: Path) -> None:
    """The block is the larger of the physical block and the file system's block, at least 512 bytes."""
    path = tmp_path / "target"
    assert block_bytes(_facts(path, physical=4096, block=1024), direct=False) == 4096
    assert block_bytes(_facts(path, physical=512, block=4096), direct=False) == 4096
    assert block_bytes(replace(_facts(path), drives=(), file_system=None), direct=False) == 512


def test_records_on_a_device_share_the_blocks_of_the_page_cache(tmp_path: Path, make_plan: MakePlan) -> None:
    """Without O_DIRECT a write to a device takes its idle neighbours in the page cache's block along."""
    facts = replace(_facts(tmp_path / "target", physical=512), kind="device", file_system=None)
    facts = replace(facts, size_bytes=1 << 30)
    assert block_bytes(facts, direct=True) == 512
    assert block_bytes(facts, direct=False) == mmap.PAGESIZE
    odd = replace(facts, size_bytes=facts.size_bytes + 1024)
    assert block_bytes(odd, direct=False) == 1024  # the cache's blocks divide the device
    made = make_plan(target_kind="device", record_bytes=512)
    for sync in ("fdatasync", "dsync", "rwf-dsync"):
        plan = replace(made, sync=sync)
        with pytest.raises(UsageError, match=r"in the page cache of .*; use .* --direct or --allow-shared"):
            check_plan(facts, plan, NOTHING)
        check_plan(facts, plan, Consent(allow_shared_blocks=True))
        check_plan(facts, replace(plan, direct=True), NOTHING)
    check_plan(facts, replace(made, record_bytes=mmap.PAGESIZE), NOTHING)
    options = RunOptions(endpoint=Endpoint(), size_bytes=16 << 20, record_bytes=512)
    assert plan_for(options, facts, "device").block_bytes == mmap.PAGESIZE
    assert plan_for(replace(options, direct=True), facts, "device").block_bytes == 512


@pytest.mark.parametrize(
    ("kind", "kernel", "shares"),
    [
        ("xfs", "Linux 6.1.0-28-amd64 x86_64", True),
        ("gfs2", "Linux 5.14.0-503.el9.ppc64le ppc64le", True),
        ("zonefs", "Linux 6.5.13 aarch64", True),
        ("xfs", "no release", True),
        ("xfs", "Linux 6.6.0 aarch64", False),
        ("xfs", "Linux 7.0.1 aarch64", False),
        ("ext4", "Linux 6.1.0 x86_64", False),
        ("btrfs", "Linux 6.1.0 x86_64", False),
    ],
)
def test_records_on_xfs_share_the_pages_of_the_page_cache(
    make_plan: MakePlan, kind: str, kernel: str, *, shares: bool
) -> None:
    """Older kernels write all blocks of a changed page of a file on XFS, so records in one page share it."""
    small = replace(sample_facts.drive(), physical_block_bytes=512)
    facts = sample_facts.facts(
        drives=(small,), file_system=sample_facts.file_system(type=kind, block_bytes=1024)
    )
    facts = replace(facts, host=replace(facts.host, kernel=kernel))
    assert block_bytes(facts, direct=False) == (mmap.PAGESIZE if shares else 1024)
    assert block_bytes(facts, direct=True) == 1024
    append = make_plan(record_bytes=1024, workload="append", pattern="sequential")
    for plan in (make_plan(record_bytes=1024), append):
        check_plan(facts, replace(plan, direct=True), NOTHING)
        if not shares:
            check_plan(facts, plan, NOTHING)
            continue
        with pytest.raises(UsageError, match=r"in the page cache of .*; use .* --direct or --allow-shared"):
            check_plan(facts, plan, NOTHING)
    check_plan(facts, make_plan(record_bytes=mmap.PAGESIZE), NOTHING)
    check_plan(facts, make_plan(record_bytes=1024, workload="rename"), NOTHING)  # files share no page


def test_direct_io_needs_whole_logical_blocks(tmp_path: Path, make_plan: MakePlan) -> None:
    """O_DIRECT with records below the drive's logical block is a usage error, even with shared blocks."""
    facts = _facts(tmp_path / "target")
    facts = replace(facts, drives=tuple(replace(drive, logical_block_bytes=4096) for drive in facts.drives))
    plan = make_plan(record_bytes=512, direct=True)
    with pytest.raises(UsageError, match="logical block, 4096"):
        check_plan(facts, plan, Consent(allow_shared_blocks=True))


def test_names_and_lengths_need_a_journal_or_force(
    make_mount: Callable[..., tuple[Path, Path]], make_plan: MakePlan
) -> None:
    """They prove nothing on a file system without a journal; overwriting in place may still."""
    _, directory = make_mount(mkfs=("-O", "^has_journal", "-b", "4096"))
    facts = KernelStorage(directory / "target").facts()
    for workload in ("append", "create", "rename", "unlink"):
        plan = make_plan(workload=workload, pattern="sequential")
        with pytest.raises(TargetError, match=f"without a journal .* --workload {workload} proves nothing"):
            check_plan(facts, plan, NOTHING)
        check_plan(facts, plan, Consent(force=True))
    check_plan(facts, make_plan(), NOTHING)


def test_a_device_too_small_for_the_plan_is_refused(
    make_loop: Callable[..., Path], make_plan: MakePlan
) -> None:
    """A plan that does not fit the device is refused with both sizes."""
    facts = KernelStorage(make_loop(1 << 20)).facts()
    with pytest.raises(UsageError, match="the device has 1048576 bytes"):
        check_plan(facts, make_plan(target_kind="device"), DESTROY)


def test_a_file_system_too_small_for_the_plan_is_refused(
    make_mount: Callable[..., tuple[Path, Path]], make_plan: MakePlan
) -> None:
    """Space is checked before anything is written; what the target itself holds counts as free."""
    _, directory = make_mount()
    storage = KernelStorage(directory / "target")
    with pytest.raises(TargetError, match="MiB free"):
        check_space(storage, storage.facts(), make_plan(slots=60_000))
    growing = make_plan(workload="append", pattern="sequential", slots=20_000)
    with pytest.raises(TargetError, match="MiB free"):
        check_space(storage, storage.facts(), growing)
    large = make_plan(slots=30_000)
    check_space(storage, storage.facts(), large)
    TargetFiles(storage, large).create()
    check_space(storage, storage.facts(), large)
    with pytest.raises(TargetError, match="MiB free"):
        check_space(storage, storage.facts(), make_plan(workload="rename", slots=40_000))


def test_a_file_system_with_too_few_inodes_is_refused(
    make_mount: Callable[..., tuple[Path, Path]], make_plan: MakePlan
) -> None:
    """Names take an inode each; those that the target itself has count as free."""
    _, directory = make_mount(mkfs=("-N", "1000"))
    storage = KernelStorage(directory / "target")
    free = os.statvfs(directory).f_favail
    with pytest.raises(TargetError, match=f"inodes for {free} files free, {free // 2 * 2 + 4} needed"):
        check_space(storage, storage.facts(), make_plan(workload="rename", slots=free // 2, credit=10))
    fitting = make_plan(workload="rename", slots=free // 2 - 2, credit=10)
    check_space(storage, storage.facts(), fitting)
    TargetFiles(storage, fitting).create()
    check_space(storage, storage.facts(), fitting)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])  # btrfs gives room away in chunks
def test_names_take_what_is_planned_for_them(
    make_mount: Callable[..., tuple[Path, Path]], make_plan: MakePlan, kind: str
) -> None:
    """A file of one record, its inode and its directory entry take no more than the plan reckons with."""
    _, directory = make_mount(kind)
    storage = KernelStorage(directory / "target")
    plan = make_plan(workload="rename", slots=2000, record_bytes=512)
    before = os.statvfs(directory)
    TargetFiles(storage, plan).create()
    os.sync()
    after = os.statvfs(directory)
    taken = (before.f_bavail - after.f_bavail) * after.f_frsize
    assert taken <= 4000 * name_bytes(512, storage.facts()) + (2 << 20)


def test_a_device_behind_a_mounted_loop_device_is_refused_whatever_was_said(
    make_loop: Callable[..., Path], make_plan: MakePlan, tmp_path: Path
) -> None:
    """A device behind a mounted loop device is refused even with --force, after a run on it, and though the
    kernel permits O_EXCL."""
    device, directory = make_loop(), tmp_path / "mount"
    directory.mkdir()
    TargetFiles(KernelStorage(device), make_plan(target_kind="device")).create()
    with looped(device) as above:
        subprocess.run(("mkfs.ext4", "-q", above), check=True)
        subprocess.run(("mount", above, directory), check=True)
        try:
            with pytest.raises(TargetBusyError, match=f"{device} is behind the loop device {above}; unmount"):
                check_path(device, Consent(destroy_data=True, force=True))
        finally:
            subprocess.run(("umount", directory), check=True)
    wait_until_unused(device)
    check_path(device, Consent(destroy_data=True, force=True))


def test_a_file_behind_a_loop_device_is_refused(
    make_loop: Callable[..., Path], make_plan: MakePlan, tmp_path: Path
) -> None:
    """Though a run wrote it: it is a disk now."""
    device = make_loop()
    backing = Path(Path("/sys/block", device.name, "loop/backing_file").read_text().strip())
    TargetFiles(KernelStorage(backing), make_plan()).create()
    with pytest.raises(TargetBusyError, match=f"{backing} is behind the loop device {device}"):
        check_path(backing, Consent(force=True))
