"""Gathers the facts of a target and its machine: what the verdict will be about, and how to know it again.

Reads /proc, /sys and, where they are installed, blkid, smartctl, zfs and systemd-detect-virt; writes nothing
and refuses nothing. It works for a target that does not exist (yet, or any more): then the facts are those of
the place where it would be.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import stat
import struct
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

from durability.formats.documents import escaped
from durability.formats.facts import Facts, FileSystem, Host
from durability.formats.plan import TargetKind
from durability_client.system import block_devices, log_devices
from durability_client.system.block_devices import Stack
from durability_client.system.mounts import Mount, mount_of
from durability_client.system.programs import output_of
from durability_client.target.storage import PresentDrive
from durability_client.target.target_warnings import JOURNAL_LESS, NO_JOURNAL, target_warnings

_PRODUCT_OF_HYPERVISOR = re.compile(
    r"qemu|kvm|vmware|virtualbox|xen|amazon ec2|google|openstack|virtual machine|vserver"
    r"|apple virtualization|parallels|bhyve",
    re.I,
)
_DEVICE_TREE = Path("/sys/firmware/devicetree/base")
_MACHINES_OF_QEMU = ("linux,dummy-virt", "qemu,pseries")
_REMOTE = re.compile(r"nfs4?|cifs|smb3|9p|virtiofs|ceph|lustre|afs|fuse.*")
_PAGE_BYTES = 4096
_FS_IOC_GETFSUUID = 0x80111500  # _IOR(0x15, 0, struct fsuuid2), linux/fs.h
_UUID_ANSWER_BYTES = 17
_FS_IOC_GETVERSION = 0x80087601  # _IOR('v', 1, long), linux/fs.h: the inode's generation
_FS_IOC_GETFLAGS = 0x80086601  # _IOR('f', 1, long), linux/fs.h: what chattr sets
_FS_JOURNAL_DATA_FL = 0x4000
_WITH_GENERATION = frozenset({"ext2", "ext3", "ext4", "xfs", "f2fs"})
# _IOWR(0x94, 18, 4096 bytes), linux/btrfs.h; in tree 0: the file's subvolume.
_BTRFS_IOC_INO_LOOKUP = 0xD0009412
_BTRFS_FIRST_FREE_OBJECTID = 256


def collect(path: Path, kind: TargetKind, *, typed: Path | None = None) -> Facts:
    """All facts of the target at `path` (absolute, symbolic links resolved) on this machine now. `typed`: the
    path that was resolved.

    Raises nothing for what is missing or unreadable: such facts are None or empty. Bytes of a name that are
    no UTF-8 are escaped.
    """
    host = host_now()  # first: a drive may hold up the rest, and the judge counts from when this began
    mount = None if kind == "device" else mount_of(path)
    names = _names_of_device(path) if mount is None else _names_below(mount)
    stack, is_whole = _stack_below(mount, names)
    drives = tuple(block_devices.drive(name) for name in stack.leaves)
    file_system = None if mount is None else _file_system(mount, names)
    facts = Facts(
        host=host,
        path=str(path),
        path_in_file_system="" if mount is None else _path_in(mount, path),
        kind=kind,
        size_bytes=_size(path),
        offset_bytes=stack.offset_bytes,
        file_system=file_system,
        layers=stack.layers,
        drives=drives,
        warnings=target_warnings(
            path=str(path),
            file_system=file_system,
            layers=stack.layers,
            drives=drives,
            virtualisation=host.virtualisation,
            is_whole=is_whole,
        ),
        volume=stack.volume,
        named=_named(path, kind, typed),
        file_id=_file_id(path, mount.type) if mount is not None else "",
    )
    return escaped(facts)


def _file_id(path: Path, file_system: str) -> str:
    """Inode and what tells it from an earlier one with its number, or from itself in a snapshot."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return ""
        if file_system in _WITH_GENERATION:
            answer = fcntl.ioctl(fd, _FS_IOC_GETVERSION, bytes(struct.calcsize("l")))
            return f"{status.st_ino}.{int.from_bytes(answer[:4], sys.byteorder)}"
        if file_system == "btrfs":
            lookup = bytearray(struct.pack("=QQ4080x", 0, _BTRFS_FIRST_FREE_OBJECTID))
            fcntl.ioctl(fd, _BTRFS_IOC_INO_LOOKUP, lookup)
            return f"{int.from_bytes(lookup[:8], sys.byteorder)}:{status.st_ino}"
    except OSError:
        return ""
    finally:
        os.close(fd)
    return ""


def _named(path: Path, kind: TargetKind, typed: Path | None) -> str:
    """A path that leads to the target after a restart too, where `path` may not: a device has its name by the
    order in which it is found."""
    if typed is not None and typed != path:
        return str(typed)
    link = block_devices.link_to(path) if kind == "device" else None
    return "" if link is None else str(link)


def file_system_of(path: Path) -> FileSystem | None:
    """The file system that holds `path`, or its nearest parent that exists; None where that is unknown."""
    mount = mount_of(path)
    return None if mount is None else escaped(_file_system(mount, _names_below(mount)))


def is_on_root(path: Path) -> bool:
    """Whether `path`, a directory, lies on the root file system, wherever that is mounted."""
    mount, root = mount_of(path), mount_of(Path("/"))
    if mount is None or root is None:  # no Linux, or a chroot, whose root is no mount
        return path.stat().st_dev == Path("/").stat().st_dev
    return mount.device_number == root.device_number


def drives_below(path: Path) -> tuple[str, ...]:
    """The kernel's names of the drives under the file system that holds `path`; () where it has none."""
    mount = mount_of(path)
    return () if mount is None else _stack_below(mount, _names_below(mount))[0].leaves


def drives_under_loop(name: str) -> tuple[str, ...]:
    """The drives under the file of the loop device `name`; () for another device, and where none are
    known."""
    file = block_devices.backing_file(name)
    return () if file is None else drives_below(file)


def is_misaligned(path: Path, kind: TargetKind) -> bool:
    """Whether a device that holds the target begins within a physical block of its drives. That is known
    through layers too, though not at which offset."""
    mount = None if kind == "device" else mount_of(path)
    names = _names_of_device(path) if mount is None else _names_below(mount)
    return any(map(block_devices.is_misaligned, names))


def drive_states(path: Path, kind: TargetKind) -> tuple[PresentDrive, ...]:
    """Size and diskseq of the drives below the target, without asking any drive; () where there is none."""
    mount = None if kind == "device" else mount_of(path)
    names = _names_of_device(path) if mount is None else _names_below(mount)
    return tuple(
        PresentDrive(
            name=name, size_bytes=block_devices.size_of(name), diskseq=block_devices.diskseq_of(name)
        )
        for name in _stack_below(mount, names)[0].leaves
    )


def _names_of_device(path: Path) -> tuple[str, ...]:
    try:
        number = path.stat().st_rdev
    except OSError:
        return ()
    name = block_devices.name_of((os.major(number), os.minor(number)))
    return () if name is None else (name,)


def _stack_below(mount: Mount | None, names: tuple[str, ...]) -> tuple[Stack, bool]:
    """What lies below the devices `names`, which hold the target or its file system, and below an external
    log of that; and whether all of it is known."""
    others, is_whole = log_devices.beside(mount, names) if mount is not None else ((), True)
    return block_devices.stack_of(names, beside=others), is_whole


def _names_below(mount: Mount) -> tuple[str, ...]:
    """The block devices that a mounted file system lies on: one, or several for btrfs; none for many
    others."""
    name = block_devices.name_of(mount.device_number)
    if name is not None:
        return (name,)
    source = Path(mount.source)
    try:
        if not (source.is_absolute() and source.is_block_device()):
            return ()
    except OSError:  # a name that is longer than names may be: mergerfs joins all its branches
        return ()
    names = _names_of_device(source)
    for members in Path("/sys/fs/btrfs").glob("*/devices"):
        together = tuple(sorted(entry.name for entry in members.iterdir()))
        if names and names[0] in together:
            return together
    return names


def _file_system(mount: Mount, names: tuple[str, ...]) -> FileSystem:
    options = mount.options
    if mount.type == "zfs" and (
        setting := output_of("zfs", "get", "-H", "-o", "value", "sync", mount.source)
    ):
        options = f"{options},sync={setting}"
    if _is_ext4_without_journal(mount, names):
        options = f"{options},{NO_JOURNAL}"
    return FileSystem(
        type=mount.type,
        uuid=_uuid(mount, names),
        source=mount.source,
        mount_point=mount.mount_point,
        options=options,
        block_bytes=_block_bytes(mount),
    )


def has_no_journal(path: Path) -> bool:
    """Whether the file system of `path` is known to have neither a journal nor copy-on-write."""
    mount = mount_of(path)
    if mount is None:
        return False
    return mount.type in JOURNAL_LESS or _is_ext4_without_journal(mount, _names_below(mount))


def has_data_in_journal(path: Path, fd: int) -> bool:
    """Whether the file system of `path` is known to put the data of the file `fd` into its journal, by an
    option of the mount, a default of the file system, or an attribute of the file (chattr +j)."""
    mount = mount_of(path)
    if mount is None:
        return False
    if "data=journal" in mount.options.split(","):
        return True
    if mount.type not in ("ext3", "ext4"):  # the driver of both is that of ext4
        return False
    with suppress(OSError):
        flags = fcntl.ioctl(fd, _FS_IOC_GETFLAGS, bytes(struct.calcsize("l")))
        if int.from_bytes(flags[:4], sys.byteorder) & _FS_JOURNAL_DATA_FL:
            return True
    # The options of a mount leave out what is a default of the file system (tune2fs -o journal_data).
    options = (block_devices.text_of(Path("/proc/fs/ext4", name, "options")) for name in _names_below(mount))
    return any("data=journal" in text.splitlines() for text in options)


def _is_ext4_without_journal(mount: Mount, names: tuple[str, ...]) -> bool:
    """Whether it is one: only with a journal does its journal thread have a number."""
    if mount.type != "ext4" or not names:
        return False
    try:
        task = (Path("/sys/fs/ext4") / names[0] / "journal_task").read_text()
    except OSError:
        return False  # a kernel that does not say; without a journal is the rare case
    return not task.strip().isdecimal()


def _block_bytes(mount: Mount) -> int:
    """What the file system writes at least; the preferred size that remote ones report is none of their
    blocks."""
    if _REMOTE.fullmatch(mount.type):
        return _PAGE_BYTES
    try:
        return os.statvfs(mount.mount_point).f_frsize
    except OSError:
        return _PAGE_BYTES


def _uuid(mount: Mount, names: tuple[str, ...]) -> str:
    """The file system's UUID: from the kernel (since 6.9), udev's links, or as root its superblock."""
    if from_kernel := _uuid_from_kernel(mount.mount_point):
        return from_kernel
    if not names:
        return ""
    node = block_devices.node_of(names[0])
    for link in Path("/dev/disk/by-uuid").glob("*"):
        if link.resolve() == node:
            return link.name
    return output_of("blkid", "-p", "-o", "value", "-s", "UUID", str(node))


def _uuid_from_kernel(directory: str) -> str:
    """What the ioctl FS_IOC_GETFSUUID says: a length, which is 16, and the UUID; "" where there is none."""
    answer = bytearray(_UUID_ANSWER_BYTES)
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.ioctl(fd, _FS_IOC_GETFSUUID, answer)
    except OSError:
        return ""
    finally:
        os.close(fd)
    known = answer[0] == _UUID_ANSWER_BYTES - 1 and any(answer[1:])
    return str(uuid.UUID(bytes=bytes(answer[1:]))) if known else ""


def _path_in(mount: Mount, path: Path) -> str:
    """The path from the root of the file system, whatever part of it is mounted where."""
    inside = os.path.relpath(path, mount.mount_point)
    return os.path.normpath(os.path.join(mount.root, inside)).lstrip("/")  # noqa: PTH118 - keeps ".." out


def _size(path: Path) -> int:
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
            return 0
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return os.lseek(fd, 0, os.SEEK_END)
    finally:
        os.close(fd)


def uptime_ns() -> int:
    """Since the start of the system, sleep included."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def host_now() -> Host:
    """This machine, and this boot of it."""
    return Host(
        machine_id=_first_line("/etc/machine-id") or _first_line("/var/lib/dbus/machine-id"),
        boot_id=_first_line("/proc/sys/kernel/random/boot_id"),
        uptime_ns=uptime_ns(),
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        virtualisation=_virtualisation(),
        hostname=platform.node(),
    )


def _virtualisation() -> str:
    """The hypervisor's name; a container is not a machine and does not count."""
    if named := output_of("systemd-detect-virt", "--vm"):
        return named
    product = f"{_first_line('/sys/class/dmi/id/sys_vendor')} {_first_line('/sys/class/dmi/id/product_name')}"
    if found := _PRODUCT_OF_HYPERVISOR.search(product):
        return found[0].lower()
    if hypervisor := _first_line("/sys/hypervisor/type") or hypervisor_of_device_tree():
        return hypervisor
    try:
        flags = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return "none"
    return "unknown hypervisor" if re.search(r"^flags\s*:.*\bhypervisor\b", flags, re.MULTILINE) else "none"


def hypervisor_of_device_tree(tree: Path = _DEVICE_TREE) -> str:
    """What the device tree says, which many ARM machines have in place of DMI; "" for nothing."""
    names = block_devices.text_of(tree / "hypervisor" / "compatible").split("\0")[:1]
    machine = block_devices.text_of(tree / "compatible").split("\0")
    names += ["qemu" for name in machine if name in _MACHINES_OF_QEMU]
    return next((name.rpartition(",")[2] for name in names if name), "")


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").partition("\n")[0].strip()
    except OSError:
        return ""
