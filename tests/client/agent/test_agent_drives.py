"""Which drives an agent finds, and which it refuses to touch."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from durability.campaign.tasks import DriveStatus
from durability_client.agent import drives, file_systems
from durability_client.agent.abandonable_calls import Children
from durability_client.agent.drives import DriveError, check_named_once, find
from durability_client.agent.file_systems import KernelLog
from durability_client.target import discovery
from durability_client.target.signatures import signature_of, signatures_of
from tests.client.agent.task_server import (
    Tasks,
    TaskServer,
    agent_process,
    by_name,
    drive_on,
    file_on,
    task_server,
    with_both_servers,
)
from tests.client.target.test_signatures import _make
from tests.loop_devices import one_partition

MakeLoop = Callable[..., Path]
MakeMount = Callable[..., tuple[Path, Path]]
SIZE_BYTES = 64 << 20


@pytest.fixture
async def server(tmp_path: Path, loop_machine: None) -> AsyncIterator[TaskServer]:
    """With an agent that has no server for runs: what it refuses needs none."""
    async with task_server(tmp_path) as server, agent_process(tmp_path):
        yield server


async def both(server: TaskServer, device: Path) -> tuple[DriveStatus, DriveStatus]:
    """What an examine says of a device, and a run for which its data may go."""
    tasks = Tasks((drive_on(device, size=""),), ready_within_s=1.0)
    examined = await server.do(tasks.make("examine"))
    return examined, await server.do(tasks.make("run", fresh=True), "armed ended failed")


def tool(*command: str | Path, said: str = "") -> None:
    """Run a program of the system."""
    subprocess.run(command, input=said.encode(), check=True, capture_output=True)


def lvm(device: Path) -> None:
    """The label of a physical volume, in sector 1, with LVM's own CRC."""
    body = struct.pack("<I8s", 32, b"LVM2 001") + b"a" * 32 + struct.pack("<Q", SIZE_BYTES) + bytes(4096)
    body = body[: 512 - 20]
    check = 0xF597A6CF
    for byte in body:
        check ^= byte
        for _ in range(8):
            check = check >> 1 ^ (0xEDB88320 if check & 1 else 0)
    with device.open("r+b") as file:
        file.seek(512)
        file.write(b"LABELONE" + struct.pack("<QI", 1, check) + body)


def luks(device: Path) -> None:
    """The header of a LUKS device."""
    header = b"LUKS\xba\xbe" + struct.pack(">H", 1) + b"aes".ljust(32, b"\0") + b"xts".ljust(32, b"\0")
    with device.open("r+b") as file:
        file.write((header + b"sha256".ljust(32, b"\0")).ljust(4096, b"\0"))


@pytest.mark.parametrize("make", [lvm, luks])
async def test_a_part_of_something_else_is_never_overwritten(
    server: TaskServer, make_loop: MakeLoop, make: Callable[[Path], None]
) -> None:
    """A member of LVM or an encrypted device is refused, though its data were said to go."""
    device = make_loop(SIZE_BYTES)
    make(device)
    before = device.read_bytes()
    for status in await both(server, device):
        assert (status.state, status.trouble) == ("failed", "in-use"), status
        assert "is a part of something else" in status.text
    assert device.read_bytes() == before


async def test_a_member_in_a_partition_is_seen(server: TaskServer, make_loop: MakeLoop) -> None:
    """A whole drive is refused for what lies in one of its partitions."""
    device = make_loop()
    with one_partition(device) as part:
        lvm(part)
        for status in await both(server, device):
            assert (status.state, status.trouble) == ("failed", "in-use"), status
            assert part.name in status.text and "LVM2_member" in status.text


async def test_a_mounted_device_is_refused(server: TaskServer, make_mount: MakeMount) -> None:
    """A mounted device is refused as in use, and its files stay unchanged."""
    device, directory = make_mount()
    (directory / "mine").write_text("kept")
    for status in await both(server, device):
        assert (status.state, status.trouble) == ("failed", "in-use"), status
        assert f"mounted at {directory}" in status.text
    assert (directory / "mine").read_text() == "kept"


async def test_a_drive_with_swap_is_the_systems(server: TaskServer, make_loop: MakeLoop) -> None:
    """The machine runs from a drive that has its swap, so it is not tested."""
    device = make_loop(SIZE_BYTES)
    await asyncio.to_thread(tool, "mkswap", "-q", device)
    device.chmod(0o600)
    await asyncio.to_thread(tool, "swapon", device)
    try:
        for status in await both(server, device):
            assert (status.state, status.trouble) == ("failed", "system-disk"), status
            assert f"runs from {device.name}" in status.text
    finally:
        await asyncio.to_thread(tool, "swapoff", device)


async def test_the_drive_of_the_root_file_system_is_the_systems(server: TaskServer) -> None:
    """The drive that carries / is refused as a device target. A file target on it passes the check, with the
    note that it is on the system disk."""
    leaves = discovery.drives_below(Path("/"))
    if not leaves:
        pytest.skip("the root file system of this machine is on no drive that it sees")
    tasks = Tasks((drive_on(f"/dev/{leaves[0]}"),), ready_within_s=5.0)
    status = await server.do(tasks.make("examine"))
    assert (status.state, status.trouble) == ("failed", "system-disk"), status
    place = next(
        path for path in map(Path, ("/var/tmp", "/tmp", "/")) if discovery.drives_below(path) == leaves
    )
    tasks = Tasks((file_on(place / "durability-none"),), number=5)
    status = await server.do(tasks.make("examine"))
    assert (status.state, status.trouble) == ("done", "system-disk"), status


def test_a_drive_that_is_named_twice_is_known(tmp_path: Path) -> None:
    """By a link, by a partition, and by a file on it."""
    place = Path("/var/tmp")
    leaves = discovery.drives_below(place)
    if len(leaves) != 1:
        pytest.skip("/var/tmp of this machine is not on one drive that it sees")
    link = tmp_path / "link"
    link.symlink_to(f"/dev/{leaves[0]}")
    partitions = (f"/dev/{path.parent.name}" for path in Path("/sys/block", leaves[0]).glob("*/partition"))
    drive = find(drive_on(f"/dev/{leaves[0]}"), "")
    for other in (drive_on(link), *(drive_on(one) for one in partitions), file_on(place / "t")):
        with pytest.raises(DriveError, match="name each drive once"):
            check_named_once(drive, Tasks((other,)).make("examine").drives)
    check_named_once(drive, Tasks((drive_on("/dev/durability-none"),)).make("examine").drives)


@pytest.mark.slow
async def test_of_two_targets_on_one_drive_the_second_is_refused(tmp_path: Path) -> None:
    """The check refuses the second of two targets on one drive, because one flush would cover both."""
    place = Path("/var/tmp")
    if not discovery.drives_below(place):
        pytest.skip("/var/tmp of this machine is on no drive that it sees")
    async with task_server(tmp_path) as server, agent_process(tmp_path):
        tasks = Tasks((file_on(place / "durability-a"), file_on(place / "durability-b", name="d2")))
        assert (await server.do(tasks.make("examine"))).state == "done"
        second = await server.drive("done failed", "d2")
    assert (second.state, second.trouble) == ("failed", "in-use"), second
    assert "is [[drive]] d1 too" in second.text


async def test_what_a_drive_holds_is_said(tmp_path: Path, make_loop: MakeLoop) -> None:
    """Before the first run the operator learns what will be gone, and a file system is known again."""
    device, known = make_loop(SIZE_BYTES), str(uuid.uuid4())
    await asyncio.to_thread(tool, "mkfs.ext4", "-q", "-U", known, device)
    async with with_both_servers(tmp_path) as (server, _, _):
        status = await server.do(Tasks((drive_on(device),)).make("examine"))
    assert status.condition is not None
    assert (status.state, status.condition.holds) == ("done", f"ext4={known}"), status


def test_a_drive_is_found_by_its_serial(make_loop: MakeLoop) -> None:
    """Without a serial the path decides; with one, another drive at the place is not taken for it."""
    first, second = make_loop(SIZE_BYTES), make_loop(SIZE_BYTES)
    with by_name(first) as link:
        drive = drive_on(link.path)
        serial = find(drive, "").serial
        assert serial and find(drive, serial).device == first
        link.point(second)
        assert find(drive, "").device == second
        with pytest.raises(DriveError, match="expected loop:") as refusal:
            find(drive, serial)
        assert refusal.value.trouble == "wrong-drive"
    with pytest.raises(DriveError, match="is not there") as refusal:
        find(drive, serial)
    assert refusal.value.trouble == "missing"


def test_a_loop_device_on_the_system_is_not_the_system(make_loop: MakeLoop) -> None:
    """An image that lies on the system's drive is not the drive, until the system uses it itself."""
    device = make_loop(SIZE_BYTES)
    found = find(drive_on(device), "")
    drives.check_system_disk(found)
    tool("mkswap", "-q", device)
    device.chmod(0o600)
    tool("swapon", device)
    try:
        with pytest.raises(DriveError, match=f"this machine runs from {device.name}"):
            drives.check_system_disk(found)
    finally:
        tool("swapoff", device)


async def test_a_table_within_a_partition_is_erased(make_loop: MakeLoop) -> None:
    """A partition table inside a partition, as on a guest's disk, is erased at both ends. A partition in use
    is not erased."""
    children = Children()
    with one_partition(make_loop(SIZE_BYTES)) as partition:
        _make(partition, "gpt")
        held = os.open(partition, os.O_RDONLY | os.O_EXCL)
        with pytest.raises(DriveError, match="busy"):
            await file_systems.erase(children, partition)
        before = partition.read_bytes()
        with pytest.raises(DriveError, match="busy"):
            await file_systems.mark(children, partition, b"mark")
        assert signature_of(partition) == "gpt" and partition.read_bytes() == before
        os.close(held)
        await file_systems.erase(children, partition)
        assert (signature_of(partition), signatures_of(partition)) == ("", ())


async def test_a_repair_is_heard(make_loop: MakeLoop, tmp_path: Path) -> None:
    """After a damaged file system is mounted, its error count and the kernel log show the damage. A sound
    file system shows none."""
    device, children, log = make_loop(SIZE_BYTES), Children(), KernelLog()
    directory = tmp_path / "mounted"
    try:
        await file_systems.make(children, "ext4", device, uuid=str(uuid.uuid4()))
        for damaged in (False, True):
            if damaged:
                script = "set_super_value state 2\nset_super_value error_count 3\n"
                await asyncio.to_thread(tool, "debugfs", "-w", "-f", "/dev/stdin", device, said=script)
            await file_systems.mount(children, "ext4", device, directory, options="", within_s=10)
            counted = file_systems.error_count("ext4", device.name)
            said = log.damage(device.name)
            await file_systems.unmount(children, directory, gone=False)
            assert (bool(counted), bool(said)) == (damaged, damaged), said
    finally:
        log.close()
        await file_systems.unmount(children, directory, gone=False)


def test_a_repair_is_heard_again_by_the_next_agent() -> None:
    """The next agent reads the kernel's log again from where the first one began, and finds the same repair
    messages. Earlier messages do not count."""
    name = f"test{uuid.uuid4().hex[:12]}!e0.0"
    node = name.replace("!", "/")

    def says(text: str) -> None:
        try:
            Path("/dev/kmsg").write_text(f"<4>BTRFS warning (device {node}): {text}\n")
        except OSError as error:
            pytest.skip(f"the kernel's log cannot be written: {error}")

    says("checksum error of before")
    with closing(KernelLog()) as first:
        says("checksum verify failed on logical 30408704 mirror 1")
        with closing(KernelLog(first.first)) as again, closing(KernelLog()) as late:
            heard = [[text.partition(": ")[2] for text in log.damage(name)] for log in (first, again, late)]
    once = ["checksum verify failed on logical 30408704 mirror 1"]
    assert heard == [once, once, []]


async def test_a_program_that_hangs_is_given_up() -> None:
    """A program that takes too long is ended, and none is left."""
    children = Children()
    with pytest.raises(Exception, match="no answer within"):
        await children.run("sleep", "1000", timeout_s=0.2)
    await asyncio.wait_for(children.settled(), 60)
    assert not children.stuck


async def test_a_long_document_is_heard_whole() -> None:
    """A child's long JSON output, like that of `show --json` for 256 writers, is read completely."""
    document = {"case": {"label": "campaign test 3", "timeline": [1 << 40] * 200_000}}
    done = await Children().run("cat", timeout_s=60, given=json.dumps(document).encode())
    assert len(done.output) > 2 << 20 and json.loads(done.output) == document
