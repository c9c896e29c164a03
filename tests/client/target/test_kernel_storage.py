"""Files and devices as targets: made whole, opened as the plan says, locked, and found again."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from durability import limits
from durability.errors import TargetBusyError, TargetError, UsageError
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability.formats.record import parse
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.target_files import TargetFiles, prefill_names
from tests.client.verify.targets import aligned, bytes_of, existing_plan, prefill_of

MakePlan = Callable[..., Plan]


def test_a_created_file_holds_two_superblocks_and_the_prefill_of_every_slot(
    tmp_path: Path, make_plan: MakePlan
) -> None:
    """After `create` the main file and the control file hold exactly what the plan says."""
    storage, plan = KernelStorage(tmp_path / "target"), make_plan(slots=3000)
    TargetFiles(storage, plan).create()
    assert storage.size("") == plan.main_bytes
    assert storage.suffixes() == (".control",)
    assert existing_plan(storage) == plan
    for extent in plan.extents():
        length = extent.slots * extent.record_bytes
        assert bytes_of(storage, extent.suffix, extent.offset_bytes, length) == prefill_of(plan, extent)


def test_the_prefill_is_right_across_chunks_and_for_records_smaller_than_a_page(
    tmp_path: Path, make_plan: MakePlan
) -> None:
    """Records of 512 bytes fill more than one chunk of the prefill, and the last slot is right."""
    plan = make_plan(record_bytes=512, writers=1, slots=20_000, control_slots=0)
    storage = KernelStorage(tmp_path / "target")
    TargetFiles(storage, plan).create()
    data = (tmp_path / "target").read_bytes()
    extent = plan.extent(0)
    assert data[extent.offset_bytes : extent.end_bytes] == prefill_of(plan, extent)


def test_progress_rises_to_the_total(tmp_path: Path, make_plan: MakePlan) -> None:
    """The progress callback gets rising byte counts that end at the total."""
    calls: list[tuple[int, int]] = []
    plan = make_plan(slots=5000)
    TargetFiles(KernelStorage(tmp_path / "target"), plan).create(
        lambda done, total: calls.append((done, total))
    )
    done = [call[0] for call in calls]
    assert done == sorted(done)
    assert calls[-1][0] == calls[-1][1] == 2 * limits.SUPERBLOCK_BYTES + (10_000 + 16) * 4096


def test_append_makes_superblocks_and_empty_files(tmp_path: Path, make_plan: MakePlan) -> None:
    """The append workload starts with two superblocks, an empty file per writer, and the control arm."""
    storage, plan = KernelStorage(tmp_path / "log"), make_plan(workload="append", pattern="sequential")
    TargetFiles(storage, plan).create()
    assert storage.size("") == 2 * limits.SUPERBLOCK_BYTES
    assert storage.suffixes() == (".0.0", ".1.0", ".control")
    assert storage.size(".0.0") == storage.size(".1.0") == 0
    assert existing_plan(storage) == plan


def test_a_target_of_ours_is_made_anew_in_place(tmp_path: Path, make_plan: MakePlan) -> None:
    """A later, smaller run keeps the locked file, cuts it to size and removes the earlier run's siblings."""
    path = tmp_path / "target"
    storage = KernelStorage(path)
    storage.lock(create=True)
    earlier = make_plan(run=1, workload="append", pattern="sequential")
    TargetFiles(storage, earlier).create()
    inode = path.stat().st_ino
    TargetFiles(storage, make_plan(run=2, slots=2000)).create()
    later = make_plan(run=3)
    TargetFiles(storage, later).create()
    assert path.stat().st_ino == inode
    assert storage.size("") == later.main_bytes
    assert storage.suffixes() == (".control",)
    assert existing_plan(storage) == later
    storage.unlock()


def test_siblings_are_told_from_other_files(tmp_path: Path) -> None:
    """Only TARGET.control, TARGET.W.G and their temporaries belong to the target TARGET."""
    for name in ("t", "t.control", "t.0.12", "t.0", "t.0.1.bak", "tt.0.1", "t.controls", "t.x.1", "t.00.1"):
        (tmp_path / name).touch()
    for name in ("t.3.0.tmp", "t.control.tmp", "t.0.1.tmp.tmp", "t.0.tmp"):
        (tmp_path / name).touch()
    assert KernelStorage(tmp_path / "t").suffixes() == (".0.12", ".3.0.tmp", ".control")


@pytest.mark.slow
@pytest.mark.parametrize(("workload", "names"), [("create", 0), ("rename", 600), ("unlink", 600)])
def test_names_are_made_before_the_run(
    memory_path: Path, make_plan: MakePlan, workload: str, names: int
) -> None:
    """`rename` and `unlink` begin with every name holding the prefill, `create` with none; with progress."""
    pattern = "sequential" if workload == "create" else "random"
    plan = make_plan(workload=workload, pattern=pattern, slots=300, credit=50, record_bytes=1024)
    storage = KernelStorage(memory_path / "target")
    told: list[tuple[int, int]] = []
    TargetFiles(storage, plan).create(lambda done, total: told.append((done, total)))
    assert storage.size("") == plan.main_bytes == 2 * limits.SUPERBLOCK_BYTES
    suffixes = [suffix for suffix in storage.suffixes() if suffix != ".control"]
    assert len(suffixes) == names
    for writer in range(2):
        for slot in range(plan.prefilled_names):
            extent = plan.extent(writer, slot)
            assert storage.path_of(extent.suffix).read_bytes() == prefill_of(plan, extent)
    assert told[-1][0] == told[-1][1] == 2 * limits.SUPERBLOCK_BYTES + 16 * 4096 + names * 1024


def test_names_of_an_earlier_run_are_removed_first(memory_path: Path, make_plan: MakePlan) -> None:
    """A run on fewer names, or on none, leaves nothing of the names and temporaries of the one before."""
    storage = KernelStorage(memory_path / "target")
    many = make_plan(workload="rename", slots=300, credit=50)
    TargetFiles(storage, many).create()
    storage.path_of(".1.7").rename(storage.path_of(".1.7.tmp"))
    few = make_plan(workload="unlink", slots=20, credit=5, run=2, writers=1, control_slots=0)
    TargetFiles(storage, few).create()
    assert storage.suffixes() == tuple(sorted(f".0.{slot}" for slot in range(20)))
    TargetFiles(storage, make_plan(run=3)).create()
    assert storage.suffixes() == (".control",)


def test_a_name_that_appears_during_the_prefill_is_not_written_to(
    memory_path: Path, make_plan: MakePlan
) -> None:
    """The prefill creates its files and never opens an existing one, so the file of another program keeps its
    content."""
    plan = make_plan(workload="rename", slots=300, credit=50)
    storage = KernelStorage(memory_path / "target")
    storage.path_of(".1.7").write_text("mine")
    with pytest.raises(FileExistsError):
        prefill_names(storage, plan, lambda done: None)
    assert storage.path_of(".1.7").read_text() == "mine"
    (memory_path / "target.control").write_text("mine")
    with pytest.raises(FileExistsError):
        storage.open_bulk(".control", create=True)


def test_a_writers_open_is_tried_where_no_name_exists(memory_path: Path, make_plan: MakePlan) -> None:
    """A sync method that is missing is a usage error also before `create` has made its first name."""
    plan = make_plan(workload="create", pattern="sequential", sync="fsync")
    files = TargetFiles(KernelStorage(memory_path / "target"), plan)
    files.create()
    files.try_writer()
    if hasattr(fcntl, "F_FULLFSYNC"):
        return
    with pytest.raises(UsageError, match="fullfsync"):
        TargetFiles(files.storage, replace(plan, sync="fullfsync")).try_writer()


@pytest.mark.parametrize("damage", ["first", "second"])
def test_either_superblock_copy_is_enough(tmp_path: Path, make_plan: MakePlan, damage: str) -> None:
    """The plan of a file is found whichever of its two superblocks is wiped."""
    storage, plan = KernelStorage(tmp_path / "target"), make_plan()
    TargetFiles(storage, plan).create()
    with (tmp_path / "target").open("r+b") as file:
        file.seek(plan.superblock_offsets[0 if damage == "first" else 1])
        file.write(bytes(limits.SUPERBLOCK_BYTES))
    assert existing_plan(storage) == plan


def test_no_plan_where_there_is_none(tmp_path: Path, make_plan: MakePlan) -> None:
    """A missing, an empty, a short and a foreign file have no plan, and asking is no error."""
    storage = KernelStorage(tmp_path / "target")
    assert existing_plan(storage) is None
    for content in (b"", b"short", os.urandom(1 << 20), bytes((1 << 20) + 1)):
        (tmp_path / "target").write_bytes(content)
        assert existing_plan(storage) is None


def test_the_second_superblock_of_a_device_is_found_through_the_known_plan(
    make_loop: Callable[..., Path], make_plan: MakePlan
) -> None:
    """A device that lost its first superblock needs the server's plan to find the second."""
    storage, plan = KernelStorage(make_loop()), make_plan(target_kind="device", direct=True)
    assert storage.kind == "device"
    TargetFiles(storage, plan).create()
    assert existing_plan(storage) == plan
    file = storage.open_bulk("")
    file.pwrite(aligned(bytes(limits.SUPERBLOCK_BYTES)), 0)
    file.sync()
    file.close()
    assert existing_plan(storage) is None
    assert existing_plan(storage, known=plan) == plan


def test_a_created_device_holds_writers_and_control_arm(
    make_loop: Callable[..., Path], make_plan: MakePlan
) -> None:
    """On a device every extent, the control arm's too, lies in the device, and nothing lies beside it."""
    storage, plan = KernelStorage(make_loop()), make_plan(target_kind="device")
    TargetFiles(storage, plan).create()
    assert storage.suffixes() == ()
    assert storage.size("") == 64 << 20
    for extent in plan.extents():
        length = extent.slots * extent.record_bytes
        assert bytes_of(storage, "", extent.offset_bytes, length) == prefill_of(plan, extent)


def test_a_file_whose_inode_is_damaged_is_gone(
    make_mount: Callable[..., tuple[Path, Path]], make_plan: MakePlan
) -> None:
    """A drive that loses a file's metadata has lost the file, so verify must find loss and not give up."""
    device, directory = make_mount(mkfs=("-b", "4096"))
    storage = KernelStorage(directory / "target")
    TargetFiles(storage, make_plan()).create()
    inode = storage.path.stat().st_ino
    subprocess.run(["umount", str(directory)], check=True)
    where = subprocess.run(
        ["/usr/sbin/debugfs", "-R", f"imap <{inode}>", str(device)],
        capture_output=True,
        text=True,
        check=True,
    )
    block, offset = re.findall(r"located at block (\d+), offset (0x[0-9a-f]+)", where.stdout)[0]
    with device.open("r+b") as disk:
        disk.seek(int(block) * 4096 + int(offset, 16) + 8)
        disk.write(b"damaged")
    subprocess.run(["mount", str(device), str(directory)], check=True)

    with pytest.raises(OSError, match="Bad message"):
        storage.path.stat()
    storage.lock()
    assert not storage.exists("")
    with pytest.raises(FileNotFoundError, match="its metadata are damaged"):
        storage.open("")
    with pytest.raises(FileNotFoundError, match="its metadata are damaged"):
        storage.size("")
    assert storage.facts().file_system is not None


def test_a_file_is_locked_against_a_second_user(tmp_path: Path) -> None:
    """A second lock on the same file is refused until the first is given back."""
    first, second = KernelStorage(tmp_path / "target"), KernelStorage(tmp_path / "target")
    first.lock(create=True)
    with pytest.raises(TargetBusyError, match="another run or verify"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def _descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_file_on_nfs_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFSv4 gives no exclusive lock to a descriptor that may only read; what it gives holds, and ends."""
    flock, open_before = fcntl.flock, _descriptors()

    def of_nfs(fd: int, operation: int) -> None:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", of_nfs)
    first, second = KernelStorage(tmp_path / "target"), KernelStorage(tmp_path / "target")
    first.lock(create=True)
    with pytest.raises(TargetBusyError, match="another run or verify"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()
    assert _descriptors() == open_before


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that cannot be locked is refused with the reason, and left closed."""

    def without(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without)
    open_before = _descriptors()
    with pytest.raises(TargetError, match=f"{tmp_path}/target: cannot be locked: No locks available"):
        KernelStorage(tmp_path / "target").lock(create=True)
    assert _descriptors() == open_before


def test_a_device_is_locked_against_runs_and_mounts(
    make_mount: Callable[..., tuple[Path, Path]], make_loop: Callable[..., Path]
) -> None:
    """A device that is mounted or locked cannot be locked."""
    mounted, _ = make_mount()
    with pytest.raises(TargetBusyError, match="mounted, or held"):
        KernelStorage(mounted).lock()
    device = make_loop()
    first = KernelStorage(device)
    first.lock()
    with pytest.raises(TargetBusyError):
        KernelStorage(device).lock()
    first.unlock()


def test_locking_a_missing_file_makes_it_only_if_asked(tmp_path: Path) -> None:
    """Verify's lock leaves a missing file missing; a directory that does not exist is named."""
    storage = KernelStorage(tmp_path / "target")
    storage.lock()
    assert not storage.exists("")
    with pytest.raises(TargetError, match="directory does not exist"):
        KernelStorage(tmp_path / "no" / "target").lock(create=True)


def test_a_pickled_storage_names_the_same_target_without_the_lock(tmp_path: Path) -> None:
    """A storage crosses to a child process by its path; the lock stays with the process that took it."""
    storage = KernelStorage(tmp_path / "target")
    storage.lock(create=True)
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.path == storage.path
    copy.unlock()
    with pytest.raises(TargetBusyError):
        copy.lock()
    storage.unlock()


def test_symbolic_links_are_resolved(tmp_path: Path) -> None:
    """A link to a target is that target, and its siblings lie beside the file, not beside the link."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "target")
    storage = KernelStorage(tmp_path / "link")
    assert storage.path_of(".control") == tmp_path / "elsewhere" / "target.control"


@pytest.fixture
def led_away(tmp_path: Path) -> Callable[[], tuple[Path, Path]]:
    """A function that replaces the directory "here" by a link to "private". It returns both."""
    here, private, moved = (tmp_path / name for name in ("here", "private", "moved"))
    here.mkdir()
    private.mkdir()

    def lead_away() -> tuple[Path, Path]:
        here.rename(moved)
        here.symlink_to(private)
        return moved, private

    return lead_away


def test_no_target_is_locked_behind_a_link_made_since_the_start(
    tmp_path: Path, led_away: Callable[[], tuple[Path, Path]]
) -> None:
    """Between the checks of a path and the lock, a link took the place of its directory."""
    storage = KernelStorage(tmp_path / "here" / "target")
    moved, private = led_away()
    with pytest.raises(TargetError, match=f"leads to {private}"):
        storage.lock(create=True)
    assert [*private.iterdir(), *moved.iterdir()] == []


def test_a_locked_target_stays_in_its_directory(
    tmp_path: Path, led_away: Callable[[], tuple[Path, Path]]
) -> None:
    """A link that is made later leads nothing away: no new file, no new name, no removal."""
    storage = KernelStorage(tmp_path / "here" / "target")
    storage.lock(create=True)
    for name in (".control", ".n1"):
        storage.open_bulk(name, create=True).close()
    moved, private = led_away()
    (private / "target.control").write_bytes(b"of somebody else")
    storage.open_bulk(".n2", create=True).close()
    storage.rename(".n1", ".n3")
    storage.unlink(".control")
    storage.sync_directory()
    storage.unlock()
    assert {path.name for path in moved.iterdir()} == {"target", "target.n2", "target.n3"}
    assert [path.name for path in private.iterdir()] == ["target.control"]


def test_directories_are_synced_up_to_the_mount_point(make_mount: Callable[..., tuple[Path, Path]]) -> None:
    """Syncing a nested directory with its ancestors works on a real file system, and sends a flush."""
    _, directory = make_mount()
    nested = directory / "a" / "b"
    nested.mkdir(parents=True)
    storage = KernelStorage(nested / "target")
    storage.lock(create=True)
    before: Facts = storage.facts()
    storage.sync_directory(ancestors=True)
    assert (storage.facts().drives[0].flushes or 0) > (before.drives[0].flushes or 0)
    storage.unlock()


def test_a_file_system_without_direct_io_is_read_and_prefilled_all_the_same(make_plan: MakePlan) -> None:
    """Where O_DIRECT is refused, `--direct` says so, and prefill and readers fall back."""
    storage, plan = KernelStorage("/proc/self/comm"), make_plan(direct=True)
    with pytest.raises(UsageError, match="does not support O_DIRECT"):
        storage.open("", plan=plan)
    for file in (storage.open_bulk(""), storage.open("")):
        assert not file.direct
        file.close()


def test_prefilled_sectors_are_intact(tmp_path: Path, make_plan: MakePlan) -> None:
    """Every sector of the prefill says that it is seq 0 of its slot."""
    storage, plan = KernelStorage(tmp_path / "target"), make_plan()
    TargetFiles(storage, plan).create()
    extent = plan.extent(1)
    sectors = parse(bytes_of(storage, "", extent.offset_bytes, extent.slots * extent.record_bytes))
    assert sectors.intact.all()
    assert not sectors.seq.any()
    assert (sectors.writer == 1).all()
    assert (sectors.slot == np.arange(extent.slots).repeat(8)).all()
