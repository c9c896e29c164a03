"""What is asked of a file system after a sync: it notices a commit that failed, and adds no write."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from durability.formats.plan import Plan
from durability_client.target import discovery
from durability_client.target.commit_check import commit_check
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.target_files import TargetFiles

MakePlan = Callable[..., Plan]
MakeMount = Callable[..., tuple[Path, Path]]
SYNCS = 40


@pytest.mark.parametrize("features", [(), ("-O", "^has_journal")])
def test_no_sync_is_believed_once_the_file_system_is_read_only(
    make_mount: MakeMount, make_plan: MakePlan, features: tuple[str, ...]
) -> None:
    """An error makes ext4 read-only while a writer has its file open."""
    device, directory = make_mount("ext4", mkfs=features, options="errors=remount-ro")
    plan = make_plan(sync="fsync")
    files = TargetFiles(KernelStorage(directory / "target"), plan)
    files.create()
    file = files.open_writer(0)
    file.pwrite(bytes(4096), plan.extent(0).offset_of(0))
    file.sync()
    Path("/sys/fs/ext4", device.name, "trigger_fs_error").write_text("test of a read-only file system")
    with pytest.raises(OSError) as caught:
        file.sync()
    assert caught.value.errno in (errno.EIO, errno.EROFS)
    file.close()


@pytest.mark.parametrize("method", ["fsync", "fdatasync", "osync", "dsync"])
@pytest.mark.parametrize(
    ("kind", "features"), [("ext4", ()), ("ext4", ("-O", "^has_journal")), ("xfs", ()), ("btrfs", ())]
)
def test_the_drive_gets_the_writes_of_the_bare_system_calls(
    make_mount: MakeMount, make_plan: MakePlan, kind: str, features: tuple[str, ...], method: str
) -> None:
    """Writing to a target by each sync method makes as many writes as the system calls alone."""
    device, directory = make_mount(kind, mkfs=features)
    plan = make_plan(sync=method)
    files = TargetFiles(KernelStorage(directory / "target"), plan)
    files.create()
    extent = plan.extent(0)
    flags = os.O_RDWR | {"osync": os.O_SYNC, "dsync": os.O_DSYNC}.get(method, 0)
    sync = {"fsync": os.fsync, "fdatasync": os.fdatasync}.get(method, os.fstat)
    bare = os.open(directory / "target", flags)
    file = files.open_writer(0)

    def by_system_calls(slot: int) -> None:
        os.pwrite(bare, bytes(4096), extent.offset_of(slot))
        sync(bare)

    def by_a_writer(slot: int) -> None:
        file.pwrite(bytes(4096), extent.offset_of(slot))
        file.sync()

    rounds = [(_writes(device, by_system_calls), _writes(device, by_a_writer)) for _ in range(5)]
    file.close()
    os.close(bare)
    # The clock moves on within some syncs, which then write the inode; a round may meet a timed commit.
    assert any(ours <= theirs + SYNCS // 4 for theirs, ours in rounds), rounds


@pytest.mark.parametrize("method", ["fdatasync", "dsync", "rwf-dsync"])
@pytest.mark.parametrize(
    ("how", "asked"), [("", False), ("mounted", True), ("by default", True), ("the directory", True)]
)
def test_a_sync_of_journalled_data_is_asked_about_too(
    make_mount: MakeMount, make_plan: MakePlan, method: str, how: str, *, asked: bool
) -> None:
    """With data in its journal ext4 makes them durable by a commit, which another writer's sync may have
    begun: whether the mount says so, the file system, or the file, which has it from its directory."""
    device, directory = make_mount("ext4", options="data=journal" if how == "mounted" else "defaults")
    offline = {
        "by default": ("tune2fs", "-o", "journal_data", device),
        "the directory": ("debugfs", "-w", "-R", "set_inode_field / flags 0x84000", device),  # as chattr +j
    }
    if how in offline:
        subprocess.run(("umount", directory), check=True)
        subprocess.run(offline[how], check=True, capture_output=True)
        subprocess.run(("mount", device, directory), check=True)
    target = directory / "target"
    fd = os.open(target, os.O_RDWR | os.O_CREAT)
    try:
        check = commit_check(make_plan(sync=method), target, fd)
        assert (check is not None) == asked
        if check is not None:
            check()
            check.close()
    finally:
        os.close(fd)


def test_the_times_of_the_target_change_by_its_writes_only(
    make_mount: MakeMount, make_plan: MakePlan
) -> None:
    """A sync leaves the target's inode as the write has left it."""
    _, directory = make_mount()
    target = directory / "target"
    plan = make_plan(sync="fsync")
    files = TargetFiles(KernelStorage(target), plan)
    files.create()
    file = files.open_writer(0)
    os.utime(target, ns=(1, 1))
    file.sync()
    file.close()
    assert target.stat().st_mtime_ns == 1
    assert sorted(path.name for path in directory.iterdir()) == ["lost+found", "target", "target.control"]


def test_a_file_whose_directory_is_on_another_file_system_is_asked_itself(
    make_mount: MakeMount, make_plan: MakePlan
) -> None:
    """A target that is mounted into its directory, as containers do it: nothing of that directory changes,
    and a dead file system is noticed."""
    _, directory = make_mount()
    _, elsewhere = make_mount()
    plan = make_plan(sync="fsync")
    (directory / "target").touch()
    (elsewhere / "target").touch()
    subprocess.run(("mount", "--bind", directory / "target", elsewhere / "target"), check=True)
    try:
        files = TargetFiles(KernelStorage(elsewhere / "target"), plan)
        files.create()
        os.utime(elsewhere, ns=(1, 1))
        os.utime(directory / "target", ns=(1, 1))
        file = files.open_writer(0)
        file.sync()
        file.close()
        assert elsewhere.stat().st_mtime_ns == 1
        assert (directory / "target").stat().st_mtime_ns > 1
    finally:
        subprocess.run(("umount", elsewhere / "target"), check=True)


def test_a_directory_that_may_not_be_changed_is_not_asked(make_mount: MakeMount, make_plan: MakePlan) -> None:
    """An immutable directory is no reason to refuse its file, which is asked instead."""
    _, directory = make_mount()
    plan = make_plan(sync="fsync")
    files = TargetFiles(KernelStorage(directory / "target"), plan)
    files.create()
    subprocess.run(("chattr", "+i", directory), check=True)
    os.utime(directory / "target", ns=(1, 1))
    try:
        file = files.open_writer(0)
        file.sync()
        file.close()
        assert (directory / "target").stat().st_mtime_ns > 1
    finally:
        subprocess.run(("chattr", "-i", directory), check=True)


def test_no_descriptor_is_left_open(make_mount: MakeMount, make_plan: MakePlan) -> None:
    """A file and what is asked for it are closed together."""
    _, directory = make_mount()
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers, not paths
    for workload, pattern in (("overwrite", "random"), ("append", "sequential")):
        plan = make_plan(workload=workload, pattern=pattern, sync="fsync")
        files = TargetFiles(KernelStorage(directory / workload), plan)
        files.create()
        files.open_writer(0).close()
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def _writes(device: Path, write: Callable[[int], None]) -> int:
    """Writes that reach `device`, flushes among them, for `SYNCS` calls of `write`."""

    def count() -> int:
        return int(Path("/sys/block", device.name, "stat").read_text().split()[4])

    before = count()
    for slot in range(SYNCS):
        write(slot)
    return count() - before


@pytest.mark.parametrize("workload", ["create", "rename", "unlink"])
def test_nothing_is_asked_when_a_name_is_made(
    workload: str, tmp_path: Path, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These open a file for each operation: a question would be in the latency of each commit."""

    def asked(path: Path, fd: int) -> bool:
        raise AssertionError(path)

    monkeypatch.setattr(discovery, "has_data_in_journal", asked)
    with (tmp_path / "target").open("wb") as file:
        plan = make_plan(workload=workload, pattern="sequential")
        assert commit_check(plan, tmp_path / "target", file.fileno()) is None
