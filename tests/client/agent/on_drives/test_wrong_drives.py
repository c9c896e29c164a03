"""An agent against the disks of its machine's owner: whatever a campaign file did not mean stays as it is."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from durability.campaign.tasks import Condition, DriveStatus
from durability_client.agent import file_systems, same_drive
from durability_client.agent.abandonable_calls import Children
from durability_client.agent.drives import DriveError, FoundDrive, find
from durability_client.target.signatures import Signature, signatures_of
from durability_lab.kernel_rig.block_rig import without_loop_mounts
from durability_server.store.database import Database
from tests.client.agent.cut_campaign import campaign_on, of_campaign
from tests.client.agent.task_server import (
    Tasks,
    TaskServer,
    by_name,
    drive_on,
    file_on,
    with_both_servers,
)
from tests.loop_devices import one_partition

MakeLoop = Callable[..., Path]
MakeMount = Callable[..., tuple[Path, Path]]
SIZE_BYTES = 256 << 20
ZRAM = Path("/sys/class/zram-control")


@pytest.fixture
async def server(tmp_path: Path, loop_machine: None) -> AsyncIterator[TaskServer]:
    """With an agent, which asks another server for runs on a drive that holds something."""
    async with with_both_servers(tmp_path) as (server, _, _):
        yield server


@pytest.fixture
def make_nameless(loop_machine: None) -> Iterator[Callable[[], Path]]:
    """A function that makes a drive without a serial, a model or a world-wide name."""
    if not ZRAM.is_dir():
        pytest.skip("this kernel has no zram")
    made: list[int] = []

    def make() -> Path:
        number = int((ZRAM / "hot_add").read_text())
        made.append(number)
        Path(f"/sys/block/zram{number}/disksize").write_text(str(SIZE_BYTES))
        return Path(f"/dev/zram{number}")

    yield make
    for number in made:
        subprocess.run(["umount", "--lazy", f"/dev/zram{number}"], check=False, capture_output=True)
        (ZRAM / "hot_remove").write_text(str(number))


async def tool(*command: str | Path) -> None:
    """Run a program of the system."""
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done


def refused(status: DriveStatus, trouble: str, words: str) -> None:
    """Assert that a task failed for that reason."""
    assert (status.state, status.trouble) == ("failed", trouble), status
    assert words in status.text, status


def nameless(name: str) -> FoundDrive:
    """A drive without a serial."""
    return FoundDrive(name=name, leaves=(name,), serial="", diskseqs=(7,))


@pytest.mark.parametrize(
    "path",
    [
        *("/dev/vdb", "/dev/sdaa", "/dev/sdb1", "/dev/nvme0n1", "/dev/nvme0n1p2", "/dev/mmcblk0"),
        *("/dev/dm-0", "/dev//vdb", "/dev/mapper/../vdb", "/dev/disk/by-diskseq/9", "/dev/block/252:16"),
        *("/dev/disk/by-label/data", "/dev/disk/by-uuid/0b1c"),
    ],
)
def test_a_name_that_may_mean_another_drive_is_refused(path: str) -> None:
    """The kernel's name of a drive without a serial, a name of this boot, a name of what is overwritten."""
    with pytest.raises(DriveError, match="name it") as refusal:
        same_drive.check_name(drive_on(path), nameless("vdb"))
    assert refusal.value.trouble == "wrong-drive"


@pytest.mark.parametrize(
    "path", ["/dev/disk/by-path/pci-0", "/dev/disk/by-id/virtio-1", "/dev/mapper/vg-lv", "/dev/vg/lv"]
)
def test_a_name_that_stays_is_taken(path: str) -> None:
    """A place, an id, and a volume's own name mean the same after a boot; another name of the same drive does
    not."""
    same_drive.check_name(drive_on(path), nameless("vdb"))
    with pytest.raises(DriveError, match="name it"):
        same_drive.check_name(drive_on("/dev/vdb"), nameless("vdb"))


def test_the_kernels_name_of_a_drive_with_a_serial_is_taken() -> None:
    """A kernel name such as /dev/vdb is accepted for a drive with a serial. A /dev/dm-N name and the kernel
    name of a partition are refused."""
    known = replace(nameless("vdb"), serial="S1")
    for path in ("/dev/vdb", "/dev/nvme0n1", "/dev/mmcblk0", "/dev/disk/by-id/nvme-S1-part2"):
        same_drive.check_name(drive_on(path), known)
    with pytest.raises(DriveError, match="name of this boot"):
        same_drive.check_name(drive_on("/dev/dm-3"), known)
    for path in ("/dev/sdb1", "/dev/vdaa12", "/dev/nvme0n1p2", "/dev/mmcblk0p1"):
        with pytest.raises(DriveError, match=r"name of a partition.*name it"):
            same_drive.check_name(drive_on(path), known)


def test_a_drive_whose_node_lies_in_a_directory_keeps_its_kernels_name() -> None:
    """/sys knows ATA over Ethernet's /dev/etherd/e0.0 by the kernel's name alone, which is not the node's."""
    found = replace(nameless("etherd!e0.0"), serial="S1")
    assert (found.name, found.device) == ("etherd!e0.0", Path("/dev/etherd/e0.0"))
    assert same_drive.is_certain(found)


@pytest.mark.parametrize("serial", ["QM00001", "drive-scsi0", "VMware NVMe_0000", "000000000000"])
def test_a_serial_that_others_have_too_tells_no_drive(serial: str) -> None:
    """Hypervisors number drives in the order in which they find them: the name must be one that stays, and
    what the drive carries is looked at."""
    numbered = replace(nameless("vdb"), serial=serial)
    with pytest.raises(DriveError, match=rf"serial {serial} others have too.*name it"):
        same_drive.check_name(drive_on("/dev/vdb"), numbered)
    assert not same_drive.is_certain(numbered)
    assert same_drive.is_certain(replace(numbered, serial="S1"))


def test_a_drive_that_was_erased_is_known_without_what_it_held(make_loop: MakeLoop) -> None:
    """Before each try of its first run, a drive without a serial is compared with the check, without the
    signatures that the agent erased. New signatures are refused."""
    found = nameless(make_loop(64 << 20).name)
    examined = replace(condition(), holds="gpt 1:ext4=0b1c")
    task = Tasks((drive_on(f"/dev/{found.name}", ""),), examined=examined).make("run", fresh=True)
    (mine,) = task.drives
    with pytest.raises(DriveError, match="does not carry"):
        same_drive.check_contents(task, mine, found, {"": ()})
    erased = same_drive.erased(mine, {"": (Signature("swap", ""),)})
    same_drive.check_contents(task, erased, found, {"": ()})
    for new in ("swap", "gpt"):
        with pytest.raises(DriveError, match="does not carry"):
            same_drive.check_contents(task, erased, found, {"": (Signature(new, ""),)})
    part = same_drive.erased(mine, {"": (), "1": (Signature("ext4", "0b1c"),)})
    same_drive.check_contents(task, part, found, {"": (), "1": (Signature("ext4", "0b1c"),)})


@pytest.mark.parametrize("again", [False, True])
def test_a_drive_whose_file_system_was_being_made_is_told_what_to_do(*, again: bool) -> None:
    """A drive without a serial carries no signature, because formatting was interrupted. It may be another
    drive, so the agent refuses it and says how to go on."""
    examined = replace(condition(), holds="gpt 1:ext4=0b1c")
    task = Tasks((drive_on("/dev/vdb"),), examined=examined, again=again).make("run", fresh=True)
    with pytest.raises(DriveError) as refusal:
        same_drive.check_contents(task, task.drives[0], nameless("vdb"), {"": (), "1": ()})
    text = str(refusal.value)
    assert refusal.value.trouble == "wrong-drive"
    assert "and nothing is recognised on it, so it may be another drive; it was not touched" in text
    assert text.endswith("when the machine or the agent stopped, begin another campaign")
    with pytest.raises(DriveError, match="does not carry what this campaign left on it"):
        same_drive.check_contents(task, task.drives[0], nameless("vdb"), {"": (Signature("swap", ""),)})


async def test_a_drive_is_known_by_the_mark_that_it_got_before_it_was_erased(make_loop: MakeLoop) -> None:
    """The mark written before the erasure identifies the drive, also in later tasks and when only a part is
    erased. Marks of other campaigns or drives do not count, and new signatures are refused."""
    device = make_loop(64 << 20)
    found = nameless(device.name)
    examined = replace(condition(), holds="gpt 1:ext4=0b1c")
    task = Tasks((drive_on(f"/dev/{found.name}", ""),), examined=examined).make("run", fresh=True)
    (mine,) = task.drives
    others = (
        (replace(task, campaign="weekly"), mine),
        (task, replace(mine, drive=replace(mine.drive, name="d2"))),
    )
    for of, part in others:
        await file_systems.mark(Children(), device, same_drive.mark_of(of, part))
        with pytest.raises(DriveError, match="does not carry"):
            same_drive.check_contents(task, mine, found, {"": ()})
    assert same_drive.needs_mark(found)
    await file_systems.mark(Children(), device, same_drive.mark_of(task, mine))
    left = (Signature("ext4", "0b1c"),)
    for contents in ({"": ()}, {"": (), "1": left}, {"": (Signature("gpt", ""),), "1": left}):
        same_drive.check_contents(task, mine, found, contents)
    for new in (Signature("swap", ""), Signature("ext4", "0b1c")):
        with pytest.raises(DriveError, match="does not carry"):
            same_drive.check_contents(task, mine, found, {"": (new,)})


async def test_a_raw_drive_without_a_serial_is_known_after_a_run_that_did_not_begin(
    tmp_path: Path, make_nameless: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its signatures were erased and the run could not begin, a raw drive without a serial is found by
    its mark. Another drive of that size, or this one once it is in use, is not written to."""
    mine, other = make_nameless(), make_nameless()
    await tool("mkswap", mine)
    async with with_both_servers(tmp_path) as (server, agent, _):
        with by_name(mine) as link:
            tasks = Tasks((drive_on(link.path, ""),), ready_within_s=1.0)
            tasks.examined = (await server.do(tasks.make("examine"))).condition
            assert tasks.examined is not None and tasks.examined.holds.startswith("swap=")
            monkeypatch.setattr(Database, "room", lambda _: (40 << 20, 100 << 30))
            server.task = tasks.make("run", fresh=True)
            await server.until(lambda status: any("make room there" in one.text for one in status.drives))
            await agent.kill()
            shutil.rmtree(agent.directory)  # as a boot does
            assert signatures_of(mine) == ()
            server.status = None
            await agent.start()
            link.point(other)
            run = await server.begin(tasks.make("run", fresh=True))
            refused(run, "wrong-drive", "no serial")
            assert not any(other.read_bytes())
            link.point(mine)
            erased = mine.read_bytes()
            await tool("mkfs.ext4", "-q", mine)
            used = mine.read_bytes()
            run = await server.begin(tasks.make("run", fresh=True))
            refused(run, "wrong-drive", "no serial")
            assert mine.read_bytes() == used
            mine.write_bytes(erased)
            monkeypatch.undo()
            run = await server.begin(tasks.make("run", fresh=True))
            assert run.state == "armed", run
            await server.do(tasks.make("release"))
            tasks.again = True
            run = await server.begin(tasks.make("run"))
            assert run.state == "armed", run
            await server.do(tasks.make("release"))


async def test_a_drive_without_a_serial_is_known_by_what_the_campaign_left_on_it(
    tmp_path: Path, make_nameless: Callable[[], Path]
) -> None:
    """Another drive that appears under the same path is neither formatted nor mounted, before the first run
    and later. The right drive is tested again."""
    mine, other = make_nameless(), make_nameless()
    async with with_both_servers(tmp_path) as (server, _, _):
        with by_name(mine) as link:
            tasks = Tasks((drive_on(link.path),), ready_within_s=1.0)
            examined = await server.do(tasks.make("examine"))
            assert examined.state == "done" and examined.condition is not None, examined
            assert examined.condition.serial == ""
            tasks.examined = examined.condition
            await tool("mkfs.ext4", "-q", other)
            before = other.read_bytes()
            link.point(other)
            refused(
                await server.do(tasks.make("run", fresh=True), "armed failed"), "wrong-drive", "no serial"
            )
            link.point(mine)
            armed = await server.do(tasks.make("run", fresh=True), "armed failed")
            assert armed.state == "armed", armed
            await server.do(tasks.make("release"))
            link.point(other)
            tasks.again = True
            for fresh in (True, False):
                run = await server.do(tasks.make("run", fresh=fresh), "armed failed")
                refused(run, "wrong-drive", "no serial")
            verify = await server.do(tasks.make("verify", run=armed.run))
            refused(verify, "wrong-drive", "was not mounted")
            assert other.read_bytes() == before
            link.point(mine)
            verified = await server.do(tasks.make("verify", run=armed.run))
            assert (verified.state, verified.run) == ("done", armed.run), verified
            again = await server.do(tasks.make("run", fresh=True), "armed failed")
            assert again.state == "armed", again


async def test_a_raw_drive_without_a_serial_is_known_by_its_runs(
    tmp_path: Path, make_nameless: Callable[[], Path]
) -> None:
    """A drive that holds no run of this tool is not written to, even if it is blank."""
    mine, other = make_nameless(), make_nameless()
    async with with_both_servers(tmp_path) as (server, _, _):
        with by_name(mine) as link:
            tasks = Tasks((drive_on(link.path, ""),), ready_within_s=1.0)
            tasks.examined = (await server.do(tasks.make("examine"))).condition
            armed = await server.do(tasks.make("run", fresh=True), "armed failed")
            assert armed.state == "armed", armed
            await server.do(tasks.make("release"))
            tasks.again = True
            link.point(other)
            for fresh in (True, False):
                run = await server.do(tasks.make("run", fresh=fresh), "armed failed")
                refused(run, "wrong-drive", "no serial")
            assert not any(other.read_bytes())
            link.point(mine)
            again = await server.do(tasks.make("run", fresh=True), "armed failed")
            assert again.state == "armed", again


async def test_a_run_on_a_drive_without_a_serial_is_known_by_its_file_system(
    tmp_path: Path, make_nameless: Callable[[], Path]
) -> None:
    """Another campaign does not overwrite a run on a drive without a serial. It begins on a different drive
    that carries an unrelated file system."""
    mine, other = make_nameless(), make_nameless()
    with by_name(mine) as link:
        async with campaign_on(tmp_path, drive_on(link.path)) as campaign:
            run = await campaign.cut(fresh=True)
            before = mine.read_bytes()
            for kind in ("examine", "run"):
                task = of_campaign(campaign.tasks.make(kind, fresh=kind == "run"), "second")
                status = await campaign.server.do(task, "armed done failed")
                refused(status, "in-use", f"{mine} may carry run {run}")
                campaign.tasks.examined = status.condition
            assert mine.read_bytes() == before
            await tool("mkfs.ext4", "-q", other)
            link.point(other)
            examined = await campaign.server.do(of_campaign(campaign.tasks.make("examine"), "second"))
            assert examined.state == "done", examined
            campaign.tasks.examined = examined.condition
            task = of_campaign(campaign.tasks.make("run", fresh=True), "second")
            assert (await campaign.server.begin(task)).state == "armed"
            await campaign.server.do(of_campaign(campaign.tasks.make("release"), "second"))


def test_a_drive_that_changed_is_not_written_to() -> None:
    """Another model, size, serial or world-wide name is another drive; of one that is certain to be the same
    the verdict says what a changed size means."""
    first = condition()
    task = Tasks((drive_on("/dev/disk/by-id/m-S1"),), examined=first).make("run", fresh=True)
    (mine,) = task.drives
    for change in ({"model": "other"}, {"size_bytes": 5}, {"serial": "S2"}, {"wwid": "naa.2"}):
        with pytest.raises(DriveError) as refusal:
            same_drive.check_condition(replace(first, **change), mine, certain=True, writes=True)
        assert refusal.value.trouble == "wrong-drive"
    same_drive.check_condition(replace(first, size_bytes=5), mine, certain=True, writes=False)
    with pytest.raises(DriveError, match="5 bytes"):
        same_drive.check_condition(replace(first, size_bytes=5), mine, certain=False, writes=False)
    same_drive.check_condition(first, mine, certain=False, writes=True)


def condition() -> Condition:
    """Of a drive as it was examined."""
    return Condition(
        model="m",
        serial="S1",
        firmware="1",
        size_bytes=SIZE_BYTES,
        diskseq=1,
        emulated=False,
        ready_s=None,
        power_cycles=None,
        unsafe_shutdowns=None,
        media_errors=None,
        spare_percent=None,
        used_percent=None,
        backup_failed=None,
        capacitor_percent=None,
        wwid="naa.1",
    )


def test_drives_in_another_order_are_the_same_drives() -> None:
    """After a boot the members of a mirror may have each other's names: it is found, and written to."""
    first = replace(condition(), model="m + n", serial="S1 + S2", wwid="naa.1 + naa.2")
    now = replace(first, model="n + m", serial="S2 + S1", wwid="naa.2 + naa.1")
    found = FoundDrive(name="md0", leaves=("sda", "sdb"), serial=now.serial, diskseqs=(1, 2))
    assert found.has(first.serial) and found.has("") and not found.has("S1 + S3")
    task = Tasks((drive_on("/dev/md/mirror"),), examined=first).make("run", fresh=True)
    (mine,) = task.drives
    same_drive.check_condition(now, mine, certain=False, writes=True)
    other = replace(now, serial="S1 + S3"), replace(now, model="n + o"), replace(now, wwid="naa.1 + naa.3")
    for one in other:
        with pytest.raises(DriveError):
            same_drive.check_condition(one, mine, certain=False, writes=True)


async def test_a_drive_of_another_size_at_the_place_is_left_alone(
    server: TaskServer, make_loop: MakeLoop, tmp_path: Path
) -> None:
    """The file behind a loop device grew since it was examined: nothing is written."""
    device = make_loop(SIZE_BYTES)
    tasks = Tasks((drive_on(device),), ready_within_s=1.0)
    tasks.examined = (await server.do(tasks.make("examine"))).condition
    os.truncate(tmp_path / "disk0.img", 2 * SIZE_BYTES)
    await tool("losetup", "--set-capacity", device)
    run = await server.do(tasks.make("run", fresh=True), "armed failed")
    refused(run, "wrong-drive", f"and had {SIZE_BYTES:,}")
    assert not any(device.read_bytes())


def test_a_drive_that_comes_under_the_name_of_another_is_noticed(make_loop: MakeLoop, tmp_path: Path) -> None:
    """Between the look at a drive and its file system another one may take its name; while the name is held,
    it cannot."""
    device = make_loop(SIZE_BYTES)
    found = find(drive_on(device), "")
    os.close(same_drive.pin(found))
    other = tmp_path / "other.img"
    with other.open("wb") as file:
        file.truncate(SIZE_BYTES)
    subprocess.run(["losetup", "--detach", device], check=True)
    subprocess.run(["losetup", device, other], check=True)
    try:
        with pytest.raises(DriveError, match="went away"):
            same_drive.pin(found)
        held = same_drive.pin(find(drive_on(device), ""))
        subprocess.run(["losetup", "--detach", device], check=True)
        free = subprocess.run(["losetup", device, other], check=False, capture_output=True)
        assert free.returncode, "the name was given away while it was held"
        os.close(held)
    finally:
        subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)


async def test_a_link_as_target_is_refused(server: TaskServer, make_mount: MakeMount, tmp_path: Path) -> None:
    """A symbolic link to a file or to a disk is not followed, wherever it leads."""
    device, directory = make_mount()
    victim = directory / "victim"
    victim.write_bytes(b"somebody's")
    for number, aim in enumerate((victim, device, directory / "new")):
        target = directory / f"link{number}"
        target.symlink_to(aim)
        tasks = Tasks((file_on(target),), number=10 * number, ready_within_s=1.0)
        refused(await server.do(tasks.make("examine")), "not-begun", "is a symbolic link")
        refused(await server.do(tasks.make("run"), "armed failed"), "not-begun", "is a symbolic link")
    assert victim.read_bytes() == b"somebody's" and not (directory / "new").exists()


async def test_a_target_whose_file_system_is_not_mounted_waits_for_it(
    tmp_path: Path, make_mount: MakeMount
) -> None:
    """After a boot, the target's file system may not be mounted yet. The agent writes nothing to the file
    system below it and reports no loss."""
    _, below = make_mount()
    _, above = make_mount()
    inner = below / "data"
    inner.mkdir()
    await tool("mount", "--bind", above, inner)
    try:
        async with with_both_servers(tmp_path) as (server, _, _):
            tasks = Tasks((file_on(inner / "t"),), ready_within_s=1.0)
            examined = await server.do(tasks.make("examine"))
            assert examined.condition is not None and examined.condition.holds.startswith("ext4 ")
            tasks.examined = examined.condition
            armed = await server.do(tasks.make("run"), "armed failed")
            assert armed.state == "armed", armed
            await server.do(tasks.make("release"))
            await tool("umount", inner)
            for task in (tasks.make("run"), tasks.make("verify", run=armed.run)):
                status = await server.do(task, "armed done failed")
                refused(status, "wrong-drive", "is that mounted?")
            assert list(inner.iterdir()) == []
            server.task = tasks.make("verify", run=armed.run, ready_within_s=60.0)
            await server.until(lambda status: any("waiting" in one.text for one in status.drives))
            await tool("mount", "--bind", above, inner)
            verified = await server.drive("done failed")
            assert verified.state == "done", verified
    finally:
        with suppress(AssertionError):
            await tool("umount", inner)


async def test_a_link_on_the_way_to_a_target_is_followed_only_if_root_made_it(
    server: TaskServer, make_mount: MakeMount, tmp_path: Path
) -> None:
    """A local user must not choose where root writes: as `run` does, and already in the check."""
    _, directory = make_mount()
    link = tmp_path / "link"
    link.symlink_to(directory)
    tasks = Tasks((file_on(link / "t"),), ready_within_s=1.0)
    status = await server.do(tasks.make("examine"))
    assert status.state == "done", status
    os.chown(link, 12345, 12345, follow_symlinks=False)
    tasks.examined = status.condition
    for task in (tasks.make("examine"), tasks.make("run")):
        refused(await server.do(task, "done armed failed"), "not-begun", "is a symbolic link of user 12345")
    assert not (directory / "t").exists()


async def test_half_of_a_btrfs_mirror_is_refused(server: TaskServer, make_loop: MakeLoop) -> None:
    """A btrfs of several devices shows no holder while it is not mounted; one of a single device may go."""
    one, two, single = make_loop(SIZE_BYTES), make_loop(SIZE_BYTES), make_loop(SIZE_BYTES)
    await tool(*without_loop_mounts(), "mkfs.btrfs", "-q", "-d", "raid1", "-m", "raid1", one, two)
    await tool(*without_loop_mounts(), "mkfs.btrfs", "-q", single)
    for number, device in enumerate((one, two)):
        tasks = Tasks((drive_on(device),), number=10 * number, ready_within_s=1.0)
        refused(await server.do(tasks.make("examine")), "in-use", "part of something else (btrfs)")
    status = await server.do(Tasks((drive_on(single),), number=30).make("examine"))
    assert status.condition is not None and status.condition.holds.startswith("btrfs="), status
    assert status.state == "done", status


async def test_the_log_of_another_file_system_is_refused(server: TaskServer, make_loop: MakeLoop) -> None:
    """An external journal belongs to a file system that is on another drive."""
    device = make_loop(SIZE_BYTES)
    await tool("mke2fs", "-q", "-O", "journal_dev", device)
    status = await server.do(Tasks((drive_on(device),), ready_within_s=1.0).make("examine"))
    refused(status, "in-use", "part of something else (jbd)")


async def test_a_drive_that_a_program_writes_to_is_refused(server: TaskServer, make_loop: MakeLoop) -> None:
    """A drive that a program has open for writing is refused in the check and before each run; a program that
    only reads is accepted."""
    device = make_loop(SIZE_BYTES)
    tasks = Tasks((drive_on(device, ""),), ready_within_s=1.0, again=True)
    for mode, flags in (("<>", "in-use"), ("<", "")):
        program = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            f'exec 3{mode}"$1"; echo; exec sleep 1000',
            "-",
            device,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert program.stdout is not None
            await program.stdout.readline()
            status = await server.do(tasks.make("examine"))
            assert status.trouble == flags, status
            if flags:
                run = await server.do(tasks.make("run"), "armed failed")
                for said in (status, run):
                    refused(said, flags, f"open for writing in process {program.pid} (sleep)")
        finally:
            program.kill()
            await program.wait()


@pytest.mark.parametrize("file_system", ["ext4", ""])
@pytest.mark.parametrize("held", ["", "ext2"])
@pytest.mark.parametrize("partitioned", [False, True])
async def test_what_came_on_a_drive_after_the_check_is_not_erased(
    server: TaskServer, make_loop: MakeLoop, file_system: str, held: str, partitioned: bool
) -> None:
    """A drive with the right serial that was put to use after the check is not written to or mounted. This
    also holds in a pause, and for a file system of the same type."""
    device = make_loop(SIZE_BYTES)
    with one_partition(device) if partitioned else nullcontext(device) as place:
        if held:
            await tool(f"mkfs.{held}", "-q", place)
        tasks = Tasks((drive_on(device, file_system),), ready_within_s=1.0)
        examined = await server.do(tasks.make("examine"))
        assert examined.condition is not None and examined.condition.serial, examined
        tasks.examined = examined.condition
        await tool("mkfs.ext2", "-q", "-F", place)
        before = device.read_bytes()
        for tasks.again, fresh in ((False, True), (True, True), (True, False)):
            run = await server.do(tasks.make("run", fresh=fresh), "armed failed")
            refused(run, "in-use", f" {'1:' if partitioned else ''}ext2=")
            made = tasks.again and file_system
            why = "this campaign did not make" if made else "was not there when"
            assert why in run.text and f"wipefs --all {device}" in run.text
        if file_system and not partitioned:
            verify = await server.do(tasks.make("verify", run="0123456789abcdef"))
            refused(verify, "in-use", "was not mounted")
        assert device.read_bytes() == before


@pytest.mark.parametrize("damage_at", [1024 + 56, 1024 + 200])
async def test_a_file_system_of_the_campaign_that_a_cut_damaged_begins_afresh(
    tmp_path: Path, make_loop: MakeLoop, damage_at: int
) -> None:
    """The campaign's own damaged file system may be replaced. If the drive has the content of the check
    again, the drive is refused, because someone may have put it back."""
    device = make_loop(SIZE_BYTES)
    async with with_both_servers(tmp_path) as (server, _, _):
        await tool("mkfs.ext2", "-q", device)
        checked = device.read_bytes()
        tasks = Tasks((drive_on(device),), ready_within_s=1.0)
        tasks.examined = (await server.do(tasks.make("examine"))).condition
        armed = await server.do(tasks.make("run", fresh=True), "armed failed")
        assert armed.state == "armed", armed
        await server.do(tasks.make("release"))
        tasks.again = True
        with device.open("r+b") as file:
            file.seek(damage_at)
            file.write(b"\x5a\xa5")
        again = await server.do(tasks.make("run", fresh=True), "armed failed")
        assert again.state == "armed", again
        await server.do(tasks.make("release"))
        device.write_bytes(checked)
        for fresh in (True, False):
            run = await server.do(tasks.make("run", fresh=fresh), "armed failed")
            refused(run, "in-use", "this campaign did not make")
        assert device.read_bytes() == checked
