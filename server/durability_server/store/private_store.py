"""Access to the files of an SQLite store, which has the server's private key and the secrets of the runs.

No other user may read these files. Files that others may read, such as a restored backup, are closed to them,
with a warning in the log. A store that all users may read and that this server cannot close is refused. A
store that another user shares with a group is opened with a warning, because only that may give this server
access. So is one on a file system without modes, where something else decides who may read.
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

MADE = 0o600  # mode of a new file
_OTHERS = 0o077  # permissions of all other users
_STRANGERS = 0o007  # those of users outside the file's group

log = logging.getLogger(__name__)


def make_private(file: Path, *, beside: Iterable[Path]) -> None:
    """Closes the store `file` and the existing files `beside` it to other users. Uses paths, because closing
    a descriptor of a file releases SQLite's locks on it. Raises OSError, and StoreError if the system forbids
    it."""
    group, shared = file.stat().st_gid, _shared(file)
    for path in (file, *beside):
        with suppress(FileNotFoundError):
            _close(path, _OTHERS & ~(shared if path.stat().st_gid == group else 0))


def _shared(file: Path) -> int:
    """The group permissions of `file` if it belongs to another user, who shares it with a group. 0 if the
    file is not shared, or if files that SQLite creates beside it would belong to another group."""
    status = file.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid == os.geteuid() or not mode & _OTHERS or mode & _STRANGERS:
        return 0
    if _group_of_new_files(file) != status.st_gid and os.geteuid() != 0:  # for root, SQLite sets their group
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
    """The group of files that this process creates beside `file`."""
    directory = file.resolve().parent.stat()
    return directory.st_gid if directory.st_mode & stat.S_ISGID else os.getegid()


def _close(file: Path, others: int) -> None:
    """Removes the permissions `others` from `file`. Raises StoreError if the system forbids it."""
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
    """The shell line that closes `file` to all users but the server's own, and root, who may read
    everything."""
    name, user = shlex.quote(str(file)), os.geteuid()
    line = f"chmod {MADE:o} {name}"
    return line if user == 0 else f"chown {_user(user)} {name} && {line}"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
