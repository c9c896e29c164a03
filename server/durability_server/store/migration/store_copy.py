"""The copy of an SQLite store that a migration keeps beside the store.

    STORE.copying      while the copy is written, and until the migration is durable
    STORE.format-N     afterwards: the old store with its format N

A server that is killed before the migration is durable leaves the old store and `STORE.copying`, complete or
not. The next server writes the copy again. A server that is killed later leaves a complete copy, which the
next server renames. The copy is refused if the disk has too little room.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from durability.errors import StoreError

_SPARE_BYTES = 16 << 20  # extra room for the migration itself
_MADE = 0o600  # mode of the copy, like the store's, because it has the secrets of the runs


def copying(file: Path) -> Path:
    """The path of an unfinished copy of `file`."""
    return file.with_name(f"{file.name}.copying")


def write(source: sqlite3.Connection, file: Path) -> None:
    """Copies the store that `source` has open to `copying(file)`, durably. Raises StoreError."""
    place = copying(file)
    try:
        remove(file)  # first, because the useless copy of a killed server takes room
        _require_room(file)
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, _MADE))
        with closing(sqlite3.connect(place)) as target:
            source.backup(target)
        for path in (place, place.parent):
            sync(path)
    except OSError as error:
        raise StoreError(f"cannot copy the store {file} to {place}: {error.strerror}") from error


def _require_room(file: Path) -> None:
    """Raises StoreError if the file system has too little room to migrate `file` and keep a copy."""
    needed = _SPARE_BYTES + 2 * sum(one.stat().st_size for one in (file, _log(file)) if one.exists())
    free = shutil.disk_usage(file.parent).free
    if free < needed:
        raise StoreError(
            f"{file}: to migrate this store and keep a copy takes {needed >> 20} MiB, and its file system"
            f" has {free >> 20} free. Nothing was changed: make room, then start the server again"
        )


def format_of(place: Path) -> int | None:
    """The format of the store in the file `place`; None if that is not a complete store."""
    with suppress(sqlite3.Error):
        uri = f"file:{quote(str(place.absolute()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as store:
            row = store.execute("SELECT format FROM meta").fetchone()
            return None if row is None else int(row[0])
    return None


def keep(file: Path, name: Path) -> None:
    """Renames the copy of `file` to `name`, durably. Raises StoreError."""
    place = copying(file)
    try:
        place.rename(name)
        sync(name.parent)
    except OSError as error:
        raise StoreError(f"cannot rename {place} to {name}: {error.strerror}") from error


def remove(file: Path) -> None:
    """Removes an unfinished copy."""
    for path in (copying(file), _log(copying(file)), _journal(copying(file))):
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Makes a file, or the names in a directory, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _log(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")


def _journal(file: Path) -> Path:
    return file.with_name(f"{file.name}-journal")
