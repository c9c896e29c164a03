"""Paths of the agent's mounts and marks, in a directory in memory, which a boot empties.

    lock                       locked by the running agent
    mnt/CAMPAIGN+DRIVE         mount point of a drive's file system
    runs/MARK                  a run that was begun for this task, with its id once that is known
    mounts/MARK                results of the first mount for this task, and the first record of the kernel's
                               log that belongs to it

MARK is CAMPAIGN+DRIVE+CLIENT+TASK. CLIENT is the id with which the machine joined its server: another store
may have a campaign with the same name and the same task numbers.

This module refuses names that lead to other directories, a directory in which another user could make links,
and a second agent.
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
_WORDS_0_1 = 3  # words in the marks of release 0.1, which had no client


class AgentPaths:
    """The paths below `directory`. `client`: the id with which the machine joined its server. Raises
    SetupError if `directory` leads through a link that another user made."""

    def __init__(self, directory: Path, *, client: str = "") -> None:
        self._directory = real_path(directory)  # the kernel reports mount points as such paths
        self._client = client

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the directory, and lock it against other agents. Raises SetupError."""
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
        """The mount point of the drive's file system."""
        return self.mount_points / _of(task, drive)

    def begun(self, task: Task, drive: DriveTask) -> Path:
        """The mark of a run that was begun for this task."""
        return self._mark("runs", task, drive)

    def mounted(self, task: Task, drive: DriveTask) -> Path:
        """The mark of a mount for this task. The mark is made before the mount."""
        return self._mark("mounts", task, drive)

    def ran_in_this_boot(self, task: Task, drive: DriveTask) -> bool:
        """Whether any run of the campaign was begun on the drive since the machine was started."""
        marks = (self._directory / "runs").glob(f"{_of(task, drive)}+*")
        return any(self._client in words or len(words) == _WORDS_0_1 for words in _words_of(marks))

    def _mark(self, kind: str, task: Task, drive: DriveTask) -> Path:
        of_0_1 = self._directory / kind / f"{_of(task, drive)}+{task.number}"
        if not self._client or of_0_1.exists():
            return of_0_1  # an agent of release 0.1 made the mark in this boot, before it was upgraded
        return of_0_1.with_name(f"{_of(task, drive)}+{self._client}+{task.number}")


def read_mark(path: Path) -> Mapping[str, Any] | None:
    """Content of the mark; None if it does not exist, {} if it is incomplete."""
    try:
        text = path.read_text()
    except OSError:
        return None
    with suppress(ValueError):
        document = json.loads(text)
        if isinstance(document, dict):
            return document
    return {}  # incomplete, but it exists


def write_mark(path: Path, content: Mapping[str, Any]) -> None:
    """Write the mark, and replace an earlier one."""
    new = path.with_name(f".{path.name}")
    new.write_text(json.dumps(content))
    new.replace(path)


def check_names(task: Task) -> None:
    """Raises FormatError for a name that is not a plain name, or a device outside /dev."""
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
