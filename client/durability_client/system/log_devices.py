"""Further block devices of a mounted file system: an external log, and the realtime device of XFS.

Synced data may be only on such a device, so its drives are drives of the target, too. If the kernel shows
that there is such a device, but not which, the result says so.
"""

from __future__ import annotations

import os
from pathlib import Path

from durability_client.system import block_devices
from durability_client.system.mounts import Mount

PROC = Path("/proc")
_OF_XFS = ("logdev=", "rtdev=")
_THREAD = "jbd2/"  # prefix of a journal thread; then follow its device and, if internal, its inode


def beside(
    mount: Mount, names: tuple[str, ...], *, sys: Path = block_devices.SYS, proc: Path = PROC
) -> tuple[tuple[str, ...], bool]:
    """The kernel's names of these devices, and whether all are known. `names`: the devices that the file
    system is mounted from."""
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
        return []  # the kernel does not show it; external journals are rare
    internal = any(one.startswith(f"{name}-") and one[len(name) + 1 :].isdecimal() for one in journals)
    if internal or not task.isdecimal():  # without a thread there is no journal
        return []
    try:
        thread = (proc / task / "comm").read_text().strip()
    except OSError:
        return [None]
    if not thread.startswith(_THREAD):  # the number belongs to another PID namespace
        return [None]
    named = thread.removeprefix(_THREAD)  # older kernels truncate the name
    known = [named] if named in journals else [one for one in journals if one.startswith(named)]
    is_device = len(known) == 1 and (sys / "class" / "block" / known[0]).exists()
    return [known[0] if is_device else None]
