"""Asks whether the file system on a device can be mounted at all, without writing a byte to the device.

A mount replays the journal, and that writes; so the probe mounts read-only and without replay, in a mount
namespace of its own that ends with it, and asks for the root directory's names. It refuses file systems for
which it knows no such options.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from durability.errors import TargetError
from durability_client.tools import run_tool

_DEADLINE_S = 120.0  # as for reads: a drive that hangs has not lost the data
_UNREPLAYED = {
    "ext3": "ro,noload",
    "ext4": "ro,noload",
    "xfs": "ro,norecovery,nouuid",
    "btrfs": "ro,rescue=nologreplay",
    "f2fs": "ro,norecovery",
    "ext2": "ro",
    "vfat": "ro",
    "exfat": "ro",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MountProbe:
    """What became of the file system on a device.

    `type` and `uuid` are from its superblock, "" where none is recognised. `mounts`: it could be mounted and
    its root directory listed. `text` says what was tried and what came of it, for people.
    """

    type: str
    uuid: str
    mounts: bool
    text: str


def probe_mount(device: Path) -> MountProbe:
    """Try to mount the file system on `device`; needs root. Raises TargetError where that cannot be tried."""
    if not device.is_block_device():
        raise TargetError(f"{device} is not a block device; name the one that the target's file system is on")
    done = run_tool("blkid", "-p", "-o", "export", str(device), timeout_s=_DEADLINE_S)
    tags = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    kind, uuid = tags.get("TYPE", ""), tags.get("UUID", "")
    if not kind:
        return MountProbe(type="", uuid="", mounts=False, text=f"no file system is recognised on {device}")
    options = _UNREPLAYED.get(kind)
    if options is None:
        raise TargetError(
            f"{device}: no way is known to mount {kind} without writing to it; mount it yourself"
        )
    with tempfile.TemporaryDirectory(prefix="durability-probe-") as directory:
        # The directory is listed inside, by the same shell: outside the namespace nothing is mounted.
        script = 'mount -t "$1" -o "$2" "$3" "$4" && ls -A "$4" > /dev/null'
        arguments = ("probe", kind, options, str(device), directory)
        done = run_tool(
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            *arguments,
            timeout_s=_DEADLINE_S,
        )
    if done.returncode == 0:
        text = f"{kind} on {device} mounts with {options}"
    else:
        text = f"{kind} on {device} does not mount with {options}: {' '.join(done.stderr.split())}"
    return MountProbe(type=kind, uuid=uuid, mounts=done.returncode == 0, text=text)
