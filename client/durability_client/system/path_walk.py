"""Walks a path without trust in symbolic links that others made.

In a directory where others may write, such as /tmp, a name may be a link that somebody planted. So every part
of a path is opened by itself. A link is followed only if it belongs to this user, to root or to the owner of
the directory that it is in; any other is refused. What is done in the directory that was reached is done by
its descriptor, so that no link that appears later leads elsewhere.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from durability.errors import SetupError

_LINKS_MAX = 40  # as Linux
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class OpenName:
    """A name in a directory that is open. `directory`: its path without links; `fd`: of that directory."""

    fd: int
    directory: Path
    name: str

    @property
    def path(self) -> Path:
        """The path without links, but for one that `name` may be."""
        return self.directory / self.name


@contextmanager
def place_of(path: Path, *, follow_last: bool = False) -> Iterator[OpenName]:
    """The place that `path` names, for the time of a block. With `follow_last`, a link that the last part is
    is followed as well.

    Raises SetupError for a link that is not followed, OSError where a directory on the way cannot be entered.
    """
    walk = _Walk(path)
    try:
        while walk.step(follow_last=follow_last):
            pass
        yield OpenName(walk.fd, Path(walk.directory), walk.name)
    finally:
        os.close(walk.fd)


def real_path(path: str | Path) -> Path:
    """`path` without symbolic links, as far as it exists. Raises SetupError for a link that is refused."""
    walk = _Walk(Path(path))
    try:
        with suppress(OSError):  # what is not there, or may not be entered, has no links to follow
            while walk.step(follow_last=True):
                pass
        return Path(os.path.normpath(Path(walk.directory, walk.name, *walk.rest)))
    finally:
        os.close(walk.fd)


class _Walk:
    """How far a path was followed: `rest` lies below `name`, which lies in `directory`."""

    def __init__(self, path: Path) -> None:
        self.fd = -1
        self.rest = list(path.parts)
        self.name = "."
        self._links = 0
        self._start(os.getcwd() if not path.is_absolute() else "/")  # noqa: PTH109 - a string is wanted
        if path.is_absolute():
            del self.rest[0]

    def _start(self, directory: str) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = os.open(directory if directory == "/" else ".", _DIRECTORY)
        self.directory = directory

    def step(self, *, follow_last: bool) -> bool:
        """Go on by one part; False at the end. Raises as `place_of`; then `rest` begins after `name`."""
        if not self.rest:
            return False
        self.name = self.rest.pop(0)
        if self.name != "..":
            if not self.rest and not follow_last:
                return False
            if self._follow_link():
                return True
            if not self.rest:
                return False
        self._enter(self.name)
        self.directory = os.path.normpath(Path(self.directory, self.name))
        self.name = "."
        return True

    def _enter(self, name: str) -> None:
        entered = os.open(name, _DIRECTORY, dir_fd=self.fd)
        os.close(self.fd)
        self.fd = entered

    def _follow_link(self) -> bool:
        """Put what a link says in the place of its name; whether it is one."""
        try:
            link = os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            if self.rest:
                raise
            return False  # a name that is free
        if not stat.S_ISLNK(link.st_mode):
            return False
        said = os.readlink(self.name, dir_fd=self.fd)
        again = os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)
        directory = os.fstat(self.fd)
        changed = (link.st_dev, link.st_ino) != (again.st_dev, again.st_ino)
        if changed or link.st_uid not in {os.geteuid(), 0, directory.st_uid}:
            raise SetupError(
                f"{Path(self.directory, self.name)} is a symbolic link of user {_user(again.st_uid)}, "
                f"expected one of this user, of root or of the owner of {self.directory}, so it is not "
                "followed; name the file that you mean, or remove the link"
            )
        self._links += 1
        if self._links > _LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        parts = list(Path(said).parts)
        if said.startswith("/"):
            self._start("/")
            del parts[0]
        self.rest = parts + self.rest
        self.name = "."
        return True


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
