"""A target as writers and readers open it: what is synced gets to the drive, and errors get out."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from durability.errors import UsageError
from durability.formats.plan import Plan
from durability_client.target.kernel_storage import KernelStorage, sync_call
from durability_client.target.storage import Storage, TargetFile
from durability_client.target.target_files import TargetFiles
from tests.client.verify.targets import aligned, bytes_of, prefill_of
from tests.loop_devices import shut_down

MakePlan = Callable[..., Plan]


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("method", ["fsync", "fdatasync", "dsync", "osync", "rwf-dsync"])
@pytest.mark.parametrize("kind", ["file", "device"])
def test_every_sync_method_writes_what_a_reader_finds(  # noqa: PLR0917 - the parameters of a matrix
    make_loop: Callable[..., Path],
    make_mount: Callable[..., tuple[Path, Path]],
    make_plan: MakePlan,
    kind: str,
    method: str,
    direct: bool,
) -> None:
    """Data written and synced by each method, buffered and direct, are read back from the drive."""
    path = make_mount()[1] / "target" if kind == "file" else make_loop()
    plan = make_plan(target_kind=kind, sync=method, direct=direct)
    storage = KernelStorage(path)
    files = TargetFiles(storage, plan)
    files.create()
    extent, record = plan.extent(1), aligned(os.urandom(4096))
    file = files.open_writer(1)
    file.pwrite(record, extent.offset_of(7))
    file.sync()
    file.close()
    assert bytes_of(storage, "", extent.offset_of(7), 4096) == record[:]


@pytest.mark.parametrize(
    ("method", "flag"), [("dsync", os.O_DSYNC), ("osync", os.O_SYNC), ("fdatasync", 0), ("rwf-dsync", 0)]
)
def test_open_flags_are_the_plans(tmp_path: Path, make_plan: MakePlan, method: str, flag: int) -> None:
    """The kernel's view of a writer's descriptor shows the sync flag of the plan, and no other."""
    storage, plan = KernelStorage(tmp_path / "target"), make_plan(sync=method)
    files = TargetFiles(storage, plan)
    files.create()
    file = files.open_writer(0)
    (fd,) = (
        int(entry.name)
        for entry in Path("/proc/self/fd").iterdir()
        if entry.is_symlink() and entry.readlink() == storage.path
    )
    assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_SYNC == flag
    file.close()


def test_syncs_reach_the_drive_as_flushes(
    make_mount: Callable[..., tuple[Path, Path]], make_plan: MakePlan
) -> None:
    """Each fsync of a changed file raises the flush count that the facts report."""
    _, directory = make_mount()
    storage, plan = KernelStorage(directory / "target"), make_plan(sync="fsync")
    files = TargetFiles(storage, plan)
    files.create()
    before = storage.facts().drives[0].flushes
    file = files.open_writer(0)
    for slot in range(10):
        file.pwrite(bytes(4096), plan.extent(0).offset_of(slot))
        file.sync()
    file.close()
    after = storage.facts().drives[0].flushes
    assert before is not None
    assert after is not None
    assert after - before >= 10


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_directory_does_not_sync_on_a_file_system_that_is_dead(
    make_mount: Callable[..., tuple[Path, Path]], kind: str
) -> None:
    """The directory sync fails if the file system was shut down before a removal was logged."""
    _, mounted = make_mount(kind)
    storage = KernelStorage(mounted / "target")
    storage.path_of(".0.0").touch()
    storage.sync_directory()
    directory = storage.open_directory()
    storage.unlink(".0.0")
    shut_down(mounted)
    with pytest.raises(OSError, match="Input/output error"):
        directory.sync()
    directory.close()
    with pytest.raises(OSError, match="Input/output error"):
        storage.sync_directory()


def test_fullfsync_is_refused_where_it_does_not_exist(tmp_path: Path, make_plan: MakePlan) -> None:
    """A sync method of another system is a usage error, not something weaker."""
    storage = KernelStorage(tmp_path / "target")
    storage.lock(create=True)
    if hasattr(fcntl, "F_FULLFSYNC"):
        pytest.skip("this system has F_FULLFSYNC")
    with pytest.raises(UsageError, match="fullfsync"):
        storage.open("", plan=make_plan(sync="fullfsync"))


def test_fdatasync_is_refused_where_it_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS the default is a usage error that names the method to use there."""
    monkeypatch.delattr(os, "fdatasync")
    with pytest.raises(UsageError, match="use --sync fullfsync"):
        sync_call("fdatasync")


def test_an_exclusive_create_refuses_a_file_that_exists(tmp_path: Path, make_plan: MakePlan) -> None:
    """The file of an append writer's next generation must be new."""
    storage, plan = KernelStorage(tmp_path / "log"), make_plan(workload="append", pattern="sequential")
    files = TargetFiles(storage, plan)
    files.create()
    file: TargetFile = files.open_writer(0, 1, create=True)
    file.pwrite(bytes(4096), 0)
    assert file.size() == 4096
    file.close()
    with pytest.raises(FileExistsError):
        files.open_writer(0, 1, create=True)


def test_a_short_write_is_an_error(make_loop: Callable[..., Path], make_plan: MakePlan) -> None:
    """A write that the end of the device cuts short raises EIO instead of counting as done."""
    storage = KernelStorage(make_loop(1 << 20))
    for method in ("fdatasync", "rwf-dsync"):
        file = storage.open("", plan=make_plan(target_kind="device", sync=method))
        with pytest.raises(OSError, match="short write at offset 1044480") as caught:
            file.pwrite(bytes(8192), (1 << 20) - 4096)
        assert caught.value.errno == errno.EIO
        file.close()


def test_a_reader_asks_the_drive_not_the_page_cache(
    make_mount: Callable[..., tuple[Path, Path]], make_plan: MakePlan
) -> None:
    """A reader bypasses the page cache: it sees what was changed on the device behind the file system."""
    device, directory = make_mount("ext4", mkfs=("-O", "^has_journal"))
    storage, plan = KernelStorage(directory / "target"), make_plan()
    TargetFiles(storage, plan).create()
    (directory / "target").read_bytes()
    raw = KernelStorage(device)
    place = _find(raw, prefill_of(plan, plan.extent(0))[:4096])
    file = raw.open_bulk("")
    file.pwrite(aligned(b"x" * 4096), place)
    file.sync()
    file.close()
    assert bytes_of(storage, "", plan.extent(0).offset_bytes, 4096) == b"x" * 4096


def _find(storage: Storage, wanted: bytes) -> int:
    """Where on the device a block is."""
    step = 1 << 20
    for offset in range(0, storage.size(""), step):
        found = bytes_of(storage, "", offset, step).find(wanted)
        if found >= 0:
            return offset + found
    raise AssertionError("the block is not on the device")
