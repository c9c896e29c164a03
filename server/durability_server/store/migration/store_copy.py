"""The copy of an SQLite store that a migration keeps beside it.

    STORE.copying      while it is written, and until the migration is durable
    STORE.format-N     afterwards: the store as it was, with its format N

A server that is killed before the migration is durable leaves `STORE.copying`, whole or not, and the store
as it was: the next one writes the copy again. One that is killed after it leaves a whole copy, which the next
one gives its name. Refuses a disk without the room.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from durability.errors import StoreError

_SPARE_BYTES = 16 << 20  # for the migration itself
_MADE = 0o600  # as the store: it holds the secrets of the runs


def copying(file: Path) -> Path:
    """The copy of `file` that has no name of its own yet."""
    return file.with_name(f"{file.name}.copying")


def write(source: sqlite3.Connection, file: Path) -> None:
    """Copy the store that `source` has open to `copying(file)`, durably. Raises StoreError."""
    place = copying(file)
    try:
        remove(file)  # first: what a killed server left is no room that is taken, and of no use
        _require_room(file)
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, _MADE))
        with closing(sqlite3.connect(place)) as target:
            source.backup(target)
        for path in (place, place.parent):
            sync(path)
    except OSError as error:
        raise StoreError(f"cannot copy the store {file} to {place}: {error.strerror}") from error


def _require_room(file: Path) -> None:
    """Raises StoreError where its file system has no room to migrate `file` and keep a copy."""
    needed = _SPARE_BYTES + 2 * sum(one.stat().st_size for one in (file, _log(file)) if one.exists())
    free = shutil.disk_usage(file.parent).free
    if free < needed:
        raise StoreError(
            f"{file}: to migrate this store and keep a copy takes {needed >> 20} MiB, and its file system"
            f" has {free >> 20} free. Nothing was changed: make room, then start the server again"
        )


def format_of(place: Path) -> int | None:
    """The format of the store in the file `place`; None where it is not a whole store."""
    with suppress(sqlite3.Error):
        uri = f"file:{quote(str(place.absolute()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as store:
            row = store.execute("SELECT format FROM meta").fetchone()
            return None if row is None else int(row[0])
    return None


def keep(file: Path, name: Path) -> None:
    """Give the copy of `file` its name, durably. Raises StoreError."""
    place = copying(file)
    try:
        place.rename(name)
        sync(name.parent)
    except OSError as error:
        raise StoreError(f"cannot rename {place} to {name}: {error.strerror}") from error


def remove(file: Path) -> None:
    """Remove what is left of a copy that was not finished."""
    for path in (copying(file), _log(copying(file)), _journal(copying(file))):
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _log(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")


def _journal(file: Path) -> Path:
    return file.with_name(f"{file.name}-journal")
