"""Asks before a file target is written to the root file system, or to another file system than the last time.

An unmounted mount point looks like any directory: what is written there goes to the file system above it. So
this user's state directory remembers which file system each directory of a target was on. Another one, or the
root file system, takes --force or a yes at the terminal. The root file system is never remembered: a mistake
must not become the expected state.

It refuses nothing because of the memory itself: one that cannot be read is empty.
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
    """What is remembered of a file system."""

    type: str
    uuid: str
    source: str

    def __str__(self) -> str:
        return f"{self.type} on {self.source}{f' (UUID {self.uuid})' if self.uuid else ''}"


def check(path: Path, directory: Path, *, force: bool) -> None:
    """Ask about the file system of `directory`, in which the target `path` lies or which it is; remember it.

    Raises TargetError without consent.
    """
    file_system, is_root = discovery.file_system_of(directory), discovery.is_on_root(directory)
    if file_system is None:  # no Linux, or no /proc
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
    """Raises TargetError without a yes."""
    if not confirmed(fitted(f"{found}. Write there? Type yes or no:", sys.stderr, indent=2)):
        raise TargetError(
            f"{found}; mount the right file system, or add --force to write there (a yes at a terminal does, "
            "too)"
        )


def _known(file_system: FileSystem) -> _Known:
    return _Known(file_system.type, file_system.uuid, file_system.source)


def _is_same(last: _Known, now: _Known) -> bool:
    """By UUID if both are known, since a device may have another name after a boot."""
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
    """Remember `places`; of too many, the newest of directories that still exist."""
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
        # No person has named this file, and with sudo the directory may be another user's.
        output_files.replace(file, text, "the list of places", _is_ours, follow_last=False)
    except (SetupError, OSError) as error:
        print(f"warning: the file system of the target is not remembered: {error}", file=sys.stderr)
