"""A device that lies on several drives, such as an array: when it counts as gone, and how it is unmounted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from durability.campaign.tasks import DriveStatus
from durability_client.agent import file_systems
from durability_client.agent.abandonable_calls import Children, Done
from durability_client.agent.agent_paths import AgentPaths
from durability_client.agent.drive_status import TaskPart
from durability_client.agent.drive_target import DriveTarget
from durability_client.agent.drives import FoundDrive
from durability_client.system import block_devices
from tests.client.agent.task_server import Tasks, drive_on
from tests.loop_devices import detach
from tests.waiting import wait_for

MakeLoop = Callable[..., Path]
SIZE_BYTES = 64 << 20
REMOVED = "durability-none"  # no such device


class Told(Children):
    """Programs that tell what was started."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[tuple[str, ...]] = []

    async def run(self, *command: str, timeout_s: float, given: bytes = b"") -> Done:
        self.commands.append(command)
        return await super().run(*command, timeout_s=timeout_s, given=given)


class Mounted:
    """What is mounted from a drive; its run was on a device that lies on the drives `leaves`."""

    def __init__(self, directory: Path, device: Path) -> None:
        self.device = device
        self.places = AgentPaths(directory / "agent")
        self.children = Told()
        self.target = DriveTarget(self.places, self.children)
        task = Tasks((drive_on(device),)).make("release")
        self.said: list[DriveStatus] = []
        self.part = TaskPart(task, task.drives[0], self.said.append)
        self.directory = self.places.mount_point(task, task.drives[0])
        self.directory.mkdir(parents=True)
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        subprocess.run(["mount", device, self.directory], check=True)

    def ran_on(self, *leaves: str) -> None:
        self.target.run_on = on(self.device, *leaves)

    def unmounts(self) -> list[bool]:
        """Of each call of umount so far, whether it was lazy."""
        return ["--lazy" in command for command in self.children.commands if command[0] == "umount"]


def on(device: Path, *leaves: str) -> FoundDrive:
    """The device, as if it lay on the drives `leaves`."""
    diskseqs = tuple(map(block_devices.diskseq_of, leaves))
    return FoundDrive(name=device.name, leaves=leaves, serial="A + B", diskseqs=diskseqs)


@pytest.fixture
def mounted(make_loop: MakeLoop, tmp_path: Path) -> Iterator[Mounted]:
    mounted = Mounted(tmp_path, make_loop(SIZE_BYTES))
    yield mounted
    if file_systems.is_mounted(mounted.directory):
        subprocess.run(["umount", "--lazy", mounted.directory], check=True)


def test_a_device_on_several_drives_is_gone_with_one_of_them(make_loop: MakeLoop, tmp_path: Path) -> None:
    """A device is there while all its drives are there. A drive that takes over the name of a missing one is
    a different drive."""
    first, second = make_loop(SIZE_BYTES), make_loop(SIZE_BYTES)
    found = on(first, first.name, second.name)
    assert found.is_still_there
    detach(second)
    assert not found.is_still_there
    other = tmp_path / "other.img"
    other.write_bytes(bytes(SIZE_BYTES))
    # Another test may have taken the name meanwhile.
    wait_for(lambda: subprocess.run(["losetup", second, other], check=False).returncode == 0)
    try:
        assert not found.is_still_there
        assert on(first, first.name, second.name).is_still_there
    finally:
        detach(second)


@pytest.mark.parametrize("gone", [False, True])
async def test_only_a_device_that_is_gone_is_unmounted_lazily(
    mounted: Mounted, make_loop: MakeLoop, gone: bool
) -> None:
    """A lazy unmount waits for no one who still uses the file system."""
    mounted.ran_on(mounted.device.name, REMOVED if gone else make_loop(SIZE_BYTES).name)
    await mounted.target.dismount(mounted.part)
    assert mounted.unmounts() == [gone]
    assert not file_systems.is_mounted(mounted.directory)


@pytest.mark.parametrize("dead", [False, True])
async def test_a_run_that_ends_lets_go_of_a_device_of_which_one_drive_is_dead(
    mounted: Mounted, make_loop: MakeLoop, dead: bool
) -> None:
    """Whichever of its drives that is, and though a program still uses the mount."""
    mounted.ran_on(mounted.device.name, REMOVED if dead else make_loop(SIZE_BYTES).name)
    with (mounted.directory / "used").open("w"):
        await mounted.target.let_go(mounted.part)
        assert mounted.unmounts() == ([True] if dead else [])
        assert file_systems.is_mounted(mounted.directory) is not dead
