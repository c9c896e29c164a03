"""Output files of commands. They are written completely or not at all, and never replace other data.

`create` makes a new file, and replaces only an empty one. `replace` also replaces an earlier file of the same
kind, which `is_ours` recognises; `replace_together` does so for several files. These three write to a
temporary file beside the new one, and make file and name durable. `to_append` opens a log. All functions
refuse symbolic links that others made (see `path_walk`).
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

from durability.errors import SetupError
from durability_client.system.path_walk import OpenName, place_of

IsOurs: TypeAlias = Callable[[bytes], bool]  # gets the first `HEAD_BYTES` of a file

HEAD_BYTES = 1024
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class TakenError(SetupError):
    """Another file has the name."""


def check_new(path: Path, what: str) -> None:
    """Refuse a path at which `create` would fail. Raises SetupError."""
    with _place(path, what, follow_last=False) as place:
        _check(place, path, what, None)
        _try(place, path, what)


def check_replaceable(path: Path, what: str, is_ours: IsOurs) -> None:
    """Refuse a path at which `replace` would fail. Raises SetupError."""
    with _place(path, what, follow_last=True) as place:
        _check(place, path, what, is_ours)
        _try(place, path, what)


def create(path: Path, data: bytes, what: str) -> None:
    """Make the file `path`. Raises SetupError; an existing file is then unchanged."""
    with _place(path, what, follow_last=False) as place:
        _write(place, path, data, what, None)


def replace(path: Path, data: bytes, what: str, is_ours: IsOurs, *, follow_last: bool = True) -> None:
    """Make the file `path`, or replace a file of the same kind and keep its mode.

    If `path` is a symbolic link, its target is replaced and the link stays; without `follow_last`, a link is
    refused. Raises SetupError; an existing file is then unchanged.
    """
    with _place(path, what, follow_last=follow_last) as place:
        _write(place, path, data, what, is_ours)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file for `replace_together`. The fields are parameters of `replace`."""

    path: Path
    data: bytes
    what: str
    is_ours: IsOurs


def replace_together(files: Iterable[NewFile]) -> None:
    """Like `replace`, for files that belong together. No file is replaced before all are written, so that a
    full disk changes none of them. Raises SetupError."""
    with ExitStack() as stack:
        written = []
        for one in files:
            place = stack.enter_context(_place(one.path, one.what, follow_last=True))
            replaced = _check(place, one.path, one.what, one.is_ours)
            with _explained(one.path, one.what):
                temporary = stack.enter_context(_written(place, one.data, replaced))
            written.append((one, place, temporary, replaced))
        for one, place, temporary, replaced in written:
            with _explained(one.path, one.what):
                _put(place, temporary, replaced)


def to_append(path: Path, what: str) -> IO[bytes]:
    """Open the file `path` to read and to append to it; make it if it does not exist. Raises SetupError."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with _place(path, what, follow_last=True) as place:
        try:
            fd = os.open(place.name, flags, 0o666, dir_fd=place.fd)
        except OSError as error:
            raise _cannot(path, what, error) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise SetupError(
                f"{path}: {what} cannot be written there: it is not a regular file; name another file"
            )
        return open(fd, "a+b")  # noqa: PTH123 - a descriptor


@contextmanager
def _place(path: Path, what: str, *, follow_last: bool) -> Iterator[OpenName]:
    """Like `path_walk.place_of`, but raises SetupError with a sentence for people."""
    try:
        with place_of(path, follow_last=follow_last) as place:
            yield place
    except (FileNotFoundError, NotADirectoryError) as error:
        parent = Path(os.path.realpath(path)).parent if follow_last else path.parent
        raise SetupError(
            f"{path}: {what} cannot be written there: the directory {parent} does not exist; create it first"
        ) from error
    except OSError as error:  # for example, no permission to search a directory on the way
        raise _cannot(path, what, error) from error


def _check(place: OpenName, path: Path, what: str, is_ours: IsOurs | None) -> os.stat_result | None:
    """The status of the file to be replaced, None if there is none. Raises SetupError, OSError."""
    try:
        found = os.stat(place.name, dir_fd=place.fd, follow_symlinks=False)
    except FileNotFoundError:
        found = None
    named = path if place.path == path else f"{path} ({place.path})"
    if found is not None:
        if stat.S_ISDIR(found.st_mode):
            raise SetupError(f"{named} is a directory; name a file in it")
        if stat.S_ISLNK(found.st_mode):
            raise SetupError(
                f"{named} is a symbolic link, expected a name that is free; name the file that you mean"
            )
        if not stat.S_ISREG(found.st_mode):
            raise SetupError(f"{named}: {what} cannot be written there; name another file")
        if found.st_size and not (is_ours is not None and is_ours(_head(place))):
            other = "" if is_ours is None else f" and is not {what} of this tool"
            raise TakenError(
                f"{named} exists{other}, so it is not overwritten; name another file, or remove it if you do "
                "not need it"
            )
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=place.fd):
        raise SetupError(f"{named}: {what} cannot be written there: no permission; name another file")
    return found


def _try(place: OpenName, path: Path, what: str) -> None:
    """Raises SetupError if no file can be made beside `path`. In /proc, permissions do not show that."""
    try:
        temporary, fd = _temporary(place)
    except OSError as error:
        raise _cannot(path, what, error) from error
    os.close(fd)
    os.unlink(temporary, dir_fd=place.fd)


def _temporary(place: OpenName) -> tuple[str, int]:
    """Name and descriptor of a new temporary file in the directory of `place`."""
    name = f".{place.name[:64]}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return name, os.open(name, flags, 0o666, dir_fd=place.fd)


def _cannot(path: Path, what: str, error: OSError) -> SetupError:
    return SetupError(f"{path}: {what} cannot be written there: {error.strerror}; name another file")


def _head(place: OpenName) -> bytes:
    fd = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place.fd)
    try:
        return os.read(fd, HEAD_BYTES)
    finally:
        os.close(fd)


def _write(place: OpenName, path: Path, data: bytes, what: str, is_ours: IsOurs | None) -> None:
    replaced = _check(place, path, what, is_ours)
    with _explained(path, what), _written(place, data, replaced) as temporary:
        _put(place, temporary, replaced)


@contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    """Raises SetupError instead of OSError."""
    try:
        yield
    except FileExistsError as error:
        raise TakenError(
            f"{path} was made by another program meanwhile, so it is not overwritten; name another file"
        ) from error
    except OSError as error:
        raise SetupError(f"cannot write {what} {path}: {error.strerror}") from error


@contextmanager
def _written(place: OpenName, data: bytes, replaced: os.stat_result | None) -> Iterator[str]:
    """The name of a temporary file with `data`. The file is durable, and removed after the block."""
    temporary, fd = _temporary(place)
    try:
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
            file.flush()
            if replaced is not None:
                os.fchmod(fd, stat.S_IMODE(replaced.st_mode))
            os.fsync(fd)
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=place.fd)


def _put(place: OpenName, temporary: str, replaced: os.stat_result | None) -> None:
    """Rename the temporary file to its final name, durably. Raises FileExistsError, OSError."""
    if replaced is None:
        give_name(temporary, place.name, dir_fd=place.fd)
    else:
        os.rename(temporary, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
    sync_directory(".", dir_fd=place.fd)


def give_name(temporary: str, name: str, *, dir_fd: int | None = None) -> None:
    """Rename a temporary file to `name` in the same directory, if that name is free. Raises FileExistsError,
    OSError."""
    try:
        os.link(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
    else:
        return
    # On a file system without hard links, such as vfat: reserve the name with an empty file, then replace it.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(name, flags, 0o600, dir_fd=dir_fd))
    os.rename(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)


def sync_directory(path: Path | str, *, dir_fd: int | None = None) -> None:
    """Make the names in a directory durable, unless the file system cannot sync directories. Raises
    OSError."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(directory)
