"""Block devices that a mounted file system uses beside the one that it is mounted from: an external log, and
the realtime device of XFS.

What a sync makes durable may lie on them alone, so their drives are the target's as well. Refuses to guess:
where the kernel shows that there is one, and not which, that is said.
"""

from __future__ import annotations

import os
from pathlib import Path

from durability_client.system import block_devices
from durability_client.system.mounts import Mount

PROC = Path("/proc")
_OF_XFS = ("logdev=", "rtdev=")
_THREAD = "jbd2/"  # of the journal, by the name of its device; an internal one has its inode behind it


def beside(
    mount: Mount, names: tuple[str, ...], *, sys: Path = block_devices.SYS, proc: Path = PROC
) -> tuple[tuple[str, ...], bool]:
    """The kernel's names of these devices, and whether all are known. `names`: what the file system is
    mounted from."""
    if mount.type == "xfs":
        paths = [one.partition("=")[2] for one in mount.options.split(",") if one.startswith(_OF_XFS)]
        found = [_name_of(Path(path), sys) for path in paths]
    elif mount.type in ("ext3", "ext4") and names:
        found = _journal_of(names[0], sys, proc)
    else:
        found = []
    return tuple(filter(None, found)), None not in found


def _name_of(path: Path, sys: Path) -> str | None:
    try:
        number = path.stat().st_rdev
    except OSError:
        return None
    return block_devices.name_of((os.major(number), os.minor(number)), sys=sys)


def _journal_of(name: str, sys: Path, proc: Path) -> list[str | None]:
    """The external journal of the ext4 on the device `name`; [None] if it has one that is not found."""
    try:
        journals = sorted(entry.name for entry in (proc / "fs" / "jbd2").iterdir())
        task = (sys / "fs" / "ext4" / name / "journal_task").read_text().strip()
    except OSError:
        return []  # a kernel that does not say; an external journal is the rare case
    internal = any(one.startswith(f"{name}-") and one[len(name) + 1 :].isdecimal() for one in journals)
    if internal or not task.isdecimal():  # no thread: no journal
        return []
    try:
        thread = (proc / task / "comm").read_text().strip()
    except OSError:
        return [None]
    if not thread.startswith(_THREAD):  # of another PID namespace
        return [None]
    named = thread.removeprefix(_THREAD)  # cut by older kernels
    known = [named] if named in journals else [one for one in journals if one.startswith(named)]
    is_device = len(known) == 1 and (sys / "class" / "block" / known[0]).exists()
    return [known[0] if is_device else None]
