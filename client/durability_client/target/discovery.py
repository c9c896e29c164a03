"""Gathers the facts of a target and its machine. The facts are stored with the verdict and identify the
target later.

Reads /proc, /sys and, if installed, the output of blkid, smartctl, zfs and systemd-detect-virt. Writes
nothing and refuses nothing. A target that does not exist, yet or any more, gets the facts of the place where
it would be.
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
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from durability.formats.documents import escaped
from durability.formats.facts import Facts, FileSystem, Host
from durability.formats.plan import TargetKind
from durability_client.system import block_devices, log_devices
from durability_client.system.block_devices import Stack
from durability_client.system.mounts import Mount, mount_of, mounts
from durability_client.system.programs import output_of
from durability_client.target.storage import PresentDrive
from durability_client.target.target_warnings import JOURNAL_LESS, NO_JOURNAL, host_warnings, target_warnings

_PRODUCT_OF_HYPERVISOR = re.compile(
    r"qemu|kvm|vmware|virtualbox|xen|amazon ec2|google|openstack|virtual machine|vserver"
    r"|apple virtualization|parallels|bhyve",
    re.I,
)
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_DEVICE_TREE = Path("/sys/firmware/devicetree/base")
_MACHINES_OF_QEMU = ("linux,dummy-virt", "qemu,pseries")
_REMOTE = re.compile(r"nfs4?|cifs|smb3|9p|virtiofs|ceph|lustre|afs|fuse.*")
_PAGE_BYTES = 4096
_FS_IOC_GETFSUUID = 0x80111500  # _IOR(0x15, 0, struct fsuuid2), linux/fs.h
_UUID_ANSWER_BYTES = 17
_FS_IOC_GETVERSION = 0x80087601  # _IOR('v', 1, long), linux/fs.h: the inode's generation
_FS_IOC_GETFLAGS = 0x80086601  # _IOR('f', 1, long), linux/fs.h: chattr's attributes
_FS_JOURNAL_DATA_FL = 0x4000
_WITH_GENERATION = frozenset({"ext2", "ext3", "ext4", "xfs", "f2fs"})
# _IOWR(0x94, 18, 4096 bytes), linux/btrfs.h; tree 0 stands for the file's subvolume.
_BTRFS_IOC_INO_LOOKUP = 0xD0009412
_BTRFS_FIRST_FREE_OBJECTID = 256


def collect(path: Path, kind: TargetKind, *, typed: Path | None = None) -> Facts:
    """All current facts of the target at `path` (absolute, symbolic links resolved) and of this machine.
    `typed`: the path before links were resolved.

    Facts that are missing or unreadable are None or empty, and raise nothing. Bytes of names that are not
    UTF-8 are escaped.
    """
    host = host_now()  # first: a drive may delay the rest, and the judge counts from the start of this call
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
        warnings=(
            *target_warnings(
                path=str(path),
                file_system=file_system,
                layers=stack.layers,
                drives=drives,
                virtualisation=host.virtualisation,
                is_whole=is_whole,
            ),
            *host_warnings(host, own_boot_id=has_own_boot_id(mounts())),
        ),
        volume=stack.volume,
        named=_named(path, kind, typed),
        file_id=_file_id(path, mount.type) if mount is not None else "",
    )
    return escaped(facts)


def _file_id(path: Path, file_system: str) -> str:
    """Inode number, with a generation that distinguishes it from an earlier inode with the same number, or
    with a subvolume that distinguishes it from a snapshot. "" if unknown."""
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
    """A path that still leads to the target after a restart: `typed`, or a stable link to a device. A device
    name may change, because it depends on the order of detection. "" if there is no such path."""
    if typed is not None and typed != path:
        return str(typed)
    link = block_devices.link_to(path) if kind == "device" else None
    return "" if link is None else str(link)


def file_system_of(path: Path) -> FileSystem | None:
    """The file system that holds `path`, or its nearest existing parent; None if that is unknown."""
    mount = mount_of(path)
    return None if mount is None else escaped(_file_system(mount, _names_below(mount)))


def is_on_root(path: Path) -> bool:
    """Whether the directory `path` is on the root file system, whatever its mount point."""
    mount, root = mount_of(path), mount_of(Path("/"))
    if mount is None or root is None:  # not Linux, or a chroot, whose root is not a mount point
        return path.stat().st_dev == Path("/").stat().st_dev
    return mount.device_number == root.device_number


def drives_below(path: Path) -> tuple[str, ...]:
    """The kernel's names of the drives below the file system that holds `path`; () if there are none."""
    mount = mount_of(path)
    return () if mount is None else _stack_below(mount, _names_below(mount))[0].leaves


def drives_under_loop(name: str) -> tuple[str, ...]:
    """The drives below the file of the loop device `name`; () for other devices, and if none are known."""
    file = block_devices.backing_file(name)
    return () if file is None else drives_below(file)


def is_misaligned(path: Path, kind: TargetKind) -> bool:
    """Whether a device that holds the target begins inside a physical block of its drives. This is known
    even for devices on layers whose offset is unknown."""
    mount = None if kind == "device" else mount_of(path)
    names = _names_of_device(path) if mount is None else _names_below(mount)
    return any(map(block_devices.is_misaligned, names))


def drive_states(path: Path, kind: TargetKind) -> tuple[PresentDrive, ...]:
    """Size and diskseq of the drives below the target, () if there are none. Sends no command to a drive."""
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
    """The stack below the devices `names`, which hold the target or its file system, and below an external
    log of that file system. Also returns whether all devices are known."""
    others, is_whole = log_devices.beside(mount, names) if mount is not None else ((), True)
    return block_devices.stack_of(names, beside=others), is_whole


def _names_below(mount: Mount) -> tuple[str, ...]:
    """The block devices of a mounted file system: one, or several for btrfs, or none for other types."""
    name = block_devices.name_of(mount.device_number)
    if name is not None:
        return (name,)
    source = Path(mount.source)
    try:
        if not (source.is_absolute() and source.is_block_device()):
            return ()
    except OSError:  # the name is too long: mergerfs joins the names of all its branches
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
    """Whether the file system of `path` is known to journal the data of the file `fd`: by a mount option, by
    a default of the file system, or by an attribute of the file (chattr +j)."""
    mount = mount_of(path)
    if mount is None:
        return False
    if "data=journal" in mount.options.split(","):
        return True
    if mount.type not in ("ext3", "ext4"):  # ext4's driver serves both
        return False
    with suppress(OSError):
        flags = fcntl.ioctl(fd, _FS_IOC_GETFLAGS, bytes(struct.calcsize("l")))
        if int.from_bytes(flags[:4], sys.byteorder) & _FS_JOURNAL_DATA_FL:
            return True
    # The mount options do not include defaults of the file system (tune2fs -o journal_data).
    options = (block_devices.text_of(Path("/proc/fs/ext4", name, "options")) for name in _names_below(mount))
    return any("data=journal" in text.splitlines() for text in options)


def _is_ext4_without_journal(mount: Mount, names: tuple[str, ...]) -> bool:
    """Whether the mount is an ext4 without a journal: then /sys shows no number of a journal thread."""
    if mount.type != "ext4" or not names:
        return False
    try:
        task = (Path("/sys/fs/ext4") / names[0] / "journal_task").read_text()
    except OSError:
        return False  # the kernel does not show it; a file system without a journal is rare
    return not task.strip().isdecimal()


def _block_bytes(mount: Mount) -> int:
    """The file system's block size. A page for remote file systems, which report a preferred transfer size
    instead, and if the size is unknown."""
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
    """The UUID from the ioctl FS_IOC_GETFSUUID, which returns a length (16) and the UUID; "" if unknown."""
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
    """The path relative to the root of the file system, also if only a part of it is mounted."""
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
    """Nanoseconds since the start of the system, including sleep."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def host_now() -> Host:
    """Facts of this machine and its current boot."""
    return Host(
        machine_id=_machine_id(),
        boot_id=_first_line(_BOOT_ID) or output_of("sysctl", "-n", "kern.bootsessionuuid"),
        uptime_ns=uptime_ns(),
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        virtualisation=_virtualisation(),
        hostname=platform.node(),
    )


def has_own_boot_id(mounted: Iterable[Mount]) -> bool:
    """Whether a container has a boot id that is not the kernel's, which LXC and systemd-nspawn mount over
    it."""
    return any(mount.mount_point == _BOOT_ID for mount in mounted)


def _machine_id() -> str:
    """The id of this system; on macOS that of its hardware; "" if it has none."""
    named = _first_line("/etc/machine-id") or _first_line("/var/lib/dbus/machine-id")
    if named or sys.platform != "darwin":
        return named
    said = output_of("ioreg", "-rd1", "-c", "IOPlatformExpertDevice")
    found = re.search(r'"IOPlatformUUID" = "([^"]+)"', said)
    return found[1] if found else ""


def _virtualisation() -> str:
    """The hypervisor's name, or "none". A container does not count as a virtual machine."""
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
    """The hypervisor named in the device tree, which many ARM machines have instead of DMI; or ""."""
    names = block_devices.text_of(tree / "hypervisor" / "compatible").split("\0")[:1]
    machine = block_devices.text_of(tree / "compatible").split("\0")
    names += ["qemu" for name in machine if name in _MACHINES_OF_QEMU]
    return next((name.rpartition(",")[2] for name in names if name), "")


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").partition("\n")[0].strip()
    except OSError:
        return ""
