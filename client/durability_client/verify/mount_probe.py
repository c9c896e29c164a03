"""Tests whether the file system on a device can be mounted, by mounting it once, as any boot would.

The mount is read-only, but the kernel replays the file system's log first. `verify` allows no other write to
a target, and the operator's own attempt to mount has already replayed the same log. A mount without replay
would prove nothing: before its log is replayed, the file system of an honest drive may be inconsistent. The
mount is made in a mount namespace of its own, which ends with the probe, and the root directory is listed.

Only errors that indicate damage count as damage. Causes that also keep an intact file system from mounting
are errors of the probe: a device that is read-only or in use, an unknown type, too little memory.

A drive that goes away, or has a bad sector, fails a probe as well. The probe only reports whether it saw an
I/O error; `unmountable` then reads the device itself.
"""

from __future__ import annotations

import os
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

from durability.errors import TargetError
from durability_client.system.programs import run_tool

_DEADLINE_S = 120.0  # as for reads: a drive that hangs has not lost the data
_NOTHING_FOUND, _AMBIVALENT = 2, 8  # blkid's exit codes: no signature; signatures of several file systems
_MOUNT_FAILED, _LIST_FAILED = 32, 33  # exit codes of mount(8) and of `_mount`; others: mount was not tried
# A file system whose superblock asks for a panic at an error must not end the system that probes it.
_OPTIONS = {
    "ext2": "ro,errors=remount-ro",
    "ext3": "ro,errors=remount-ro",
    "ext4": "ro,errors=remount-ro",
    "xfs": "ro,nouuid",
    "btrfs": "ro",
    "f2fs": "ro",
    "vfat": "ro",
    "exfat": "ro",
}
# Messages of mount(8) and ls(1), by the kernel's error. These errors mean that the file system is damaged:
_IO_ERRORS = ("can't read superblock", "input/output error")  # EIO
_DAMAGE = (
    *_IO_ERRORS,
    "structure needs cleaning",  # EUCLEAN
    *("probably corrupted filesystem", "bad message"),  # EBADMSG: a checksum is wrong
    "stale file handle",  # ESTALE: on ext4, the root directory's inode is not in use
)
# EINVAL: a damaged superblock or log, or a feature that the kernel does not support.
_REFUSED = ("wrong fs type, bad option, bad superblock", "invalid argument")
# All other errors may be caused by the system.
_REMEDIES = {
    "file exists": "detach any copy of this file system",
    "cannot allocate memory": "start a system with more memory",
}
_MEMORY = "/run"
_HAS_JOURNAL = 4  # flag among the compatible features of ext3 and ext4


@dataclass(frozen=True, slots=True, kw_only=True)
class MountProbe:
    """Result of the attempt to mount the file system on a device."""

    type: str  # `type` and `uuid` are from the superblock; "" if none is recognised
    uuid: str
    mounts: bool  # the file system could be mounted and its root directory listed
    text: str  # the attempt and its result, for people
    io_error: bool = False  # the kernel reported a read error; some file systems do so for damaged data, too
    refused: bool = False  # the kernel rejected the file system, which is damaged or of an unknown kind


def probe_mount(device: Path) -> MountProbe:
    """Try to mount the file system on `device`; needs root. Raises TargetError if the mount cannot be tried,
    or fails for a reason other than damage.
    """
    if not device.is_block_device():
        raise TargetError(
            f"{device} is not a block device; name the device that holds the target's file system"
        )
    blkid = ("blkid", "-p", "-o", "export", str(device))
    kind, uuid = recognised(device, run_tool(*blkid, timeout_s=_DEADLINE_S))
    if not kind:
        return MountProbe(type="", uuid="", mounts=False, text=f"no file system is recognised on {device}")
    options = _OPTIONS.get(kind)
    if options is None:
        raise TargetError(f"{device} holds {kind}, which this tool cannot mount; mount it yourself")
    if run_tool("blockdev", "--getro", str(device)).stdout.strip() != "0":
        raise TargetError(
            f"{device} is read-only, so the log of its {kind} cannot be replayed:"
            f" make it writable (blockdev --setrw {device})"
        )
    if _has_external_log(device, kind):
        raise TargetError(
            f"the log of the {kind} on {device} is on another device, so a mount without that proves nothing;"
            " mount it yourself"
        )
    failure = _mount(device, kind, options)
    if not failure:
        return MountProbe(type=kind, uuid=uuid, mounts=True, text=f"{device} mounts")
    text = f"{kind} on {device} does not mount with {options}: {failure}"
    io_error, refused = cause_of(text)
    return MountProbe(type=kind, uuid=uuid, mounts=False, text=text, io_error=io_error, refused=refused)


def cause_of(failure: str) -> tuple[bool, bool]:
    """`MountProbe.io_error` and `refused` for `failure`, a message of mount(8) or ls(1). Raises TargetError
    if the message does not indicate damage.
    """
    said = failure.lower()
    refused = any(words in said for words in _REFUSED)
    if not refused and not any(words in said for words in _DAMAGE):
        remedy = next((remedy for words, remedy in _REMEDIES.items() if words in said), "remove the cause")
        raise TargetError(f"{failure}. That proves no damage: {remedy}, and verify again")
    return any(words in said for words in _IO_ERRORS), refused


def recognised(device: Path, said: CompletedProcess[str]) -> tuple[str, str]:
    """Type and UUID of the file system from the output of blkid, "" if blkid found none. Raises TargetError
    for several file systems, or if blkid does not answer the question.
    """
    if said.returncode == _AMBIVALENT:
        raise TargetError(
            f"{device} has the signatures of several file systems; mount it yourself with its type (mount -t)"
        )
    tags = dict(line.partition("=")[::2] for line in said.stdout.split("\n") if line)
    if said.returncode != _NOTHING_FOUND and "DEVNAME" not in tags:  # busybox's blkid has other options
        raise TargetError(f"blkid does not say what {device} holds; install blkid from util-linux")
    return tags.get("TYPE", ""), tags.get("UUID", "")


def _has_external_log(device: Path, kind: str) -> bool:
    """Whether the superblock names an external log: in XFS a log without a start block, in ext3 and ext4 a
    journal without an inode. False if the superblock cannot be read."""
    try:
        with device.open("rb") as file:
            head = file.read(2048)
    except OSError:
        return False
    if kind == "xfs":
        return len(head) >= 56 and not any(head[48:56])
    if kind not in ("ext3", "ext4") or len(head) < 2048:
        return False
    features, journal_inode = struct.unpack_from("<I", head, 1024 + 0x5C)[0], head[1024 + 0xE0 : 1024 + 0xE4]
    return bool(features & _HAS_JOURNAL) and not any(journal_inode)


def mount_point() -> tempfile.TemporaryDirectory[str]:
    """A new temporary directory, in memory (/run) if that is writable, because the disk may be full, or
    read-only after a cut."""
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="durability-probe-", dir=memory)


def _mount(device: Path, kind: str, options: str) -> str:
    """Mount `device` for a moment. Returns the reason of the failure, or "" for success. Raises TargetError
    if the mount was not tried."""
    with mount_point() as directory:
        # The same shell lists the directory, because the mount exists only inside the namespace.
        script = f'mount -t "$1" -o "$2" "$3" "$4" || exit; ls -A "$4" > /dev/null || exit {_LIST_FAILED}'
        namespace = ("unshare", "--mount", "--propagation", "private", "env", "LC_ALL=C")
        arguments = ("probe", kind, options, str(device), directory)
        done = run_tool(*namespace, "sh", "-c", script, *arguments, timeout_s=_DEADLINE_S)
    if done.returncode == 0:
        return ""
    said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
    if done.returncode not in (_MOUNT_FAILED, _LIST_FAILED):
        raise TargetError(f"{kind} on {device} could not be mounted, which proves no damage: {said}")
    return said
