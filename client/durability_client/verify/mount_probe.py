"""Asks whether the file system on a device can be mounted at all, by mounting it once, as any boot would.

The mount is read-only, but the kernel replays the file system's log first: that is the one thing `verify`
ever lets be written to a target, and nothing that the operator's own mount did not write already. A mount
without replay would prove nothing: before its log is replayed, the file system of an honest drive may be
anything. The mount is made in a namespace of its own that ends with it, and asked for the root directory's
names. Only errors that say so are taken for damage. What keeps a sound file system from mounting as well (a
device that is read-only or in use, a type that the kernel does not know, too little memory) is refused.

A drive that goes away, or has a bad sector, fails a probe as well. The probe only says whether it was told of
an I/O error; `unmountable` asks the device itself.
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
_NOTHING_FOUND, _AMBIVALENT = 2, 8  # blkid: no signatures, and those of several file systems
_MOUNT_FAILED, _LIST_FAILED = 32, 33  # mount(8); 33 is our own. Other codes: the mount was not tried
_OPTIONS = {
    "ext2": "ro",
    "ext3": "ro",
    "ext4": "ro",
    "xfs": "ro,nouuid",
    "btrfs": "ro",
    "f2fs": "ro",
    "vfat": "ro",
    "exfat": "ro",
}
# The words of mount(8) and ls(1), by the kernel's error. These errors say that the file system is damaged:
_IO_ERRORS = ("can't read superblock", "input/output error")  # EIO
_DAMAGE = (
    *_IO_ERRORS,
    "structure needs cleaning",  # EUCLEAN
    *("probably corrupted filesystem", "bad message"),  # EBADMSG: a checksum is wrong
    "stale file handle",  # ESTALE: of ext4, the root directory's inode is not in use
)
# EINVAL: of a damaged superblock or log, and also of a feature that the kernel does not know.
_REFUSED = ("wrong fs type, bad option, bad superblock", "invalid argument")
# All other errors may be the system's.
_REMEDIES = {
    "file exists": "detach any copy of this file system",
    "cannot allocate memory": "start a system with more memory",
}
_MEMORY = "/run"
_HAS_JOURNAL = 4  # of ext3 and ext4, among the compatible features


@dataclass(frozen=True, slots=True, kw_only=True)
class MountProbe:
    """What became of the file system on a device.

    `type` and `uuid` are from its superblock, "" where none is recognised. `mounts`: it could be mounted and
    its root directory listed. `text` says what was tried and what came of it, for people. `io_error`: the
    kernel said that it could not read, which some file systems say of damaged content as well. `refused`: the
    kernel did not take the file system, which it says of a damaged one, and of one that it does not know.
    """

    type: str
    uuid: str
    mounts: bool
    text: str
    io_error: bool = False
    refused: bool = False


def probe_mount(device: Path) -> MountProbe:
    """Try to mount the file system on `device`; needs root. Raises TargetError if that cannot be tried, or
    fails for another reason than damage.
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
    """`MountProbe.io_error` and `refused` of a failure, which has the words of mount(8) or ls(1). Raises
    TargetError if it need not be damage, whichever kernel says so.
    """
    said = failure.lower()
    refused = any(words in said for words in _REFUSED)
    if not refused and not any(words in said for words in _DAMAGE):
        remedy = next((remedy for words, remedy in _REMEDIES.items() if words in said), "remove the cause")
        raise TargetError(f"{failure}. That proves no damage: {remedy}, and verify again")
    return any(words in said for words in _IO_ERRORS), refused


def recognised(device: Path, said: CompletedProcess[str]) -> tuple[str, str]:
    """Type and UUID of the file system, by the answer of blkid; "" where there is none. Raises TargetError if
    that is not said.
    """
    if said.returncode == _AMBIVALENT:
        raise TargetError(
            f"{device} has the signatures of several file systems; mount it yourself with its type (mount -t)"
        )
    tags = dict(line.partition("=")[::2] for line in said.stdout.split("\n") if line)
    if said.returncode != _NOTHING_FOUND and "DEVNAME" not in tags:  # as of busybox, with other options
        raise TargetError(f"blkid does not say what {device} holds; install blkid from util-linux")
    return tags.get("TYPE", ""), tags.get("UUID", "")


def _has_external_log(device: Path, kind: str) -> bool:
    """Whether the file system's superblock says so: XFS has a log without a start, ext4 a journal without an
    inode. False where it cannot be read."""
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
    """A new directory: in memory, where systems have /run, since their disk may be full, and a cut may have
    made it read-only."""
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="durability-probe-", dir=memory)


def _mount(device: Path, kind: str, options: str) -> str:
    """Mount `device` for a moment; why that failed, or "" if it did not. Raises TargetError if it was not
    tried."""
    with mount_point() as directory:
        # The directory is listed inside, by the same shell: outside the namespace nothing is mounted.
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
