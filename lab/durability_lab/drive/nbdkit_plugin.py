r"""The drive model as an NBD server. nbdkit's Python plugin runs this file; the project never imports it.

    nbdkit -U SOCKET python nbdkit_plugin.py media=disk.img model=honest seed=7 sector_bytes=512 \
        [cuts=1] [drive_log=FILE] [events=FILE]

nbdkit embeds the system's Python, which does not see this project's environment. This file therefore uses
only the standard library and those modules of this package that do the same. SIGKILL of nbdkit is the power
cut: data in the drive's memory are gone, and data on media are in the file. `cuts` tells the next nbdkit on
that file how many cuts there were. `events` allows failing requests and a power loss at a read, see
`drive_events`.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import nbdkit  # type: ignore[import-not-found] # made by nbdkit itself

# Appended at the end, so that no file beside this package can replace a standard module.
sys.path.append(str(Path(__file__).parents[2]))

from durability_lab.drive import faults
from durability_lab.drive.drive import Drive
from durability_lab.drive.drive_events import DriveEvents, TimedDriveLog
from durability_lab.drive.drive_log import DriveLog
from durability_lab.drive.media import FileMedia

API_VERSION = 2

_REQUIRED = {"media", "model", "seed", "sector_bytes"}
_OPTIONAL = {"cuts", "drive_log", "events"}

_settings: dict[str, str] = {}
_drives: list[Drive] = []
_events: list[DriveEvents] = []  # at most one


def thread_model() -> int:
    """One request at a time, which is faster; in parallel if a read can hang, so that others do not wait."""
    hangs = isinstance(_drives[0].model, faults.Hanging)
    return int(nbdkit.THREAD_MODEL_PARALLEL if hangs else nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS)


def config(key: str, value: str) -> None:
    """One KEY=VALUE of the command line."""
    if key not in _REQUIRED | _OPTIONAL:
        raise RuntimeError(f"nbdkit_plugin.py knows {', '.join(sorted(_REQUIRED | _OPTIONAL))}, not {key}")
    # Paths are made absolute now, before nbdkit may change its directory.
    _settings[key] = str(Path(value).absolute()) if key in {"media", "drive_log", "events"} else value


def config_complete() -> None:
    """Called when all settings are known: raise RuntimeError for missing ones, and make the shared drive."""
    missing = _REQUIRED - set(_settings)
    if missing:
        raise RuntimeError(f"nbdkit_plugin.py needs {', '.join(sorted(missing))}")
    cuts = int(_settings.get("cuts", "0"))
    model = faults.parse(_settings["model"])
    drive_log = DriveLog(_settings["drive_log"]) if "drive_log" in _settings else None
    if "events" in _settings:
        _events.append(DriveEvents(_settings["events"]))
        drive_log = TimedDriveLog(_settings["drive_log"], _events[0], volatile=model.volatile)
    if drive_log is not None and cuts:
        drive_log.cut()
    _drives.append(
        Drive(
            FileMedia(_settings["media"]),
            model,
            seed=int(_settings["seed"]),
            sector_bytes=int(_settings["sector_bytes"]),
            cuts=cuts,
            drive_log=drive_log,
        )
    )


def after_fork() -> None:
    """Called when threads may be started: start the one that does the drive's timed work."""
    threading.Thread(target=_keep_time, args=(_drives[0],), daemon=True).start()


def open(readonly: bool) -> Drive:
    """The handle of a connection: the drive that all connections share."""
    return _drives[0]


def get_size(drive: Drive) -> int:
    """Size of the drive in bytes."""
    return drive.size_bytes


def block_size(drive: Drive) -> tuple[int, int, int]:
    """Smallest, preferred and largest request."""
    return drive.sector_bytes, max(4096, drive.sector_bytes), 32 << 20


def can_fua(drive: Drive) -> int:
    """The model knows FUA itself."""
    return int(nbdkit.FUA_NATIVE)


def can_multi_conn(drive: Drive) -> bool:
    """All connections share one cache, so a flush on one covers writes on all."""
    return True


def pread(drive: Drive, buffer: bytearray, offset: int, flags: int) -> None:
    """Fill `buffer` from `offset`."""
    _happen(read=True)
    buffer[:] = drive.read(offset, len(buffer))


def pwrite(drive: Drive, buffer: bytes, offset: int, flags: int) -> None:
    """Accept a write."""
    _happen(read=False)
    drive.write(offset, buffer, fua=bool(flags & nbdkit.FLAG_FUA))


def flush(drive: Drive, flags: int) -> None:
    """Flush, as far as the drive's model honours it."""
    _happen(read=False)
    drive.flush()


def _happen(*, read: bool) -> None:
    for events in _events:
        events.request(read=read)


def _keep_time(drive: Drive) -> None:
    while True:
        drive.wait_until_due()
        drive.tick()
