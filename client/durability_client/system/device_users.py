"""Finds the users of a block device or a file. While it is in use, it must not be overwritten, whatever the
user allows.

A device is in use in these cases: it is mounted in any mount namespace, is swap, or backs a loop device; it
is a part of an md, dm, LVM, multipath or btrfs device; another program holds it with O_EXCL. The same holds
if one of its partitions, or another device with the same bytes, is in use. Devices with the same bytes are: a
loop device and the device behind it, loop devices over overlapping ranges of a file, and paths to the same
drive.

This module reads the kernel's information and writes nothing. A program that opened a device without O_EXCL
does not count as a user, because udev and smartd do that often. `writer_of` finds programs that write.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from durability_client.system import block_devices
from durability_client.system.block_devices import SYS, Loop
from durability_client.system.mounts import Mount, foreign_mounts, mounts

_MAY_HANG = (
    "fuse",
    "nfs",
    "cifs",
    "smb3",
    "9p",
    "virtiofs",
    "ceph",
)  # types of file systems: no stat on these


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A use of the device `name`, such as "mounted at /mnt", and its remedy."""

    name: str
    text: str
    remedy: str


def use_of_device(name: str, *, sys: Path = SYS) -> Use | None:
    """The first use of the block device `name` that is found; None if there is none."""
    return next(_uses(name, (), sys), None)


def writer_of(name: str, *, sys: Path = SYS) -> Use | None:
    """A process that has the block device `name`, or another device with some of its bytes, open for writing.

    Only processes that this user may examine are found. A virtual machine or a database may use a device like
    this without a holder; udev and smartd do it only for a moment. Devices are compared by number, because a
    container may have its own node for the device, with any name. The device's partitions, its whole device,
    other paths to it, and the devices below a loop device or a volume share bytes with it. Another partition
    of its whole device does not.
    """
    names = {
        number: one
        for one in _sharing(name, sys)
        if (number := block_devices.number_of(one, sys=sys)) is not None
    }
    hanging = {mount.id for mount in _all_mounts() if mount.type.startswith(_MAY_HANG)}
    for process in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - names
        if int(process) == os.getpid():
            continue
        with suppress(OSError):  # the process has ended, or is another user's
            for descriptor in os.listdir(f"/proc/{process}/fd"):  # noqa: PTH208 - names
                number = _device_written(process, descriptor, hanging)
                if number is not None and number in names:
                    node = str(block_devices.node_of(names[number]))
                    text = f"open for writing in process {process} ({_program(process)})"
                    return Use(name=node, text=text, remedy="end that first")
    return None


def _sharing(name: str, sys: Path) -> set[str]:
    """The device `name`, and other devices that share bytes with it."""
    found: set[str] = set()
    pending, reached = [name], set[str]()
    while pending:
        one = pending.pop()
        if one in reached:
            continue
        reached.add(one)
        whole = block_devices.whole_of(one, sys=sys)
        for same in (one, *_same_bytes(one, sys)):
            found |= {same, block_devices.whole_of(same, sys=sys)}
            found.update(block_devices.partitions_of(same, sys=sys))
        loop = block_devices.loop_of(whole, sys=sys)
        if loop is not None and (below := _name_of_node(loop.backing)) is not None:
            pending.append(below)
        pending.extend(block_devices.mapped_to(whole, sys=sys))
    return found


def _device_written(process: str, descriptor: str, hanging: set[int]) -> int | None:
    """The number of the block device that a process has open for writing as `descriptor`. None for other
    files, for files opened only for reading, and for closed ones. `hanging`: mounts whose files are not
    examined, because that may hang."""
    with suppress(OSError):
        file = f"/proc/{process}/fd/{descriptor}"
        if not os.readlink(file).startswith("/"):  # noqa: PTH115 - a pipe, a socket and the like
            return None
        lines = Path("/proc", process, "fdinfo", descriptor).read_text().splitlines()
        info = dict(line.split(":", 1) for line in lines if ":" in line)
        is_for_writing = int(info.get("flags", "0"), 8) & os.O_ACCMODE != os.O_RDONLY
        if not is_for_writing or int(info.get("mnt_id", "0")) in hanging:
            return None
        found = os.stat(file)  # noqa: PTH116 - one of many thousands
        return found.st_rdev if stat.S_ISBLK(found.st_mode) else None
    return None


def _program(process: str) -> str:
    """The name of a process's program, "" if it has ended."""
    with suppress(OSError):
        return Path("/proc", process, "comm").read_text(errors="replace").strip()
    return ""


def _all_mounts() -> Iterator[Mount]:
    """The mounts of all mount namespaces that this user may examine."""
    yield from mounts()
    yield from (mount for _, mount in foreign_mounts())


def use_of_file(path: Path) -> Use | None:
    """The loop device or swap that the file `path` backs; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    for swap in swaps():
        with suppress(OSError):
            if Path(swap).samefile(path):
                return Use(name=str(path), text="used as swap", remedy=f"release it first (swapoff {path})")
    for loop in _loops(SYS):
        backing = _stat(loop.backing)
        if backing is not None and (backing.st_dev, backing.st_ino) == (found.st_dev, found.st_ino):
            return _backs(str(path), loop)
    return None


def _uses(name: str, seen: tuple[str, ...], sys: Path) -> Iterator[Use]:
    """Uses of `name`, of devices below a loop device, and of devices with the same bytes. Devices in `seen`
    are left out."""
    seen = (*seen, name, block_devices.whole_of(name, sys=sys))
    yield from _direct_uses(name, seen, sys)
    for same in _same_bytes(name, sys):
        if same not in seen:
            yield from _direct_uses(same, (*seen, same), sys)
    loop = block_devices.loop_of(block_devices.whole_of(name, sys=sys), sys=sys)
    if loop is not None and (below := _name_of_node(loop.backing)) is not None:
        yield from _uses(below, seen, sys)


def _direct_uses(name: str, seen: tuple[str, ...], sys: Path) -> Iterator[Use]:
    family = (name, *block_devices.partitions_of(name, sys=sys))
    yield from _mounted(family)
    for swap in swaps():
        if (found := _name_of_node(swap)) in family:
            yield Use(name=str(found), text="used as swap", remedy=f"release it first (swapoff {swap})")
    for member in family:
        if holders := ", ".join(block_devices.holders_of(member, sys=sys)):
            yield Use(name=member, text=f"held by {holders}", remedy="release it first")
    over = {*family, block_devices.whole_of(name, sys=sys)}
    for loop in _loops(sys):
        if loop.name not in seen and _name_of_node(loop.backing) in over:
            yield _backs(name, loop)
    for member in family:
        if _is_claimed(member):
            text = "held by a mount, swap or another program"
            yield Use(name=member, text=text, remedy="release it first")


def _mounted(family: tuple[str, ...]) -> Iterator[Use]:
    here = ((None, mount) for mount in mounts())
    for process, mount in (*here, *foreign_mounts()):
        name = block_devices.name_of(mount.device_number) or _name_of_node(
            mount.source
        )  # btrfs has no number
        if name in family:
            text, remedy = f"mounted at {mount.mount_point}", "unmount it, or name a file on it"
            if process is not None:
                text += f" in the mount namespace of process {process}"
                remedy = f"unmount it there (nsenter --target {process} --mount umount {mount.mount_point})"
            yield Use(name=str(name), text=text, remedy=remedy)


def _same_bytes(name: str, sys: Path) -> Iterator[str]:
    """Other devices that share bytes with `name`: overlapping loop devices, and other paths to the drive."""
    loop = block_devices.loop_of(block_devices.whole_of(name, sys=sys), sys=sys)
    if loop is not None:
        yield from (other.name for other in _loops(sys) if other.name != loop.name and _overlap(loop, other))
    whole = block_devices.whole_of(name, sys=sys)
    wwid = block_devices.wwid_of(whole, sys=sys)
    for other in block_devices.all_names(sys=sys) if wwid else ():
        is_path = block_devices.whole_of(other, sys=sys) == other and other != whole
        if is_path and block_devices.may_be_one_drive(whole, other, sys=sys):
            yield _partition_at(other, block_devices.start_of(name, sys=sys), sys) if name != whole else other


def _partition_at(name: str, start_bytes: int, sys: Path) -> str:
    """The partition of `name` that starts at `start_bytes`; `name` itself if there is none."""
    parts = block_devices.partitions_of(name, sys=sys)
    return next((one for one in parts if block_devices.start_of(one, sys=sys) == start_bytes), name)


def _overlap(loop: Loop, other: Loop) -> bool:
    if loop.backing != other.backing:
        mine, theirs = _stat(loop.backing), _stat(other.backing)
        if mine is None or theirs is None or not os.path.samestat(mine, theirs):
            return False
    ends = (one.end_bytes if one.end_bytes is not None else 1 << 63 for one in (loop, other))
    return max(loop.start_bytes, other.start_bytes) < min(ends)


def _backs(name: str, loop: Loop) -> Use:
    device = f"/dev/{loop.name}"
    return Use(
        name=name,
        text=f"behind the loop device {device}",
        remedy=f"unmount that and detach it (losetup --detach {device})",
    )


def _is_claimed(name: str) -> bool:
    """Whether a mount, swap, md, dm or another program holds the device with O_EXCL."""
    try:
        flags = os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC
        os.close(os.open(block_devices.node_of(name), flags))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def _loops(sys: Path) -> Iterator[Loop]:
    for name in block_devices.all_names(sys=sys):
        if name.startswith("loop") and (loop := block_devices.loop_of(name, sys=sys)) is not None:
            yield loop


def swaps() -> list[str]:
    """The paths of devices and files that are used as swap."""
    try:
        lines = os.fsdecode(Path("/proc/swaps").read_bytes()).split("\n")[1:]
    except OSError:
        return []
    return [line.split()[0].replace("\\040", " ") for line in lines if line.strip()]


def _name_of_node(path: str) -> str | None:
    """The kernel's name of the block device node `path`; None if `path` is not one."""
    found = _stat(path)
    if found is None or not stat.S_ISBLK(found.st_mode):
        return None
    return block_devices.name_of((os.major(found.st_rdev), os.minor(found.st_rdev)))


def _stat(path: str) -> os.stat_result | None:
    """The status of `path`; None if it is unknown, or if the call might hang."""
    if not path.startswith("/"):
        return None
    if not path.startswith("/dev/") or path.startswith("/dev/shm/"):
        above = [mount for mount in mounts() if Path(path).is_relative_to(mount.mount_point)]
        if above and max(above, key=lambda mount: len(mount.mount_point)).type.startswith(_MAY_HANG):
            return None
    try:
        return Path(path).stat()
    except OSError:
        return None
