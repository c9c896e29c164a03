"""Checks which promises a drive behind nbdkit kept, from its media and its log, while its power is off.

After the SIGKILL, the drive's media, model, seed and number of cuts determine all its answers. The same model
in this process therefore shows what a host would read, before any host reads, replays a log or mounts. It
also reports a read that never returns without waiting for it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from durability_lab.drive import faults
from durability_lab.drive.drive import Drive
from durability_lab.drive.drive_log import Broken, DriveLog
from durability_lab.drive.media import FileMedia


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveCheck:
    """The promises of a drive and the broken ones among them."""

    flushes: int  # flushes that returned
    promised: int  # sectors with a promise
    broken: list[Broken]


def check_drive(
    *, media: Path, drive_log: Path, drive: str, seed: int, sector_bytes: int, cuts: int
) -> DriveCheck:
    """Check the drive after `cuts` cuts. Call this after the drive's process has ended and before the drive
    starts again. The other arguments are those of the drive's process."""
    promises = DriveLog(str(drive_log)).promises()
    with closing(FileMedia(str(media))) as file:
        left = Drive(file, faults.parse(drive), seed=seed, sector_bytes=sector_bytes, cuts=cuts)
        return DriveCheck(
            flushes=promises.flushes,
            promised=promises.sectors,
            broken=promises.broken(left.peek, left.size_bytes),
        )
