"""What a drive behind nbdkit kept of its word: asked of its media and its log, without power, unseen.

After the SIGKILL everything that the drive will ever answer is decided by its media, model, seed and the
number of its cuts. So the same model, here in this process, tells what a host would read, before any host
reads, replays a log or mounts; and it reports a read that never returns without waiting for it.
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
    """How many flushes returned and sectors had a promise, and those promises that are broken."""

    flushes: int
    promised: int
    broken: list[Broken]


def check_drive(
    *, media: Path, drive_log: Path, drive: str, seed: int, sector_bytes: int, cuts: int
) -> DriveCheck:
    """What is left after `cuts` cuts. To be called after the drive's process is gone and before it is
    started again; the other arguments are those that it had."""
    promises = DriveLog(str(drive_log)).promises()
    with closing(FileMedia(str(media))) as file:
        left = Drive(file, faults.parse(drive), seed=seed, sector_bytes=sector_bytes, cuts=cuts)
        return DriveCheck(
            flushes=promises.flushes,
            promised=promises.sectors,
            broken=promises.broken(left.peek, left.size_bytes),
        )
