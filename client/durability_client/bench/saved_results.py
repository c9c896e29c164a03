"""Result files: written completely or not at all, and read with clear errors.

A result is saved in the state directory unless the user names a file, since an unsaved measurement cannot be
compared later. A result never replaces a file. A page may replace an earlier page.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from platformdirs import user_state_path

from durability import limits
from durability.bench.result import Result, decode, encode
from durability.errors import FormatError, SetupError, UsageError
from durability.protocol.auth import APPLICATION
from durability_client.system import output_files

_RESULT, _PAGE = "a result", "a page"
# The start of every page of this tool, as in its template.
_PAGE_HEAD = (
    b'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    b'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    b"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)


def check_result(path: Path) -> None:
    """Refuse a path at which no new result can be made. Raises SetupError."""
    output_files.check_new(path, _RESULT)


def check_page(path: Path) -> None:
    """Refuse a path at which a page can be neither made nor replaced. Raises SetupError."""
    output_files.check_replaceable(path, _PAGE, _is_page)


def check_default() -> None:
    """Make the state directory if needed, and refuse one that is not writable. Raises SetupError."""
    if not os.access(_default_directory(), os.W_OK):
        raise SetupError(f"{_default_directory()}: no permission to write; name a file with -o")


def _default_directory() -> Path:
    directory = user_state_path(APPLICATION) / "bench"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"cannot create {directory}: {error.strerror}; name a file with -o") from error
    return directory


def save_by_default(result: Result) -> Path:
    """Write `result` to a new file in the state directory, and return its path. Raises SetupError."""
    while True:
        path = default_path(result)
        with suppress(output_files.TakenError):  # another measurement ended at the same moment
            save(result, path)
            return path


def default_path(result: Result) -> Path:
    """A free name in the state directory. Raises SetupError."""
    directory = _default_directory()
    created = datetime.fromisoformat(result.created)
    stem = f"{created:%Y%m%dT%H%M%SZ}-{result.mode}"
    names = (f"{stem}{suffix}.json" for suffix in ("", *(f"-{number}" for number in range(2, 1000))))
    free = next((path for name in names if not (path := directory / name).exists()), None)
    if free is None:
        raise SetupError(f"{directory} has too many results of this second; name a file with -o")
    return free


def save(result: Result, path: Path) -> None:
    """Write `result` to a new file `path`, durably and atomically. Raises SetupError; an existing file is
    then unchanged."""
    output_files.create(path, encode(result), _RESULT)


def save_file(data: bytes, path: Path) -> None:
    """Write the exact bytes of a result's file. Raises SetupError; an existing file is then unchanged."""
    output_files.create(path, data, _RESULT)


def save_page(page: str, path: Path, *, apart_from: Iterable[Path] = ()) -> None:
    """Write an HTML page in the same way, or replace an earlier page. Raises SetupError, and UsageError if
    `path` is in `apart_from`, the files that the page shows."""
    if any(same_file(path, other) for other in apart_from):
        raise UsageError(f"--html {path} would replace the result that it shows; name another file")
    output_files.replace(path, page.encode(), _PAGE, _is_page)


def page_file(page: str, path: Path) -> output_files.NewFile:
    """An HTML page to be written together with another file."""
    return output_files.NewFile(path=path, data=page.encode(), what=_PAGE, is_ours=_is_page)


def _is_page(head: bytes) -> bool:
    return head.startswith(_PAGE_HEAD)


def same_file(path: Path, other: Path) -> bool:
    """Whether both paths name the same file, which need not exist yet."""
    if os.path.realpath(path) == os.path.realpath(other):
        return True
    try:
        return path.samefile(other)
    except OSError:  # one does not exist, or cannot be examined
        return False


def load(path: Path) -> Result:
    """The result in `path`. Raises SetupError, FormatError."""
    try:
        with path.open("rb") as file:
            data = file.read(limits.RESULT_BYTES_MAX + 1)
    except OSError as error:
        raise SetupError(
            f"cannot read the result {path}: {error.strerror}; name a result file of `durability bench`"
        ) from error
    try:
        return decode(data)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
