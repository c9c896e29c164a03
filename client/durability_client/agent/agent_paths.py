"""Where the agent keeps mounts and marks: a directory in memory, which a boot empties.

    lock                       held by the agent that runs
    mnt/CAMPAIGN+DRIVE         where a drive's file system is mounted
    runs/MARK                  a run that was begun for this task, with its id once that is known
    mounts/MARK                what the first mount for this task showed, and since when the kernel's log is
                               read for it

MARK is CAMPAIGN+DRIVE+CLIENT+TASK. CLIENT is the id with which the machine joined its server: another store
may have a campaign of the same name, whose tasks have the same numbers.

Refuses names that would lead elsewhere, a directory in which another user could plant links, and a second
agent.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from durability.campaign.tasks import DriveTask, Task
from durability.errors import FormatError, SetupError, TargetBusyError
from durability_client.system.path_walk import real_path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_WORDS_0_1 = 3  # of the marks of release 0.1, which had no client


class AgentPaths:
    """The paths below `directory`. `client`: the id with which the machine joined its server. Raises
    SetupError for a link to it that another user made."""

    def __init__(self, directory: Path, *, client: str = "") -> None:
        self._directory = real_path(directory)  # as the kernel tells where a file system is mounted
        self._client = client

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the directory, and keep other agents from it. Raises SetupError."""
        try:
            for part in ("", "mnt", "runs", "mounts"):
                (self._directory / part).mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SetupError(
                f"{self._directory} cannot be written ({error.strerror}): name a directory in memory with"
                " --directory"
            ) from error
        try:
            status = self._directory.stat()
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise SetupError(
                    f"{self._directory} can be changed by another user, who could have drives mounted"
                    " elsewhere: give --directory a directory that only root can write to"
                )
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TargetBusyError(
                    f"another agent runs here (it holds {self._directory}); stop it first, as a service"
                    " with `systemctl stop durability-agent`"
                ) from None
            yield
        finally:
            os.close(lock)

    @property
    def mount_points(self) -> Path:
        """The directory of all mount points."""
        return self._directory / "mnt"

    def mount_point(self, task: Task, drive: DriveTask) -> Path:
        """Where the drive's file system belongs."""
        return self.mount_points / _of(task, drive)

    def begun(self, task: Task, drive: DriveTask) -> Path:
        """The mark of a run that was begun for this task."""
        return self._mark("runs", task, drive)

    def mounted(self, task: Task, drive: DriveTask) -> Path:
        """The mark of a mount for this task, made before that."""
        return self._mark("mounts", task, drive)

    def ran_in_this_boot(self, task: Task, drive: DriveTask) -> bool:
        """Whether any run of the campaign was begun on the drive since the machine was started."""
        marks = (self._directory / "runs").glob(f"{_of(task, drive)}+*")
        return any(self._client in words or len(words) == _WORDS_0_1 for words in _words_of(marks))

    def _mark(self, kind: str, task: Task, drive: DriveTask) -> Path:
        of_0_1 = self._directory / kind / f"{_of(task, drive)}+{task.number}"
        if not self._client or of_0_1.exists():
            return of_0_1  # an agent of release 0.1 made it in this boot, and its release was changed since
        return of_0_1.with_name(f"{_of(task, drive)}+{self._client}+{task.number}")


def read_mark(path: Path) -> Mapping[str, Any] | None:
    """What the mark says; None if there is none."""
    try:
        text = path.read_text()
    except OSError:
        return None
    with suppress(ValueError):
        document = json.loads(text)
        if isinstance(document, dict):
            return document
    return {}  # half written: it is there


def write_mark(path: Path, content: Mapping[str, Any]) -> None:
    """Make the mark, in place of an earlier one."""
    new = path.with_name(f".{path.name}")
    new.write_text(json.dumps(content))
    new.replace(path)


def check_names(task: Task) -> None:
    """Raises FormatError for a name that is more than a name."""
    for name in (task.campaign, *(one.drive.name for one in task.drives)):
        if name and not _NAME.fullmatch(name):
            raise FormatError(f"task {task.number}: {name!r} is not a name")
    for one in task.drives:
        if one.drive.device and not one.drive.device.startswith("/dev/"):
            raise FormatError(f"task {task.number}: {one.drive.device!r} is not below /dev")


def _words_of(marks: Iterable[Path]) -> Iterator[list[str]]:
    return (mark.name.split("+") for mark in marks)


def _of(task: Task, drive: DriveTask) -> str:
    return f"{task.campaign}+{drive.drive.name}"
