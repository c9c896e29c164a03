"""The drive model as an NBD server: run by nbdkit's Python plugin, never imported by this project.

    nbdkit -U SOCKET python nbdkit_plugin.py media=disk.img behaviour=honest seed=7 sector_bytes=512

nbdkit embeds the system's Python, which knows nothing of this project's environment; so this file and `drive`
use the standard library only, and `drive` is found beside this file. SIGKILL of nbdkit is the power cut: what
the model held in its cache is gone, and what was on media is in the file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import nbdkit  # type: ignore[import-not-found] # made by nbdkit itself

if TYPE_CHECKING:
    from durability_lab.drive import BEHAVIOURS, Drive, FileMedia
else:
    sys.path.insert(0, str(Path(__file__).parent))
    from drive import BEHAVIOURS, Drive, FileMedia

API_VERSION = 2

_settings: dict[str, str] = {}
_drives: list[Drive] = []


def config(key: str, value: str) -> None:
    """One KEY=VALUE of the command line."""
    _settings[key] = value


def config_complete() -> None:
    """All settings are known: say early what is missing, and make the drive that all connections share."""
    missing = {"media", "behaviour", "seed", "sector_bytes"} - set(_settings)
    if missing:
        raise RuntimeError(f"nbdkit_plugin.py needs {', '.join(sorted(missing))}")
    _drives.append(
        Drive(
            FileMedia(_settings["media"]),
            BEHAVIOURS[_settings["behaviour"]],
            seed=int(_settings["seed"]),
            sector_bytes=int(_settings["sector_bytes"]),
        )
    )


def open(readonly: bool) -> Drive:
    """The handle of a connection: the one drive."""
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
    buffer[:] = drive.read(offset, len(buffer))


def pwrite(drive: Drive, buffer: bytes, offset: int, flags: int) -> None:
    """Accept a write."""
    drive.write(offset, buffer, fua=bool(flags & nbdkit.FLAG_FUA))


def flush(drive: Drive, flags: int) -> None:
    """Flush, as far as the drive is honest."""
    drive.flush()
