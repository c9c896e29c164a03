"""What about a set-up can make a verdict mean less than it seems: warnings, each with a code and a sentence.

A pass on a stack that never flushes, or that is not the drive one thinks of, is the worst answer a tester can
give. Nothing here stops a run or changes a verdict; the codes are listed in docs/reference/cli.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from durability.formats.facts import Drive, FileSystem, TargetWarning

_JOURNAL_LESS = frozenset({"ext2", "vfat", "exfat", "msdos", "minix", "sysv", "ufs"})
NO_JOURNAL = "no-journal"  # our own word among the options of an ext4 made without a journal
_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_NETWORK = re.compile(r"nfs4?|cifs|smb3|9p|virtiofs|ceph|lustre|afs|gfs2|ocfs2|vboxsf|vmhgfs")
_NETWORK_DRIVE = re.compile(r"(nbd|rbd|drbd)\d+")
_MEMORY_DRIVE = re.compile(r"(zram|ram|brd|pmem)\d+")
_RAID_CONTROLLER = re.compile(
    r"perc|megaraid|logical volume|smart array|servera?id|avago|adaptec|areca|hptiop", re.I
)
# Every spelling of "do not replay the log"; btrfs joins its rescue options by colons.
_NO_REPLAY = frozenset(
    {"norecovery", "noload", "nologreplay", "disable_roll_forward", "nochanges"}
    | {"rescue=nologreplay", "rescue=all"}
)
_NO_BARRIER = frozenset({"nobarrier", "barrier=0", "barrier=none", "fsync_mode=nobarrier"})


def cautions(
    *, file_system: FileSystem | None, layers: tuple[str, ...], drives: tuple[Drive, ...], virtualisation: str
) -> tuple[TargetWarning, ...]:
    """All warnings that these facts and this process's environment give rise to."""
    found: list[tuple[str, str]] = []
    if file_system is not None:
        found.extend(_of_file_system(file_system))
    found.extend(_of_layers(layers))
    for drive in drives:
        found.extend(_of_drive(drive))
    if not drives and (file_system is None or file_system.type not in _MEMORY):
        found.append(
            ("drives-unknown", "no drive was found below the target: neither a cut nor a drive can be shown")
        )
    if virtualisation != "none":
        found.append(
            (
                "virtual-machine",
                f"this is a virtual machine ({virtualisation}): what its disk says of caches and flushes "
                "proves nothing about the host, and killing it cuts no drive's power",
            )
        )
    if _eatmydata_loaded():
        found.append(
            ("eatmydata", "libeatmydata is loaded: it turns every sync of this process into nothing")
        )
    return tuple(TargetWarning(code=code, text=text) for code, text in found)


def lacks_journal(file_system: FileSystem) -> bool:
    """Whether the file system has neither a journal nor copy-on-write to keep its structures whole."""
    return file_system.type in _JOURNAL_LESS or NO_JOURNAL in file_system.options.split(",")


def skips_replay(file_system: FileSystem) -> str:
    """The mount option by which the file system left its log unreplayed, "" where there is none.

    What was synced may be in the log alone, so on such a mount an honest drive seems to have lost it.
    """
    for option in file_system.options.split(","):
        name, _, value = option.partition("=")
        spelled = {f"rescue={one}" for one in value.split(":")} if name == "rescue" else {option}
        if spelled & _NO_REPLAY:
            return option
    return ""


def _of_file_system(file_system: FileSystem) -> Iterator[tuple[str, str]]:
    kind, options = file_system.type, frozenset(file_system.options.split(","))
    if kind in _MEMORY:
        yield "memory-file-system", f"{kind} is memory: nothing on it survives a power cut"
    elif _NETWORK.fullmatch(kind):
        yield (
            "network-file-system",
            f"{kind} passes syncs to another machine, or the host: the verdict is on all of it",
        )
    elif kind.startswith("fuse"):
        yield "fuse-file-system", f"{kind} is a program: the verdict is on what it makes of a sync"
    if lacks_journal(file_system):
        yield (
            "no-journal",
            f"{kind} without a journal: a cut can damage its structures whatever the drive does",
        )
    yield from _of_mount_options(options)
    if option := skips_replay(file_system):
        yield (
            "no-recovery",
            f"mounted with {option}: what was synced may be in the log alone; `verify` refuses such a mount",
        )
    if kind == "zfs" and "sync=disabled" in options:
        yield "zfs-sync-disabled", "the ZFS property sync=disabled turns every sync into nothing"
    if kind == "overlay":
        if "volatile" in options:
            yield "overlay-volatile", "overlay mounted volatile: every sync on it is turned into nothing"
        yield "overlay", "an overlay file system: the one below it, and its drives, are not shown"


def _of_mount_options(options: frozenset[str]) -> Iterator[tuple[str, str]]:
    if "data=writeback" in options:
        yield (
            "data-writeback",
            "mounted data=writeback: a file that grew may show old data after a cut, the drive being honest",
        )
    if options & _NO_BARRIER:
        yield (
            "nobarrier",
            f"mounted with {min(options & _NO_BARRIER)}: the file system sends the drive no flush",
        )
    if "sync" in options or "dirsync" in options:
        yield (
            "mounted-sync",
            "mounted sync or dirsync: writes are synced even without asking, which hides missing syncs",
        )


def _of_layers(layers: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    stacked = [layer for layer in layers if re.search(r"\((md|dm|bcache)", layer)]
    if stacked:
        yield (
            "layers",
            f"the target lies on {', '.join(stacked)}: the verdict is on the whole stack, and of a "
            "mirror one copy is read",
        )
    cached = [layer for layer in layers if "(bcache)" in layer]
    if cached:
        yield "cache-layer", f"{', '.join(cached)} may answer from a cache in front of the drives"


def _of_drive(drive: Drive) -> Iterator[tuple[str, str]]:
    name = f"{drive.name} ({drive.model})" if drive.model else drive.name
    if drive.write_cache == "write through":
        yield (
            "write-through",
            f"{name} claims no volatile cache (write through): the kernel sends it no flush, so this "
            "tests its power-loss protection, not its flush",
        )
    if drive.name.startswith("loop"):
        yield "loop-device", f"{name} is a loop device: what lies below its backing file is not shown"
    if _NETWORK_DRIVE.fullmatch(drive.name):
        yield "network-drive", f"{name} is a network block device: the verdict is on the far end as well"
    if _MEMORY_DRIVE.fullmatch(drive.name):
        yield "memory-drive", f"{name} is memory: a power cut empties it unless its module is protected"
    if _RAID_CONTROLLER.search(drive.model):
        yield (
            "raid-controller",
            f"{name} is a RAID controller's volume: its battery, cache and drives are judged as one",
        )
    if drive.emulated:
        yield "emulated-drive", f"{name} is emulated: its counters and caches are a program's"
    elif drive.unsafe_shutdowns is None and not drive.name.startswith("loop"):
        yield (
            "no-shutdown-counter",
            f"{name} gives no unsafe-shutdown counter (is smartmontools installed, are you root?): a "
            "power cut must be attested",
        )


def _eatmydata_loaded() -> bool:
    if "eatmydata" in os.environ.get("LD_PRELOAD", ""):
        return True
    try:
        return "libeatmydata" in Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return False
