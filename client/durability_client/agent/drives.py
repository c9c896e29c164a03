"""Finds the drives of a task, and refuses drives that must not be tested.

A drive is identified by its serial, wherever it is. Only a drive without a serial is identified by its path
alone. There are three kinds of refusal: another drive is at the path, the machine runs from the drive, or the
drive is in use.
"""

from __future__ import annotations

import os
import re
import stat
import sys as python
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from durability import plain_text
from durability.campaign.definition.settings import LEAST_BYTES, DriveUnderTest
from durability.campaign.tasks import DriveTask, Trouble, in_one_order
from durability.errors import SetupError, TargetBusyError, TargetError
from durability.units import parse_size
from durability_client.system import block_devices, device_users
from durability_client.system.mounts import mount_of, mounts
from durability_client.system.path_walk import real_path
from durability_client.target import discovery, safety_checks
from durability_client.target.signatures import Signature

# The kernel's name of a whole drive. A drive that comes back may get another name.
_KERNEL_NAME = re.compile(r"/dev/(sd[a-z]+|vd[a-z]+|xvd[a-z]+|nvme\d+n\d+|mmcblk\d+)")
_SYSTEM = (
    *("/", "/boot", "/boot/efi", "/efi", "/etc", "/gnu", "/home", "/nix", "/opt", "/root", "/srv"),
    *("/tmp", "/usr", "/usr/local", "/var", "/var/lib", "/var/log", "/var/tmp"),
)
# Mount points of a live system's medium, and in a container of files on the machine's own disk.
_SYSTEM_MOUNTS = (
    "/boot/",
    "/cdrom",
    "/etc/",
    "/lib/live/",
    "/run/initramfs",
    "/run/live",
    "/sysroot",
    "/usr/",
)
_UDEV = Path("/run/udev/data")


class DriveError(Exception):
    """A drive's part of a task failed. For `trouble` see `DriveStatus`."""

    def __init__(self, trouble: Trouble, text: str) -> None:
        super().__init__(text)
        self.trouble: Trouble = trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDrive:
    """A drive that is present."""

    name: str  # the kernel's name of its device; "" for a target in the user's file system, without a device
    leaves: tuple[str, ...]  # the kernel's names of the drives below
    serial: str  # plain text; "" if there is none
    diskseqs: tuple[int | None, ...]  # the diskseq of each leaf

    @property
    def device(self) -> Path | None:
        """The node of the device; None for a target in the user's file system."""
        return block_devices.node_of(self.name) if self.name else None

    @property
    def size_bytes(self) -> int:
        """Size of the drive; for several drives, size of the device on them."""
        one = self.leaves[0] if len(self.leaves) == 1 else self.name
        return block_devices.size_of(one) if one else 0

    def has(self, serial: str) -> bool:
        """Whether the serial matches. Serials of several drives match in any order; "" matches any drive."""
        return not serial or in_one_order(self.serial) == in_one_order(serial)

    @property
    def diskseq(self) -> int | None:
        """The diskseq of its only drive; None if there are several drives."""
        return self.diskseqs[0] if len(self.diskseqs) == 1 else None

    @property
    def is_still_there(self) -> bool:
        """Whether all drives are still present and no other drive has got one of their names. Without diskseq
        numbers, only their presence is known."""
        present = bool(self.leaves) and all(map(block_devices.size_of, self.leaves))
        return present and _diskseqs(self.leaves) == self.diskseqs


def find(drive: DriveUnderTest, serial: str) -> FoundDrive:
    """Find the drive, with `serial` unless that is "". Raises DriveError: missing, wrong-drive."""
    found = _at_device(Path(drive.device)) if drive.device else _below_target(Path(drive.target))
    if found is not None and found.has(serial):
        return found
    if serial and _KERNEL_NAME.fullmatch(drive.device):
        moved = block_devices.device_at(serial, 0)
        if moved is not None and (elsewhere := _at_device(moved)) is not None:
            return elsewhere
    path = drive.device or drive.target
    if found is None:
        lack = "is not there" if drive.device else _lack_of(Path(path))
        raise DriveError("missing", f"{path} {lack}")
    has = f"has the serial {found.serial}" if found.serial else "has no serial"
    hint = "" if drive.device else ": is the right file system mounted?"
    raise DriveError("wrong-drive", f"the drive at {path} {has}, expected {serial}{hint}")


def _lack_of(target: Path) -> str:
    """The reason why no drive is known below a target, and the remedy."""
    mount = mount_of(target.parent) if target.parent.is_dir() else None
    if mount is not None and mount.mount_point != "/":
        return (
            f"is on {mount.type}, which does not show its drives, so no campaign can know them again:"
            " name a drive with device"
        )
    return "is in no directory on a drive: mount its file system"


def check_system_disk(found: FoundDrive) -> None:
    """Raises DriveError for a drive from which the machine runs."""
    system = set(system_drives())
    wholes = set(map(block_devices.whole_of, system))
    nvme = _nvme_drives(wholes)
    for leaf in found.leaves:
        twins = any(block_devices.may_be_one_drive(leaf, one) for one in wholes)
        if leaf in system or twins or _nvme_drives([leaf]) & nvme:
            raise DriveError(
                "system-disk", f"this machine runs from {leaf}; name a drive that carries none of its parts"
            )


def check_unused(found: FoundDrive) -> dict[str, tuple[Signature, ...]]:
    """The signatures on a device that may be overwritten, by partition; empty for a target in a file system.
    Raises DriveError: in-use."""
    if found.device is None:
        return {}
    try:
        holds = safety_checks.check_erasable(found.device)
    except TargetError as error:
        raise DriveError("in-use", str(error)) from error
    if (use := device_users.writer_of(found.name)) is not None:
        raise DriveError("in-use", f"{use.name} is {use.text}; {use.remedy}")
    return holds


def check_target(path: Path) -> None:
    """Refuse a target in the user's file system if `run` would refuse it, or if it is a symbolic link, which
    may change later. Raises DriveError."""
    if path.is_symlink():
        raise DriveError("not-begun", f"{path} is a symbolic link: name the file that is meant")
    try:
        safety_checks.check_path(real_path(path), safety_checks.Consent(destroy_data=False))
    except TargetBusyError as error:
        raise DriveError("in-use", str(error)) from error
    except SetupError as error:
        raise DriveError("not-begun", str(error)) from error


def check_named_once(found: FoundDrive, others: Iterable[DriveTask]) -> None:
    """Raises DriveError if one of the campaign's `others` is on the same drive. They would overwrite each
    other, a flush of one would cover the other, and each cut would count twice."""
    for other in others:
        try:
            there = find(other.drive, other.serial)
        except DriveError:
            continue  # the other drive's own part reports this
        nvme = _nvme_drives(there.leaves)
        shared = [leaf for leaf in found.leaves if leaf in there.leaves or _nvme_drives([leaf]) & nvme]
        if shared:
            name = other.drive.name
            raise DriveError(
                "in-use", f"this drive ({shared[0]}) is [[drive]] {name} too: name each drive once"
            )


def _nvme_drives(leaves: Iterable[str]) -> set[str]:
    """The NVMe drives of the leaves. Empty in a virtual machine, because clouds show different disks as
    namespaces of one controller."""
    found = {block_devices.nvme_drive_of(leaf) for leaf in leaves} - {""}
    return found if found and discovery.host_now().virtualisation in ("", "none") else set()


def check_size(found: FoundDrive, drive: DriveUnderTest) -> None:
    """Raises DriveError if a device is too small for the target or its file system."""
    if found.device is None:
        return
    has = block_devices.size_of(found.name)
    needs = max(parse_size(drive.size) if drive.size else 0, LEAST_BYTES[drive.file_system])
    if has < needs:
        raise DriveError("too-small", f"{drive.device} has {has} bytes, {needs} are needed")


def system_drives() -> frozenset[str]:
    """The kernel's names of the drives that carry the system, its swap, or this program."""
    found: set[str] = set()
    pending = [leaf for path in _system_paths() for leaf in discovery.drives_below(path)]
    for swap in device_users.swaps():
        swapped = _at_device(Path(swap))
        pending.extend(swapped.leaves if swapped is not None else discovery.drives_below(Path(swap)))
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        loop = block_devices.loop_of(name)
        if loop is not None:  # for example the image of a live system
            backing = _at_device(Path(loop.backing))
            below = backing.leaves if backing is not None else discovery.drives_below(Path(loop.backing))
            pending.extend(below)
    return frozenset(found)


def initialised_s(found: FoundDrive) -> float | None:
    """Time at which udev had initialised the drive, in seconds since the start of the system; None if
    unknown."""
    times = []
    for leaf in found.leaves:
        try:
            number = (Path("/sys/class/block") / leaf / "dev").read_text().strip()
            text = (_UDEV / f"b{number}").read_text(errors="replace")
        except OSError:
            return None
        said = re.search(r"^I:(\d+)$", text, re.MULTILINE)
        if said is None:
            return None
        times.append(int(said[1]) / 1e6)
    return max(times, default=None)


def _system_paths() -> Iterator[Path]:
    yield from map(Path, (*_SYSTEM, python.prefix, python.base_prefix))
    for mount in mounts():
        if mount.mount_point.startswith(_SYSTEM_MOUNTS):
            yield Path(mount.mount_point)


def _at_device(path: Path) -> FoundDrive | None:
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISBLK(status.st_mode):
        return None
    name = block_devices.name_of((os.major(status.st_rdev), os.minor(status.st_rdev)))
    if name is None or not block_devices.size_of(name):
        return None
    leaves = block_devices.stack_of((name,)).leaves
    return FoundDrive(name=name, leaves=leaves, serial=_serial(leaves), diskseqs=_diskseqs(leaves))


def _below_target(path: Path) -> FoundDrive | None:
    leaves = discovery.drives_below(path.parent) if path.parent.is_dir() else ()
    if not leaves:
        return None
    return FoundDrive(name="", leaves=leaves, serial=_serial(leaves), diskseqs=_diskseqs(leaves))


def _diskseqs(leaves: tuple[str, ...]) -> tuple[int | None, ...]:
    return tuple(map(block_devices.diskseq_of, leaves))


def _serial(leaves: tuple[str, ...]) -> str:
    serials = [block_devices.serial_of(leaf) for leaf in leaves]
    return plain_text.as_line(" + ".join(serials)) if any(serials) else ""
