"""The agent's task, with all its drives in parallel, and the agent's status.

A task with another number replaces the one before, whose work is ended first, drive by drive. A repeated
request for the same task changes nothing. Apart from marks in memory (`agent_paths`), no state survives this
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

import durability
from durability.campaign.tasks import DriveStatus, DriveTask, Status, Task
from durability.errors import SetupError
from durability.formats.documents import escaped
from durability.formats.facts import Host
from durability_client.agent import file_systems
from durability_client.agent.abandonable_calls import Children, ProgramError
from durability_client.agent.agent_paths import check_names
from durability_client.agent.drive_status import fresh_status
from durability_client.agent.drive_work import DriveWork, Setting
from durability_client.agent.drives import DriveError
from durability_client.target import discovery

_TOLD_S = 10.0  # time for the server to learn that a shutdown is prepared
_Key = tuple[str, str]  # campaign and drive
Say = Callable[[str], None]


class TaskWork:
    """The agent's work. `power_off` shuts the machine down. `changed` is set when the status has changed."""

    def __init__(
        self, setting: Setting, host: Host, *, power_off: Callable[[], Awaitable[None]], say: Say
    ) -> None:
        self._setting = setting
        self._host = host
        self._power_off = power_off
        self._say = say
        self._task: Task | None = None
        self._drives: dict[_Key, DriveWork] = {}
        self._statuses: dict[str, DriveStatus] = {}
        self._works: list[asyncio.Task[None]] = []  # newest last; the others are ending
        self._last_status: Status | None = None
        self._heard = asyncio.Event()
        self.changed = asyncio.Event()

    def status(self) -> Status:
        """The agent's current status."""
        return escaped(
            Status(
                boot_id=self._host.boot_id,
                machine_id=self._host.machine_id,
                uptime_ns=discovery.uptime_ns(),
                virtualisation=self._host.virtualisation,
                software=f"durability {durability.__version__}",
                task=self._task.number if self._task is not None else 0,
                drives=tuple(self._statuses.values()),
                campaign=self._task.campaign if self._task is not None else "",
            )
        )

    def note_status(self, status: Status) -> None:
        """Note that the server has received `status`."""
        self._setting.online.set()
        self._last_status = status
        self._heard.set()

    def lost(self) -> None:
        """Note that the server cannot be reached any more."""
        self._setting.online.clear()

    def take(self, task: Task) -> None:
        """Begin `task`, unless it is the current task. Raises FormatError."""
        if self._task is not None and (self._task.campaign, self._task.number) == (
            task.campaign,
            task.number,
        ):
            return
        check_names(task)
        self._task = task
        self._works = [work for work in self._works if not work.done()]
        for work in self._works:
            work.cancel()
        self._statuses = {one.drive.name: fresh_status(one.drive.name) for one in task.drives}
        of = f", {task.campaign} cycle {task.cycle}" if task.campaign else ""
        self._say(f"task {task.number}: {task.kind}{of}")
        self._works.append(asyncio.create_task(self._do(task, tuple(self._works))))
        self.changed.set()

    async def close(self) -> None:
        """End all work in order: stop the runs, unmount."""
        for work in self._works:
            work.cancel()
        await _over(self._works)
        await asyncio.gather(*(drive.retire() for drive in self._drives.values()))
        children = Children()
        for directory in self._setting.places.mount_points.glob("*"):  # mounts of an agent that was killed
            with suppress(DriveError):
                await file_systems.unmount(children, directory, gone=False)

    async def _do(self, task: Task, before: Sequence[asyncio.Task[None]]) -> None:
        await _over(before)
        keys = {(task.campaign, one.drive.name): one for one in task.drives}
        left = set(self._drives) - set(keys)
        async with asyncio.TaskGroup() as group:
            for key in left:
                group.create_task(self._retire(key))
            for key, mine in keys.items():
                drive = self._drives.setdefault(key, DriveWork(self._setting))
                group.create_task(drive.do(task, mine, self._reporter(task, mine)))
        if task.kind == "shutdown" and task.drives:  # without drives it is never switched on again
            await self._shut_down()

    async def _retire(self, key: _Key) -> None:
        await self._drives[key].retire()
        del self._drives[key]

    def _reporter(self, task: Task, mine: DriveTask) -> Callable[[DriveStatus], None]:
        def report(status: DriveStatus) -> None:
            if self._task is not task:
                return
            last = self._statuses[mine.drive.name]
            if status == last:
                return
            self._statuses[mine.drive.name] = status
            self.changed.set()
            if (status.state, status.text) != (last.state, last.text):
                self._say(f"{status.drive}: {_line(status)}")

        return report

    async def _shut_down(self) -> None:
        """Shut the machine down after the server has learned that all is prepared, or does not answer."""
        prepared = self.status()
        with suppress(TimeoutError):
            async with asyncio.timeout(_TOLD_S):
                while not self._has_heard(prepared):
                    self._heard.clear()
                    self.changed.set()
                    await self._heard.wait()
        self._say("shutting the machine down")
        try:
            await self._power_off()
        except (ProgramError, SetupError) as error:
            self._say(f"the machine cannot be shut down: {error}")

    def _has_heard(self, prepared: Status) -> bool:
        told = self._last_status
        return told is not None and (told.task, told.drives) == (prepared.task, prepared.drives)


async def _over(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for the end of all of `tasks`, also if this is cancelled meanwhile."""
    cancelled = False
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


def _line(status: DriveStatus) -> str:
    parts: Mapping[str, str] = {
        "run": status.run,
        "trouble": status.trouble,
        "exit code": "" if status.exit_code is None else str(status.exit_code),
    }
    known = ", ".join(f"{name} {text}" for name, text in parts.items() if text)
    said = f"{status.state}{f' ({known})' if known else ''}"
    return f"{said}: {status.text}" if status.text else said
