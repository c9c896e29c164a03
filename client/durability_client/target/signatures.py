"""Signatures of other programs on a device or file: file systems, partition tables, swap, members of RAID,
LVM and ZFS.

`signature_of` asks blkid, which examines both ends, and also looks for a GPT header at either end. blkid does
not report a GPT without its protective MBR, as after a run has overwritten the start of a disk.
`signatures_of` lists everything that wipefs finds.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from durability.errors import TargetError
from durability_client.system.programs import run_tool

_NOTHING_FOUND = 2  # exit code of blkid -p: no signature
_GPT = b"EFI PART"
_SECTORS_BYTES = (512, 4096)
# Further members, apart from RAID, LVM and ZFS, whose types end with "_member": encrypted and stacked
# devices, logs of file systems on other devices, and file systems that other machines may have in use.
_PARTS = frozenset(
    {
        *(
            "crypto_LUKS",
            "BitLocker",
            "cs_fvault2",
            "bcache",
            "bcachefs",
            "ceph_bluestore",
            "drbd",
            "stratis",
        ),
        *("DM_integrity", "DM_snapshot_cow", "DM_verity_hash", "vdo", "jbd", "xfs_external_log", "swsuspend"),
        *("gfs", "gfs2", "ocfs2", "VMFS", "oracleasm"),
    }
)
_BTRFS_DEVICES = struct.Struct("<Q")  # number of devices, in the first superblock
_BTRFS_DEVICES_AT = (64 << 10) + 0x88
# Tags of blkid about the partition entry, which are not signatures in the partition.
_OF_THE_PARTITION = ("DEVNAME", "PART_ENTRY_")


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature in a device or file. `uuid`: "" if it has none."""

    type: str
    uuid: str


def signature_of(path: Path) -> str:
    """Type of a signature in the device or file, "" for none. Raises TargetError if blkid cannot tell."""
    done = run_tool("blkid", "-p", "-o", "export", str(path))
    if done.returncode not in (0, _NOTHING_FOUND):
        why = done.stderr.strip() or f"exit code {done.returncode}"
        raise TargetError(
            f"{path}: blkid cannot tell its contents ({why}); erase it with wipefs if you do not need it, or "
            "add --force"
        )
    tags = dict(line.partition("=")[::2] for line in done.stdout.split("\n") if line)
    if any(not tag.startswith(_OF_THE_PARTITION) for tag in tags):
        return tags.get("TYPE") or tags.get("PTTYPE") or "something"
    return _gpt(path)


def signatures_of(path: Path) -> tuple[Signature, ...]:
    """All signatures in the device or file, without duplicates. Includes damaged and contradictory ones.
    Raises TargetError if wipefs fails."""
    done = run_tool("wipefs", "--no-act", "--noheadings", "--output", "TYPE,UUID", str(path))
    if done.returncode:
        raise TargetError(
            f"{path}: wipefs cannot tell its contents ({done.stderr.strip()}); erase it with `wipefs --all`"
            " if you do not need it"
        )
    rows = (line.split() for line in done.stdout.splitlines())
    return tuple(dict.fromkeys(Signature(row[0], row[1] if row[1:] else "") for row in rows if row))


def file_system_uuid(path: Path) -> str:
    """The UUID of the file system on a device, "" if none or contradictory ones are found."""
    done = run_tool("blkid", "-p", "-s", "UUID", "-o", "value", str(path))
    return done.stdout.strip() if done.returncode == 0 else ""


def is_member(signature: str) -> bool:
    """Whether a device with this signature may be in use without showing it: as a member of RAID, LVM or ZFS,
    an encrypted or cache device, or a file system of several machines."""
    return signature.endswith("_member") or signature in _PARTS


def spans_devices(path: Path) -> bool:
    """Whether the btrfs on a device spans other devices, whose data would be lost. Raises TargetError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, _BTRFS_DEVICES.size, _BTRFS_DEVICES_AT)
        finally:
            os.close(fd)
    except OSError as error:
        raise TargetError(f"{path}: its btrfs cannot be read: {error.strerror}") from error
    return len(data) == _BTRFS_DEVICES.size and _BTRFS_DEVICES.unpack(data)[0] > 1


def _gpt(path: Path) -> str:
    with suppress(OSError):  # blkid could read the device, so an error here hides no signature
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size_bytes = os.lseek(fd, 0, os.SEEK_END)
            for sector_bytes in _SECTORS_BYTES:
                if os.pread(fd, len(_GPT), sector_bytes) == _GPT:
                    return "gpt"
                last = size_bytes // sector_bytes * sector_bytes - sector_bytes
                if last > 0 and os.pread(fd, len(_GPT), last) == _GPT:
                    return "gpt (its copy at the end)"
        finally:
            os.close(fd)
    return ""
