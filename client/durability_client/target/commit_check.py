"""Checks after a sync that returned success whether the file system still works, if that sync depends on the
file system's commits.

If a commit fails during the sync of any process, the file system discards the data in it. The next sync then
finds nothing to write and returns 0. But the file system refuses changes from then on. So the check makes a
change: to timestamps, which no program needs.

The change must not add to the data of the next sync, or the drive would get more writes than the workload
makes. So for a file that is overwritten in place, the check changes its directory, which a sync of the file
does not write. For a file that grows, the check changes the file, because each sync writes its inode in any
case. The check makes no file, so it leaves none behind, and it follows no symbolic link.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from durability.formats.plan import Plan
from durability_client.target import discovery


class CommitCheck:
    """Call it after a sync: it raises OSError if the file system has failed. It uses its own descriptor, or
    borrows that of the file."""

    __slots__ = ("_ask", "_asked_fd", "_own")

    def __init__(self, ask: Callable[[int], None], asked_fd: int, *, own: bool) -> None:
        self._ask = ask
        self._asked_fd = asked_fd
        self._own = own

    def __call__(self) -> None:
        """Raises OSError if the last sync may have returned success without writing the data."""
        self._ask(self._asked_fd)

    def close(self) -> None:
        """Close the descriptor, unless it belongs to the file."""
        if self._own:
            os.close(self._asked_fd)


def require_alive(fd: int) -> None:
    """Raises OSError if the file system refuses changes. ext4 needs two changes to notice."""
    os.utime(fd)
    os.utime(fd)


def require_writable(fd: int) -> None:
    """Raises OSError if the file system has become read-only. Makes no change."""
    if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def commit_check(plan: Plan, path: Path, fd: int) -> CommitCheck | None:
    """The check to call after each sync of `fd`, the file at `path` that `plan` writes; None if no check is
    needed."""
    contract = plan.contract
    if plan.target_kind != "file" or not contract.rests_on_commit(plan.sync, in_journal=True):
        return None  # decided without system calls: name workloads open a file for each operation
    if not contract.rests_on_commit(plan.sync) and not discovery.has_data_in_journal(path, fd):
        return None
    if plan.contract.layout == "log":
        return CommitCheck(require_alive, fd, own=False)
    if discovery.has_no_journal(path):
        # There is no commit that could fail under another process's sync. Inodes share blocks, so a change to
        # any inode would add a write to the next fsync.
        return CommitCheck(require_writable, fd, own=False)
    directory_fd = _changeable_directory(path, fd)
    if directory_fd is None:
        return CommitCheck(require_alive, fd, own=False)
    return CommitCheck(require_alive, directory_fd, own=True)


def _changeable_directory(path: Path, fd: int) -> int | None:
    """A descriptor of the directory that holds the file `fd`. None if this user may not change the directory,
    or if the file is mounted there from another file system."""
    with suppress(OSError):
        directory_fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            file, directory = os.fstat(fd), os.fstat(directory_fd)
            entry = os.stat(path.name, dir_fd=directory_fd, follow_symlinks=False)
            if os.path.samestat(entry, file) and directory.st_dev == file.st_dev:
                require_alive(directory_fd)
                return directory_fd
        except BaseException:
            os.close(directory_fd)
            raise
        os.close(directory_fd)
    return None
