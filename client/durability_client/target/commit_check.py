"""Whether a sync that returned success may be believed: asked of the file system after each sync that rests
on its commits.

Once a commit has failed under anybody's sync, what was in it is thrown away, and the next sync finds nothing
to do and returns 0. But a change is refused then. So the question is a change: of times, which nobody
depends on.

What is changed must not be what the next sync has to write, or the drive gets more writes than the workload
makes. So the directory is asked for a file that is overwritten in place: a sync of the file does not wait
for its directory. A file that grows is asked itself, as each of its syncs writes its inode anyway. No file
is made for the question, so none is left behind, and no name is followed.
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
    """Called after a sync, it raises OSError if the file system has failed. It has a descriptor of its own,
    or the file's, which stays the file's."""

    __slots__ = ("_ask", "_asked_fd", "_own")

    def __init__(self, ask: Callable[[int], None], asked_fd: int, *, own: bool) -> None:
        self._ask = ask
        self._asked_fd = asked_fd
        self._own = own

    def __call__(self) -> None:
        """Raises OSError if the sync that just returned may have lied."""
        self._ask(self._asked_fd)

    def close(self) -> None:
        """Close the descriptor, if it is not the file's."""
        if self._own:
            os.close(self._asked_fd)


def require_alive(fd: int) -> None:
    """Raises OSError if the file system takes no change any more; ext4 needs two to notice."""
    os.utime(fd)
    os.utime(fd)


def require_writable(fd: int) -> None:
    """Raises OSError if the file system has become read-only; changes nothing."""
    if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def commit_check(plan: Plan, path: Path, fd: int) -> CommitCheck | None:
    """What to ask after each sync of `fd`, the file at `path` that is written by `plan`; None: nothing."""
    contract = plan.contract
    if plan.target_kind != "file" or not contract.rests_on_commit(plan.sync, in_journal=True):
        return None  # at once: names open a file for each operation
    if not contract.rests_on_commit(plan.sync) and not discovery.has_data_in_journal(path, fd):
        return None
    if plan.contract.layout == "log":
        return CommitCheck(require_alive, fd, own=False)
    if discovery.has_no_journal(path):
        # There is no commit that others could fail; and inodes share blocks, so that a change of any of them
        # is one more write for the next fsync.
        return CommitCheck(require_writable, fd, own=False)
    directory_fd = _changeable_directory(path, fd)
    if directory_fd is None:
        return CommitCheck(require_alive, fd, own=False)
    return CommitCheck(require_alive, directory_fd, own=True)


def _changeable_directory(path: Path, fd: int) -> int | None:
    """A descriptor of the directory that holds the file `fd`, on the same file system; None if this user may
    not change it, or the file is mounted there from elsewhere."""
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
