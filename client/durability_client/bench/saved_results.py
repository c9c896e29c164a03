"""Result files: written whole or not at all, and read with a clear word on what is wrong with one.

A result goes to the state directory unless another place is named, since a measurement that was not kept
cannot be compared later. A file that exists is replaced only when it was named.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from platformdirs import user_state_path

from durability import limits
from durability.bench.result import Result, decode, encode
from durability.errors import FormatError, SetupError, UsageError
from durability.protocol.auth import APPLICATION
from durability_client.target.safety_checks import holds_run


def check_output(path: Path) -> None:
    """Refuse a path where no file can be written, whose file is not a regular one, or which holds a run.

    Raises SetupError, and TargetError if that cannot be determined.
    """
    path = Path(os.path.realpath(path))
    directory = path.parent
    try:
        if path.is_dir():
            raise SetupError(f"{path} is a directory; name a file in it")
        if not directory.is_dir():
            raise SetupError(f"{path}: the directory {directory} does not exist; create it first")
        if not os.access(directory, os.W_OK) or (path.exists() and not path.is_file()):
            raise SetupError(f"{path}: a result cannot be written there; name another file")
        if path.exists() and holds_run(path):
            raise SetupError(f"{path} holds a run of this tool, which is not overwritten; name another file")
    except OSError as error:  # a directory on the way may not be searched
        raise SetupError(
            f"{path}: a result cannot be written there: {error.strerror}; name another file"
        ) from error


def check_default() -> None:
    """Refuse a state directory that cannot keep a result; it is made. Raises SetupError."""
    if not os.access(_default_directory(), os.W_OK):
        raise SetupError(f"{_default_directory()}: no permission to write; name a file with -o")


def _default_directory() -> Path:
    directory = user_state_path(APPLICATION) / "bench"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"cannot create {directory}: {error.strerror}; name a file with -o") from error
    return directory


def default_path(result: Result) -> Path:
    """A file of its own in the state directory. Raises SetupError."""
    directory = _default_directory()
    created = datetime.fromisoformat(result.created)
    stem = f"{created:%Y%m%dT%H%M%SZ}-{result.mode}"
    names = (f"{stem}{suffix}.json" for suffix in ("", *(f"-{number}" for number in range(2, 1000))))
    return next(path for name in names if not (path := directory / name).exists())


def save(result: Result, path: Path) -> None:
    """Write `result` to `path`, durably and at once. Raises SetupError; then what was there still is."""
    _replace(path, encode(result), "the result")


def save_page(page: str, path: Path, *, apart_from: Iterable[Path] = ()) -> None:
    """Write an HTML page in the same way. Raises SetupError, and UsageError where `path` is one of the files
    that it is made of."""
    if any(same_file(path, other) for other in apart_from):
        raise UsageError(f"--html {path} would replace the result that it shows; name another file")
    _replace(path, page.encode(), "the page")


def same_file(path: Path, other: Path) -> bool:
    """Whether both name one file, which need not be there yet."""
    if os.path.realpath(path) == os.path.realpath(other):
        return True
    try:
        return path.samefile(other)
    except OSError:  # one is not there, or may not be looked at
        return False


def _replace(path: Path, data: bytes, what: str) -> None:
    """Put a file with `data` in the place of `path`, of a symbolic link in that of what it means."""
    check_output(path)
    path = Path(os.path.realpath(path))
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
            temporary = file.name
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_mode(path))
        Path(temporary).replace(path)
        _sync_directory(path.parent)
    except BaseException as error:
        with suppress(OSError):
            Path(temporary).unlink()
        if isinstance(error, OSError):
            raise SetupError(f"cannot write {what} {path}: {error.strerror}") from error
        raise


def _mode(path: Path) -> int:
    """The mode that a file at `path` has, or would be made with."""
    with suppress(OSError):
        return stat.S_IMODE(path.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _sync_directory(directory: Path) -> None:
    """Make a name durable, as far as the file system can: some refuse to sync a directory."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(fd)


def load(path: Path) -> Result:
    """The result in `path`. Raises SetupError, FormatError."""
    try:
        with path.open("rb") as file:
            data = file.read(limits.RESULT_BYTES_MAX + 1)
    except OSError as error:
        raise SetupError(f"cannot read the result {path}: {error.strerror}") from error
    try:
        return decode(data)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
