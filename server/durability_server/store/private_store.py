"""Who may read the files of an SQLite store: it holds the server's private key and the secrets of the runs.

No other user may, as one may a backup that was put back: such files are closed, and the log says so. Refuses
a store that is open to all users and that this server may not close. Opens, with a warning, one that another
user shares with a group, since this server may have it only by that. So it does one on a file system that
keeps no modes, where something else decides who may read it.
"""

from __future__ import annotations

import logging
import os
import pwd
import shlex
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from durability.errors import StoreError

MADE = 0o600  # the mode of a new file
_OTHERS = 0o077  # what a mode gives other users
_STRANGERS = 0o007  # of that what it gives those outside of the file's group

log = logging.getLogger(__name__)


def make_private(file: Path, *, beside: Iterable[Path]) -> None:
    """Closes the store `file` to others, and those `beside` it that there are. By their paths, since closing
    a file gives up SQLite's locks on it. Raises OSError, and StoreError where the system does not allow
    it."""
    group, shared = file.stat().st_gid, _shared(file)
    for path in (file, *beside):
        with suppress(FileNotFoundError):
            _close(path, _OTHERS & ~(shared if path.stat().st_gid == group else 0))


def _shared(file: Path) -> int:
    """The part of the mode by which another user, to whom `file` belongs, shares it with a group; 0 if nobody
    does, or if what SQLite makes beside it would be another group's."""
    status = file.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid == os.geteuid() or not mode & _OTHERS or mode & _STRANGERS:
        return 0
    if _group_of_new_files(file) != status.st_gid and os.geteuid() != 0:  # for root, SQLite gives them away
        return 0
    log.warning(
        "%s belongs to user %s, who lets its group have it (mode %04o). It has the server's private key: who"
        " reads it can pass for this server. Unless all of the group may, run  %s  as root",
        file,
        _user(status.st_uid),
        mode,
        _closing(file),
    )
    return mode & _OTHERS


def _group_of_new_files(file: Path) -> int:
    """The group that files get which this process makes beside `file`."""
    directory = file.resolve().parent.stat()
    return directory.st_gid if directory.st_mode & stat.S_ISGID else os.getegid()


def _close(file: Path, others: int) -> None:
    """`others`: what the mode of `file` must not have."""
    status = file.stat()
    before = stat.S_IMODE(status.st_mode)
    if not before & others:
        return
    try:
        file.chmod((before | MADE) & ~others & 0o666)
    except OSError as error:
        if status.st_uid != os.geteuid():
            raise StoreError(
                f"{file} is open to others (mode {before:04o}), and has the server's private key. It belongs"
                f" to user {_user(status.st_uid)}: run  {_closing(file)}  as root, or move the store to a"
                " file system that keeps owners and modes"
            ) from error
    if file.stat().st_mode & others:
        log.warning(
            "%s looks open to others (mode %04o), and its file system keeps no mode that is set. It has"
            " the server's private key: who reads it can pass for this server. Move the store to a file"
            " system that keeps modes, or mount this one so that only user %s can read it",
            file,
            before,
            _user(os.geteuid()),
        )
        return
    log.warning(
        "%s was open to others (mode %04o), and no longer is. It has the server's private key: who has read"
        " it can pass for this server",
        file,
        before,
    )


def _closing(file: Path) -> str:
    """The line that closes `file` to all but the user who runs this server, and root, who may read all."""
    name, user = shlex.quote(str(file)), os.geteuid()
    line = f"chmod {MADE:o} {name}"
    return line if user == 0 else f"chown {_user(user)} {name} && {line}"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
