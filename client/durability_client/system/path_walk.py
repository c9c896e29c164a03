"""Resolves a path without trusting symbolic links that others made.

In a directory where others may write, such as /tmp, a name may be a malicious link. So each part of a path is
opened separately. A link is followed only if it belongs to this user, to root or to the owner of its
directory; other links are refused. Callers use the descriptor of the resulting directory, so that links that
are made later have no effect.
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

_LINKS_MAX = 40  # as in Linux
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class OpenName:
    """A name in an open directory. `directory`: path of the directory without links; `fd`: its descriptor."""

    fd: int
    directory: Path
    name: str

    @property
    def path(self) -> Path:
        """The path without links, except that `name` itself may be a link."""
        return self.directory / self.name


@contextmanager
def place_of(path: Path, *, follow_last: bool = False) -> Iterator[OpenName]:
    """The place that `path` names, open during the block. With `follow_last`, a link as the last part is
    followed, too.

    Raises SetupError for a refused link, and OSError if a directory on the way cannot be entered.
    """
    walk = _Walk(path)
    try:
        while walk.step(follow_last=follow_last):
            pass
        yield OpenName(walk.fd, Path(walk.directory), walk.name)
    finally:
        os.close(walk.fd)


def real_path(path: str | Path) -> Path:
    """`path` without symbolic links, as far as the path exists. Raises SetupError for a refused link."""
    walk = _Walk(Path(path))
    try:
        with suppress(OSError):  # the rest does not exist, or cannot be entered
            while walk.step(follow_last=True):
                pass
        return Path(os.path.normpath(Path(walk.directory, walk.name, *walk.rest)))
    finally:
        os.close(walk.fd)


class _Walk:
    """State of the resolution: `rest` is below `name`, which is in `directory`."""

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
        """Resolve one part. Returns False at the end. Raises like `place_of`; `rest` then begins after
        `name`."""
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
        """If the name is a link, replace it by the link's target. Returns whether it was a link."""
        try:
            link = os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            if self.rest:
                raise
            return False  # the last name does not exist yet
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
