"""Asks whether the file system on a device can be mounted at all.

A mount replays the journal, and that writes; so the probe first mounts read-only and without replay. Only
what passes that is mounted with replay, read-only too, as any mount after a cut would: a journal that cannot
be replayed keeps a file system from mounting just as well. Each mount is made in a namespace of its own that
ends with it, and asked for the root directory's names. File systems for which no such options are known are
refused.
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

_REPLAYED = {"xfs": "ro,nouuid"}  # the others: "ro"


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
    unreplayed = _UNREPLAYED.get(kind)
    if unreplayed is None:
        raise TargetError(
            f"{device}: no way is known to mount {kind} without writing to it; mount it yourself"
        )
    for options in (unreplayed, _REPLAYED.get(kind, "ro")):
        failure = _mount(device, kind, options)
        if failure:
            text = f"{kind} on {device} does not mount with {options}: {failure}"
            return MountProbe(type=kind, uuid=uuid, mounts=False, text=text)
    return MountProbe(type=kind, uuid=uuid, mounts=True, text=f"{kind} on {device} mounts")


def _mount(device: Path, kind: str, options: str) -> str:
    """Mount `device` for a moment; why that failed, or "" where it did not."""
    with tempfile.TemporaryDirectory(prefix="durability-probe-") as directory:
        # The directory is listed inside, by the same shell: outside the namespace nothing is mounted.
        script = 'mount -t "$1" -o "$2" "$3" "$4" && ls -A "$4" > /dev/null'
        namespace = ("unshare", "--mount", "--propagation", "private")
        arguments = ("probe", kind, options, str(device), directory)
        done = run_tool(*namespace, "sh", "-c", script, *arguments, timeout_s=_DEADLINE_S)
    return "" if done.returncode == 0 else " ".join(done.stderr.split()) or f"exit code {done.returncode}"
