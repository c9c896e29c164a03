"""Warnings about properties of a target that weaken a verdict. Each has a code and a sentence.

The worst error of a tester is a pass on a stack that never flushes, or on another drive than the operator
means. No warning stops a run or changes a verdict. docs/reference/cli.md lists the codes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from durability.evidence.identity import LOG_UNKNOWN, emptied_at_boot
from durability.formats.facts import Drive, FileSystem, Host, TargetWarning

# Includes file systems whose Linux driver writes no journal; fuseblk stands for NTFS and exFAT. Types that
# are not listed may have a journal.
JOURNAL_LESS = frozenset(
    {"ext2", "vfat", "exfat", "msdos", "ntfs", "ntfs3", "fuseblk", "hfs", "hfsplus", "udf"}
    | {"adfs", "affs", "bfs", "hpfs", "minix", "omfs", "sysv", "ufs"}
)
NO_JOURNAL = "no-journal"  # this tool adds it to the options of an ext4 without a journal
_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_NETWORK = re.compile(r"nfs4?|cifs|smb3|9p|virtiofs|ceph|lustre|afs|gfs2|ocfs2|vboxsf|vmhgfs")
_NETWORK_DRIVE = re.compile(r"(nbd|rbd|drbd)\d+")
_MEMORY_DRIVE = re.compile(r"(zram|ram|brd|pmem)\d+")
_RAID_CONTROLLER = re.compile(
    r"perc|megaraid|logical volume|smart array|servera?id|avago|adaptec|areca|hptiop", re.I
)
_VIRTUAL_DISK = re.compile(r"virtual.?disk", re.I)  # model name that Dell and others give to a volume
# All mount options that disable the replay of the log. btrfs joins its rescue options by colons.
_NO_REPLAY = frozenset(
    {"norecovery", "noload", "nologreplay", "disable_roll_forward", "nochanges"}
    | {"rescue=nologreplay", "rescue=all"}
)
# File systems that do not replay their log if they are read-only. A ZFS pool that was imported read-only
# replays nothing. The kernel mounts JFS read-only without a replay; only fsck.jfs replays the log.
_NO_REPLAY_READ_ONLY = frozenset({"zfs", "jfs"})
_NO_BARRIER = frozenset({"nobarrier", "barrier=0", "barrier=none", "fsync_mode=nobarrier"})


def target_warnings(
    *,
    path: str,
    file_system: FileSystem | None,
    layers: tuple[str, ...],
    drives: tuple[Drive, ...],
    virtualisation: str,
    is_whole: bool = True,
) -> tuple[TargetWarning, ...]:
    """All warnings that apply to these facts and to this process's environment. `is_whole`: whether all
    devices of the file system are known."""
    found: list[tuple[str, str]] = []
    if file_system is not None:
        found.extend(_of_file_system(file_system))
    if directory := emptied_at_boot(path, file_system):
        found.append(
            (
                "emptied-at-boot",
                f"many systems empty {directory} when they start: after a cut the target may be gone although"
                " the drive kept it, and no verdict is possible then; name a target elsewhere",
            )
        )
    found.extend(_of_layers(layers))
    for drive in drives:
        found.extend(_of_drive(drive))
    if not drives and (file_system is None or file_system.type not in _MEMORY):
        found.append(
            (
                "drives-unknown",
                "no drive was found below the target: neither a cut nor the drive can be proven",
            )
        )
    if not is_whole:
        found.append(
            (
                LOG_UNKNOWN,
                "the file system has a log or realtime device of its own that was not found: its drive is not"
                " among the drives, and a cut that the others show may not have been its own",
            )
        )
    if virtualisation != "none":
        found.append(
            (
                "virtual-machine",
                f"this is a virtual machine ({virtualisation}): its disk's caches and flushes prove nothing "
                "about the host, and killing it does not cut a drive's power",
            )
        )
    if _eatmydata_loaded():
        found.append(("eatmydata", "libeatmydata is loaded: this process ignores every sync"))
    return tuple(TargetWarning(code=code, text=text) for code, text in found)


def host_warnings(host: Host, *, own_boot_id: bool) -> tuple[TargetWarning, ...]:
    """The warnings about the system of the target. `own_boot_id`: see `discovery.has_own_boot_id`."""
    found: list[tuple[str, str]] = []
    if not (host.machine_id and host.boot_id):
        text = (
            f"this system has no {'boot' if host.machine_id else 'machine'} id, so no restart can be shown,"
            " and an attested cut is not believed"
        )
        if not host.machine_id:
            text += (
                "; create it (systemd-machine-id-setup), or give a container that of its host"
                " (--volume /etc/machine-id:/etc/machine-id:ro)"
            )
        found.append(("no-machine-id", text))
    if own_boot_id:
        found.append(
            (
                "own-boot-id",
                "this container has a boot id of its own (LXC, systemd-nspawn), so its restart looks like one"
                " of the machine; run the test on the host",
            )
        )
    return tuple(TargetWarning(code=code, text=text) for code, text in found)


def lacks_journal(file_system: FileSystem) -> bool:
    """Whether the file system has neither a journal nor copy-on-write to keep its structures whole."""
    return file_system.type in JOURNAL_LESS or NO_JOURNAL in file_system.options.split(",")


def skips_replay(file_system: FileSystem) -> str:
    """The mount option that left the file system's log unreplayed, "" if there is none.

    Synced data may be only in the log, so on such a mount an honest drive seems to have lost them.
    """
    options = file_system.options.split(",")
    if file_system.type in _NO_REPLAY_READ_ONLY and "ro" in options:
        return "ro"
    for option in options:
        name, _, value = option.partition("=")
        spelled = {f"rescue={one}" for one in value.split(":")} if name == "rescue" else {option}
        if spelled & _NO_REPLAY:
            return option
    return ""


def _of_file_system(file_system: FileSystem) -> Iterator[tuple[str, str]]:
    kind, options = file_system.type, frozenset(file_system.options.split(","))
    if kind in _MEMORY:
        yield "memory-file-system", f"{kind} is in memory: nothing on it survives a power cut"
    elif _NETWORK.fullmatch(kind):
        yield (
            "network-file-system",
            f"{kind} passes syncs to another machine or the host: the verdict covers all of them",
        )
    elif kind.startswith("fuse"):
        yield "fuse-file-system", f"{kind} is a program: the verdict covers how it handles a sync"
    if lacks_journal(file_system):
        yield (
            "no-journal",
            f"{kind} has no journal: a cut can damage its structures, whatever the drive does",
        )
    yield from _of_mount_options(options)
    if option := skips_replay(file_system):
        yield (
            "no-recovery",
            f"mounted with {option}: synced data may be only in the log; `verify` refuses such a mount",
        )
    if kind == "zfs" and "sync=disabled" in options:
        yield "zfs-sync-disabled", "the ZFS property sync=disabled makes it ignore every sync"
    if kind == "overlay":
        if "volatile" in options:
            yield "overlay-volatile", "overlay mounted volatile: it ignores every sync"
        yield "overlay", "an overlay file system: the file system below it, and its drives, are not shown"


def _of_mount_options(options: frozenset[str]) -> Iterator[tuple[str, str]]:
    if "data=writeback" in options:
        yield (
            "data-writeback",
            "mounted data=writeback: after a cut a grown file may show old data, even on an honest drive",
        )
    if options & _NO_BARRIER:
        yield (
            "nobarrier",
            f"mounted with {min(options & _NO_BARRIER)}: the file system sends the drive no flush",
        )
    if "sync" in options or "dirsync" in options:
        yield (
            "mounted-sync",
            "mounted sync or dirsync: the file system syncs every write, which hides missing syncs",
        )


def _of_layers(layers: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    stacked = [layer for layer in layers if re.search(r"\((md|dm|bcache)", layer)]
    if stacked:
        yield (
            "layers",
            f"the target is on {', '.join(stacked)}: the verdict covers the whole stack, and `verify` reads "
            "only one copy of a mirror",
        )
    cached = [layer for layer in layers if "(bcache)" in layer]
    if cached:
        yield "cache-layer", f"{', '.join(cached)} may answer from a cache in front of the drives"


def _of_drive(drive: Drive) -> Iterator[tuple[str, str]]:
    name = f"{drive.name} ({drive.model})" if drive.model else drive.name
    if drive.write_cache == "write through":
        yield (
            "write-through",
            f"{name} claims no volatile cache (write through): the kernel sends it no flush, so a run "
            "tests its power-loss protection, not its flush",
        )
    if drive.name.startswith("loop"):
        yield "loop-device", f"{name} is a loop device: the drive below its backing file is not shown"
    if _NETWORK_DRIVE.fullmatch(drive.name):
        yield "network-drive", f"{name} is a network block device: the verdict also covers the remote machine"
    if _MEMORY_DRIVE.fullmatch(drive.name):
        yield "memory-drive", f"{name} is in memory: a power cut erases it unless its module is protected"
    if _RAID_CONTROLLER.search(drive.model) or (not drive.emulated and _VIRTUAL_DISK.search(drive.model)):
        yield (
            "raid-controller",
            f"{name} is a RAID controller's volume: the verdict covers battery, cache and drives together",
        )
    if drive.emulated:
        yield "emulated-drive", f"{name} is emulated: its counters and caches say nothing about hardware"
    elif drive.unsafe_shutdowns is None and not drive.name.startswith("loop"):
        yield (
            "no-shutdown-counter",
            f"{name} reports no unsafe-shutdown counter, which takes root and smartmontools, and proves "
            "nothing of a drive on USB: attest the power cut with --attest-cut",
        )


def _eatmydata_loaded() -> bool:
    if "eatmydata" in os.environ.get("LD_PRELOAD", ""):
        return True
    try:
        return "libeatmydata" in Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return False
