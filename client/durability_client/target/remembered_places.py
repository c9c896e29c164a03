"""Asks before a file target is written to the root file system, or to another file system than last time.

An unmounted mount point looks like any directory: files in it go to the file system above. So a file in this
user's state directory stores the file system of each directory that held a target. To use another one, or the
root file system, the user must give --force or answer yes at the terminal. The root file system is never
stored, so that a mistake does not become the expected state.

If the stored list cannot be read, it counts as empty and causes no refusal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_state_path

from durability.errors import SetupError, TargetError
from durability.formats.facts import FileSystem
from durability.protocol.auth import APPLICATION
from durability_client.system import output_files
from durability_client.system.terminal import confirmed, fitted
from durability_client.target import discovery

_SCHEMA = "durability.places/1"
_PLACES_MAX = 1000
_MOUNTED = "a file system that is mounted for the test"
_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class _Known:
    """Stored description of a file system."""

    type: str
    uuid: str
    source: str

    def __str__(self) -> str:
        return f"{self.type} on {self.source}{f' (UUID {self.uuid})' if self.uuid else ''}"


def check(path: Path, directory: Path, *, force: bool) -> None:
    """Check the file system of `directory`, which holds the target `path` or is the target; ask if needed.
    Then store it, unless it is the root file system. Raises TargetError without consent.
    """
    file_system, is_root = discovery.file_system_of(directory), discovery.is_on_root(directory)
    if file_system is None:  # not Linux, or no /proc
        if is_root and not force:
            _ask(f"{path} is on the root file system, expected {_MOUNTED}")
        return
    places = _read()
    known, last = _known(file_system), places.get(str(directory))
    where = f"{known}, mounted at {file_system.mount_point}"
    if is_root and not force:
        expected = _MOUNTED if last is None else f"{last} as last time"
        _ask(f"{path} is on the root file system ({where}), expected {expected}")
    elif last is not None and not _is_same(last, known) and not force:
        _ask(f"{path} is on another file system than last time ({where}), expected {last}")
    if not is_root and last != known:
        _write({**places, str(directory): known})


def _ask(found: str) -> None:
    """Raises TargetError unless the user answers yes."""
    if not confirmed(fitted(f"{found}. Write there? Type yes or no:", sys.stderr, indent=2)):
        raise TargetError(
            f"{found}; mount the right file system, or add --force to write there (a yes at a terminal does, "
            "too)"
        )


def _known(file_system: FileSystem) -> _Known:
    return _Known(file_system.type, file_system.uuid, file_system.source)


def _is_same(last: _Known, now: _Known) -> bool:
    """Compare UUIDs if both are known, since a device may have another name after a boot."""
    if last.uuid and now.uuid:
        return last.uuid == now.uuid
    return (last.type, last.source) == (now.type, now.source)


def _is_ours(head: bytes) -> bool:
    return _SCHEMA.encode() in head


def _file() -> Path:
    return user_state_path(APPLICATION) / "places.json"


def _read() -> dict[str, _Known]:
    try:
        with _file().open("rb") as file:
            document = json.loads(file.read(_BYTES_MAX))
        return {
            str(directory): _Known(str(one["type"]), str(one["uuid"]), str(one["source"]))
            for directory, one in document["places"].items()
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def _write(places: Mapping[str, _Known]) -> None:
    """Store `places`. If there are too many, store the newest whose directories still exist."""
    kept = list(places.items())
    if len(kept) > _PLACES_MAX:
        kept = [(directory, one) for directory, one in kept if Path(directory).is_dir()][-_PLACES_MAX:]
    document = {
        "schema": _SCHEMA,
        "places": {
            directory: {"type": one.type, "uuid": one.uuid, "source": one.source} for directory, one in kept
        },
    }
    file = _file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(document, indent=1).encode()
        # The user did not name this file, and with sudo its directory may belong to another user.
        output_files.replace(file, text, "the list of places", _is_ours, follow_last=False)
    except (SetupError, OSError) as error:
        print(f"warning: the file system of the target is not remembered: {error}", file=sys.stderr)
