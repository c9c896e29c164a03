"""The target of one drive: the path to which runs write, on the drive or in a file system that the agent
mounts.

This module finds the drive, reserves its device name during checks, and refuses to overwrite data of others.
All reads from the drive have a time limit, so that a drive that does not answer cannot block the agent.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from durability.errors import NotOursError
from durability_client.agent import drives, file_systems, same_drive
from durability_client.agent.abandonable_calls import Children, ProgramError, in_thread, poll
from durability_client.agent.agent_paths import AgentPaths
from durability_client.agent.drive_status import TaskPart
from durability_client.agent.drives import DriveError, FoundDrive
from durability_client.agent.file_systems import NotMountedError
from durability_client.system import block_devices

TARGET = "target"  # the file in a file system that the agent made
_LOOK_S = 0.2  # interval between searches for a drive
_READ_S = 30.0
_STUCK = "a killed program still waits for the drive, which does not answer"
_BUSY_S = 10.0  # time for programs that examine a new device, such as udev, to close it


class DriveTarget:
    """The target of one drive of a campaign. `run_on`: the drive on which the last run was begun."""

    def __init__(self, places: AgentPaths, children: Children) -> None:
        self.run_on: FoundDrive | None = None
        self._places = places
        self._children = children
        self._pin: int | None = None  # device descriptor until a mount or run holds it, see `same_drive.pin`

    def directory(self, work: TaskPart) -> Path:
        """The mount point of the drive's file system."""
        return self._places.mount_point(work.task, work.mine)

    async def find(self, work: TaskPart, *, hold: bool = False) -> FoundDrive:
        """Wait until the drive is present and readable, and return it. A drive that carries the system is not
        read. `hold`: keep the device's name from other drives, until `unpin`. Raises DriveError."""
        why = DriveError("missing", _STUCK)  # until a search gives another reason

        async def look() -> FoundDrive | DriveError | None:
            nonlocal why
            if self._children.stuck:
                return None
            try:
                found = await in_thread(partial(drives.find, work.drive, work.mine.serial))
                await in_thread(partial(same_drive.check_file_system, work.drive, work.mine))
            except DriveError as error:
                why = error
                return None
            if found.device is not None:
                try:
                    same_drive.check_name(work.drive, found)
                    await in_thread(partial(drives.check_system_disk, found))
                except DriveError as refused:
                    return refused
            if found.device is not None and (problem := await self._unreadable(found.device)):
                why = DriveError("missing", f"{found.device} cannot be read: {problem}")
                return None
            try:
                if hold:
                    await self.hold(found)
            except DriveError as error:  # the drive was attached again just now
                why = error
                return None
            return found

        work.say(text="waiting for the drive")
        found: FoundDrive | DriveError | None
        found = await poll(look, every_s=_LOOK_S, within_s=work.task.ready_within_s)
        if isinstance(found, DriveError):
            raise found
        if found is None:
            raise DriveError(why.trouble, f"{why}, for {work.task.ready_within_s:g} s")
        work.say(text="")
        return found

    async def _unreadable(self, device: Path) -> str:
        """Why the device's first block cannot be read with O_DIRECT; "" if it can."""
        options = ("of=/dev/null", "bs=4096", "count=1", "iflag=direct", "status=none")
        try:
            done = await self._children.run("dd", f"if={device}", *options, timeout_s=_READ_S)
        except ProgramError as error:
            return str(error)
        return done.said if done.exit_code else ""

    async def hold(self, found: FoundDrive) -> None:
        """Keep the device's name from other drives, until `unpin`. Raises DriveError."""
        if found.device is not None:
            self.unpin()
            self._pin = await in_thread(partial(same_drive.pin, found), discard=os.close)

    def unpin(self) -> None:
        """Release the name that `hold` keeps."""
        if self._pin is not None:
            os.close(self._pin)
            self._pin = None

    async def erasable(self, found: FoundDrive) -> same_drive.Contents:
        """The contents of a device that may be overwritten. Waits for programs that examine new devices.
        Raises DriveError."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _BUSY_S
        while True:
            try:
                return await in_thread(partial(drives.check_unused, found))
            except DriveError as error:
                if isinstance(error.__cause__, NotOursError) or loop.time() > deadline_s:
                    raise
            await asyncio.sleep(1.0)

    async def check_writable(self, work: TaskPart, found: FoundDrive) -> None:
        """Check the drive's current contents before it is written to. Raises DriveError."""
        contents, condition = await self.erasable(found), work.condition
        assert condition is not None
        await in_thread(
            partial(same_drive.check_before_writing, work.task, work.mine, found, condition, contents)
        )

    async def last_run(self, work: TaskPart) -> str:
        """The last run that was begun on the target; "" for none, and if the drive does not answer."""
        return await self.run_at(self.path(work))

    async def run_at(self, path: Path) -> str:
        """Like `last_run`, for a path."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_READ_S):
                return await in_thread(partial(same_drive.run_on, path))
        return ""

    def path(self, work: TaskPart) -> Path:
        """The path to which runs write. It may not exist before `make`."""
        if work.drive.file_system:
            return self.directory(work) / TARGET
        return Path(work.drive.target or work.drive.device)

    async def make(self, work: TaskPart, found: FoundDrive) -> Path:
        """Prepare the target for a run and return its path. Makes the file system, if the task asks for it,
        and mounts it. Raises DriveError."""
        drive = work.drive
        if found.device is None:
            return Path(drive.target)
        if not drive.file_system:
            if work.mine.fresh:  # erase signatures: later runs have no --force, and data beyond records stay
                work.say(text="erasing what the drive held")
                if await in_thread(partial(same_drive.needs_mark, found)):
                    text = same_drive.mark_of(work.task, work.mine)
                    await file_systems.mark(self._children, found.device, text)
                await file_systems.erase(self._children, found.device)
            return found.device
        if work.mine.fresh:
            work.say(text=f"making {drive.file_system}")
            uuid = same_drive.new_uuid(work.task, work.mine)
            await file_systems.make(self._children, drive.file_system, found.device, uuid=uuid)
        work.say(text="mounting")
        try:
            await self.mount(work, found)
        except NotMountedError as error:
            raise DriveError("unmountable", str(error)) from error
        self.unpin()  # the mount keeps the device open
        return self.path(work)

    async def mount(self, work: TaskPart, found: FoundDrive) -> float:
        """Mount the drive's file system. Returns the duration in seconds. Raises NotMountedError and
        DriveError."""
        kind, device = work.drive.file_system, found.device
        assert kind and device is not None
        await in_thread(partial(same_drive.check_mountable, work.task, work.mine, found))
        directory = self.directory(work)
        options, within_s = work.drive.mount_options, max(work.task.ready_within_s, _BUSY_S)
        took_s = await file_systems.mount(
            self._children, kind, device, directory, options=options, within_s=within_s
        )
        if not file_systems.is_mounted(directory):
            raise NotMountedError(f"{device} was mounted at {directory}, and is gone from there")
        return took_s

    async def dismount(self, work: TaskPart) -> None:
        """Unmount the drive's file system. If the drive is gone, detach the mount at once instead."""
        gone = self.run_on is not None and not self.run_on.is_still_there
        await file_systems.unmount(self._children, self.directory(work), gone=gone)

    async def let_go(self, work: TaskPart) -> None:
        """Detach the mount at once if the drive, or one of several drives, is dead, so that the drive can
        come back under its name."""
        directory = self.directory(work)
        if self.run_on is None or not file_systems.is_mounted(directory):
            return
        for leaf in self.run_on.leaves:
            if await self._unreadable(block_devices.node_of(leaf)):
                await file_systems.unmount(self._children, directory, gone=True)
                return

    async def settled(self, work: TaskPart) -> None:
        """Wait for programs of earlier tasks that still wait for the drive. Raises DriveError."""
        if not self._children.stuck:
            return
        work.say(text="waiting: an earlier program still uses the drive")
        try:
            async with asyncio.timeout(max(work.task.ready_within_s, _BUSY_S)):
                await self._children.settled()
        except TimeoutError:
            raise DriveError("missing", _STUCK) from None
        work.say(text="")
