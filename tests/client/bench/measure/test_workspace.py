"""Where cells are measured: our own files in a directory, or a device; nothing of anybody else's."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from durability.bench.catalogue import HELD_FILL
from durability.bench.cells import MIB, Cell
from durability.errors import NotOursError, TargetBusyError, TargetError, UsageError
from durability.formats.plan import Plan
from durability_client.bench.measure import workspace
from durability_client.bench.measure.workspace import (
    CellPlace,
    Directory,
    LackError,
    check_size,
    place_of,
    remove_leftovers,
)
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.safety_checks import Consent
from durability_client.target.target_files import TargetFiles
from tests.client.bench.quick_cells import SIZE_BYTES, tiny

MakeLoop = Callable[..., Path]
NO_CONSENT = Consent()
DESTROY = Consent(destroy_data=True)
NOBODY = 65534


@pytest.fixture
def opened() -> Iterator[Callable[..., CellPlace]]:
    """A function that opens a place, which is closed at the end."""
    places: list[CellPlace] = []

    def make(path: Path, consent: Consent = NO_CONSENT, *, size_bytes: int = SIZE_BYTES) -> CellPlace:
        places.append(place_of(path, consent, size_bytes=size_bytes))
        return places[-1]

    yield make
    for place in places:
        place.close()


def _ignore(done: int, total: int) -> None:
    pass


def _prepared(place: CellPlace, *cells: Cell) -> CellPlace:
    place.prepare(cells, _ignore)
    return place


def _holes(path: Path) -> bool:
    return path.stat().st_blocks * 512 < path.stat().st_size


def test_a_directory_is_a_place(tmp_path: Path) -> None:
    """All that is made is in one directory of our own, and all of it goes at the end."""
    (tmp_path / "precious").write_text("theirs")
    place = _prepared(place_of(tmp_path, NO_CONSENT, size_bytes=SIZE_BYTES * 2), tiny(), tiny(jobs=4))
    own = [path for path in tmp_path.iterdir() if path.name != "precious"]
    assert len(own) == 1
    assert own[0].name.startswith("durability-bench-")
    assert place.close() == ""
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    assert (tmp_path / "precious").read_text() == "theirs"


def test_a_file_means_its_directory(opened: Callable[..., CellPlace], tmp_path: Path) -> None:
    """The files of the measurement lie beside a TARGET that is a file, which is not written."""
    (tmp_path / "target").touch()
    place = _prepared(opened(tmp_path / "target"), tiny())
    assert place.where == tmp_path
    (task,) = place.begin(tiny(), 1)
    assert Path(task.path).parent.parent == tmp_path
    assert not (tmp_path / "target").stat().st_size


def test_what_does_not_exist_is_not_measured(tmp_path: Path) -> None:
    """A mistyped TARGET does not mean its parent, which may be on the system's disk."""
    with pytest.raises(
        TargetError, match=f"{tmp_path / 'typo'} does not exist, expected a directory, a file in"
    ):
        place_of(tmp_path / "typo", NO_CONSENT, size_bytes=SIZE_BYTES)
    assert not list(tmp_path.iterdir())


def test_a_strangers_file_is_refused(tmp_path: Path) -> None:
    """A file that this tool did not write is refused, and keeps its bytes."""
    path = tmp_path / "precious"
    path.write_bytes(b"not ours" * 1000)
    with pytest.raises(NotOursError, match="precious exists and was not written by this tool"):
        place_of(path, DESTROY, size_bytes=SIZE_BYTES)
    assert path.read_bytes() == b"not ours" * 1000
    assert list(tmp_path.iterdir()) == [path]


def test_overwritten_means_that_every_block_was_written(
    opened: Callable[..., CellPlace], tmp_path: Path
) -> None:
    """Jobs that overwrite find files without holes, each long enough for its share."""
    cells = (tiny(), tiny(jobs=2), tiny(jobs=4), tiny(jobs=4, shared=True))
    place = _prepared(opened(tmp_path, size_bytes=8 * MIB), *cells)
    for cell in cells:
        tasks = place.begin(cell, 1)
        assert len(tasks) == cell.jobs
        assert len({task.path for task in tasks}) == (1 if cell.shared else cell.jobs)
        assert len({task.seed for task in tasks}) == cell.jobs
        for task in tasks:
            path = Path(task.path)
            assert task.span_bytes == 8 * MIB // (1 if cell.shared else cell.jobs) <= path.stat().st_size
            assert not _holes(path)
            data = path.read_bytes()
            assert all(any(data[at : at + 4096]) for at in range(0, len(data), 4096))
        place.end(cell)
        assert all(Path(task.path).exists() for task in tasks)


def test_a_sparse_file_is_empty(opened: Callable[..., CellPlace], tmp_path: Path) -> None:
    """It has its full length, no block, and is gone after the round."""
    cell = tiny(file_state="sparse")
    place = _prepared(opened(tmp_path), cell)
    (task,) = place.begin(cell, 1)
    path = Path(task.path)
    assert path.stat().st_size == SIZE_BYTES
    assert path.stat().st_blocks == 0
    place.end(cell)
    assert not path.exists()


def test_a_fresh_file_is_preallocated_and_unwritten(opened: Callable[..., CellPlace], tmp_path: Path) -> None:
    """Its blocks are reserved, and nothing was written to them."""
    cell = tiny(file_state="fresh")
    place = _prepared(opened(tmp_path), cell)
    try:
        (task,) = place.begin(cell, 1)
    except LackError:
        pytest.skip("this file system has no fallocate")
    assert Path(task.path).stat().st_size == SIZE_BYTES
    assert not _holes(Path(task.path))
    assert not any(Path(task.path).read_bytes())


@pytest.mark.parametrize("workload", ["append", "create"])
def test_logs_and_names_begin_empty(opened: Callable[..., CellPlace], tmp_path: Path, workload: str) -> None:
    """`append` finds an empty file, `create` an empty directory; a second round finds them so again."""
    cell = tiny(workload=workload, pattern="sequential", sync="fsync", file_state="fresh", jobs=2)
    place = _prepared(opened(tmp_path), cell)
    for _ in range(2):
        for task in place.begin(cell, 1):
            path = Path(task.path)
            if workload == "create":
                assert list(path.iterdir()) == []
                (path / "00000001").write_text("made")
            else:
                assert path.stat().st_size == 0
                path.write_text("written")
        place.end(cell)
        assert not path.exists()


def test_a_read_only_file_system_is_refused(make_mount: Callable[..., tuple[Path, Path]]) -> None:
    """The sentence says so, and what to do."""
    _, directory = make_mount("ext4", options="ro")
    for path in (directory, directory / "target"):
        with pytest.raises(TargetError, match="mounted read-only; mount it read-write"):
            place_of(path, NO_CONSENT, size_bytes=SIZE_BYTES)


def test_a_full_file_system_is_refused(make_mount: Callable[..., tuple[Path, Path]]) -> None:
    """Before a byte is written, with how much there is and how much it takes; nothing stays behind."""
    _, directory = make_mount("ext4")
    before = sorted(directory.iterdir())
    place = place_of(directory, NO_CONSENT, size_bytes=1024 * MIB)
    try:
        with pytest.raises(TargetError, match=r"MiB free, 1041 MiB needed; lower --size, or free some space"):
            place.require_room([tiny()])
    finally:
        assert place.close() == ""
    assert sorted(directory.iterdir()) == before


def _refusal_of_nobody(path: Path, answer: Connection) -> None:
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    try:
        place_of(path, NO_CONSENT, size_bytes=SIZE_BYTES).close()
        answer.send("")
    except TargetError as error:
        answer.send(str(error))


@pytest.mark.lab
def test_no_permission_is_said() -> None:
    """Who may not write to a directory learns that it is that."""
    if os.geteuid() != 0:
        pytest.skip("takes root to be somebody else")
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(
            target=_refusal_of_nobody, args=(Path(directory), theirs)
        )
        child.start()
        assert ours.recv() == f"{directory}: no permission to write; name another path, or use another user"
        child.join()


@pytest.mark.lab
def test_root_cannot_write_everywhere_either() -> None:
    """Where the system refuses to make a file though permissions allow it, its own words are given."""
    with pytest.raises(TargetError, match=r"^/proc: cannot create a file in it: "):
        place_of(Path("/proc"), NO_CONSENT, size_bytes=SIZE_BYTES)


def test_a_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A directory that does not exist, a device that does not, and what is neither file nor device."""
    for path, words in (
        (tmp_path / "no/target", "does not exist"),
        (Path("/dev/no-such-drive"), "no such device"),
        (Path("/dev/null"), "neither a regular file nor a block device"),
    ):
        with pytest.raises(TargetError, match=words):
            place_of(path, DESTROY, size_bytes=SIZE_BYTES)


def test_a_device_needs_consent(make_loop: MakeLoop) -> None:
    """Without --destroy-data a device is not touched."""
    device = make_loop(8 * MIB)
    with pytest.raises(UsageError, match="--destroy-data"):
        place_of(device, NO_CONSENT, size_bytes=SIZE_BYTES)
    assert not any(device.read_bytes())


def test_a_device_is_divided(opened: Callable[..., CellPlace], make_loop: MakeLoop) -> None:
    """Jobs have ranges that do not overlap, all of them written before; what needs names is refused."""
    device = make_loop(8 * MIB)
    cell = tiny(jobs=4)
    place = _prepared(opened(device, DESTROY, size_bytes=8 * MIB), cell)
    tasks = place.begin(cell, 1)
    assert [(task.path, task.offset_bytes, task.span_bytes) for task in tasks] == [
        (str(device), number * 2 * MIB, 2 * MIB) for number in range(4)
    ]
    data = device.read_bytes()
    assert all(any(data[at : at + 4096]) for at in range(0, len(data), 4096))
    for state in ("fresh", "sparse"):
        with pytest.raises(LackError, match="needs a file system"):
            place.begin(tiny(file_state=state), 1)


def test_a_device_in_use_is_refused(
    opened: Callable[..., CellPlace], make_loop: MakeLoop, make_mount: Callable[..., tuple[Path, Path]]
) -> None:
    """A mounted device, and one that another measurement holds."""
    mounted, _ = make_mount("ext4")
    with pytest.raises(TargetBusyError, match="mounted"):
        place_of(mounted, DESTROY, size_bytes=SIZE_BYTES)
    device = make_loop(8 * MIB)
    opened(device, DESTROY)
    with pytest.raises(TargetBusyError):
        place_of(device, DESTROY, size_bytes=SIZE_BYTES)


def test_a_device_with_a_run_on_it_is_refused(make_loop: MakeLoop, make_plan: Callable[..., Plan]) -> None:
    """A run's records may still have to be verified: they go only with --force."""
    device = make_loop(8 * MIB)
    plan = make_plan(target_kind="device", slots=100, credit=25, control_slots=0, control_interval_us=0)
    TargetFiles(KernelStorage(device), plan).create()
    with pytest.raises(
        TargetError, match="could no longer be verified; if it has been verified, add --force"
    ):
        place_of(device, DESTROY, size_bytes=SIZE_BYTES)
    place_of(device, Consent(destroy_data=True, force=True), size_bytes=SIZE_BYTES).close()


def test_a_small_device_is_refused(make_loop: MakeLoop) -> None:
    """With how much it has."""
    device = make_loop(8 * MIB)
    with pytest.raises(UsageError, match="fewer than --size"):
        place_of(device, DESTROY, size_bytes=9 * MIB)
    place_of(device, DESTROY, size_bytes=8 * MIB).close()  # and the refused one was let go of


@pytest.mark.slow
def test_a_killed_measurement_is_cleared_away(tmp_path: Path) -> None:
    """The files of a killed measurement are recognised and removed; files in use and files that only look
    alike stay."""
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from durability_client.bench.measure.workspace import Directory\n"
        "place = Directory(Path(sys.argv[1]), size_bytes=1 << 20)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run((sys.executable, "-c", program, tmp_path), check=False)
    (killed,) = tmp_path.iterdir()
    (killed / "whole-00").write_bytes(bytes(MIB))
    alike = tmp_path / "durability-bench-0123456789abcdef"
    alike.mkdir()
    (alike / "lock").write_text("somebody else's")
    linked = tmp_path / "durability-bench-fedcba9876543210"
    linked.symlink_to(killed)
    live = Directory(tmp_path, size_bytes=SIZE_BYTES)
    try:
        assert live.leftovers == [killed]
        assert not killed.exists()
        assert (alike / "lock").exists()
        assert linked.is_symlink()
        assert remove_leftovers(tmp_path) == []
    finally:
        live.close()


def test_a_link_in_place_of_the_working_directory_is_not_emptied(tmp_path: Path) -> None:
    """The owner of the directory above can put one there; what it names keeps its files."""
    parent, precious = tmp_path / "parent", tmp_path / "precious"
    parent.mkdir()
    precious.mkdir()
    (precious / "file").touch()
    place = Directory(parent, size_bytes=SIZE_BYTES)
    (own,) = parent.iterdir()
    own.rename(tmp_path / "away")
    own.symlink_to(precious)
    assert "could not be removed" in place.close()
    assert [entry.name for entry in precious.iterdir()] == ["file"]


@pytest.mark.lab
@pytest.mark.skipif(os.geteuid() != 0, reason="making another user's directory needs root")
def test_leftovers_of_other_users_stay(tmp_path: Path) -> None:
    """Their owner could put a link in the place of one while it is removed."""
    place = Directory(tmp_path, size_bytes=SIZE_BYTES)
    (own,) = tmp_path.iterdir()
    lock = (own / "lock").read_bytes()
    place.close()
    own.mkdir()
    (own / "lock").write_bytes(lock)
    os.chown(own, 1234, 1234)
    assert remove_leftovers(tmp_path) == []
    os.chown(own, os.geteuid(), -1)
    assert remove_leftovers(tmp_path) == [own]


def test_files_that_never_belong_to_this_user_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leftover files are removed on a file system whose files all belong to another user, such as a mounted
    stick."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    killed = Directory(tmp_path, size_bytes=SIZE_BYTES)
    (left,) = tmp_path.iterdir()
    os.close(killed._lock_fd)
    place = Directory(tmp_path, size_bytes=SIZE_BYTES)
    assert place.leftovers == [left]
    assert place.close() == "" and list(tmp_path.iterdir()) == []


def test_a_place_is_no_other_measurement_to_itself(tmp_path: Path) -> None:
    """The control in memory has a directory of its own, beside that of a target there."""
    first, second = (Directory(tmp_path, size_bytes=SIZE_BYTES) for _ in range(2))
    assert second.others == []
    first.close()
    second.close()


def test_what_cannot_be_removed_is_not_said_to_be(make_mount: Callable[..., tuple[Path, Path]]) -> None:
    """A leftover that cannot be removed is reported and stays. A later call removes it when the file system
    allows it."""
    _, parent = make_mount("ext4")
    place = Directory(parent, size_bytes=SIZE_BYTES)
    own = next(path for path in parent.iterdir() if path.name.startswith("durability-bench-"))
    (own / "kept").touch()
    subprocess.run(("chattr", "+i", own / "kept"), check=True)
    assert "could not be removed" in place.close()  # which keeps what is left, as a kill does
    assert remove_leftovers(parent) == []
    assert (own / "kept").exists()
    subprocess.run(("chattr", "-i", own / "kept"), check=True)
    assert remove_leftovers(parent) == [own]
    assert not own.exists()


def test_the_control_in_memory_is_in_memory() -> None:
    """Its files are on a tmpfs, where there is one."""
    place = workspace.memory(SIZE_BYTES)
    if place is None:
        pytest.skip("no tmpfs with room here")
    try:
        place.prepare([tiny(place="memory")], _ignore)
        (task,) = place.begin(tiny(place="memory"), 1)
        assert task.path.startswith("/dev/shm/")
    finally:
        place.close()


@pytest.mark.parametrize(
    "cell",
    [tiny(writes_per_sync=1024, block_bytes=4096), tiny(jobs=5), tiny(block_bytes=MIB, jobs=4, sync="none")],
    ids=lambda cell: cell.name,
)
def test_a_size_in_which_a_cell_is_not_itself_is_refused(cell: Cell) -> None:
    """A commit would write a block twice, or a job would have no MiB of its own; in memory that is no
    matter."""
    check_size([cell], 8 * MIB)
    with pytest.raises(UsageError, match=f"too small for {cell.name}"):
        check_size([tiny(), cell], 3 * MIB)


def test_the_load_that_fills_has_most_of_the_free_space(
    make_mount: Callable[..., tuple[Path, Path]], make_loop: MakeLoop, opened: Callable[..., CellPlace]
) -> None:
    """In a file system it gets 80 % of what is free, preallocated and given back; on a device as much of
    it."""
    _, directory = make_mount()
    cell = replace(HELD_FILL, seconds=0.01)
    place = _prepared(opened(directory), cell)
    room = os.statvfs(directory)
    free_bytes = room.f_bavail * room.f_frsize
    (task,) = place.begin(cell, 1)
    assert 0.75 * free_bytes < task.span_bytes <= 0.8 * free_bytes
    assert Path(task.path).stat().st_blocks * 512 >= task.span_bytes
    place.end(cell)
    assert os.statvfs(directory).f_bavail * room.f_frsize > 0.95 * free_bytes
    device = _prepared(opened(make_loop(100 * MIB), DESTROY, size_bytes=8 * MIB), cell)
    assert [one.span_bytes for one in device.begin(cell, 1)] == [80 * MIB]


def test_the_load_that_fills_needs_a_file_that_can_be(
    make_mount: Callable[..., tuple[Path, Path]],
) -> None:
    """A larger one than the file system takes is a lack, and no I/O error of the drive."""
    _, directory = make_mount("ext4")
    with (
        (directory / "large").open("wb") as file,
        pytest.raises(LackError, match="than a file may have here"),
    ):
        workspace._preallocate_most(file.fileno(), 17 << 40)


@pytest.mark.parametrize("name", ["zram0", "ram1", "brd0"])
def test_the_load_that_fills_takes_no_memory(name: str) -> None:
    """The size of a drive in memory may be larger than what is free of that. `pmem` keeps its data."""
    with pytest.raises(LackError, match=f"in memory \\({name}\\)"):
        workspace._require_drives(["sda", name])
    workspace._require_drives(["sda", "pmem0", "nvme0n1"])


def test_the_load_that_fills_is_left_out_where_it_cannot_be(opened: Callable[..., CellPlace]) -> None:
    """It takes no memory, and no space that the other cells have already."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        place = _prepared(opened(Path(memory)), HELD_FILL)
        with pytest.raises(LackError, match=r"TARGET is in memory \(tmpfs\)"):
            place.begin(HELD_FILL, 1)
