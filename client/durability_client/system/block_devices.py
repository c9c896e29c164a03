"""Block devices as /sys shows them: the layers below a file system or device, down to the drives.

The module only reads, and needs no privileges. Unknown values are None or "", never guessed. A loop device
counts as a drive; only `backing_file` leads to the layers below. `sys` is the root of the sysfs tree, so that
trees of other machines can be read, too.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from durability.formats.drive_serials import is_named_by_users, is_nobodys
from durability.formats.facts import Drive
from durability_client.system.smart import unsafe_shutdowns

SYS = Path("/sys")
_SYS_SECTOR_BYTES = 512  # unit of sizes and starts in /sys, for any block size of the drive
# Fields of /sys/block/*/stat, see Documentation/block/stat.rst
_STAT_READS, _STAT_WRITES, _STAT_WRITE_SECTORS, _STAT_FLUSHES = 0, 4, 6, 15
_EMULATED_NAME = re.compile(r"(vd|xvd)[a-z]+")
_EMULATED_MODEL = re.compile(
    r"qemu|vbox|virtualbox|vmware|virtio|xen|msft|parallels|iet virtual|amazon elastic|amazon ec2|googledisk"
    r"|persistentdisk|nvme_card",
    re.I,
)
# Only without a vendor, as on Hyper-V. With one it may be a RAID controller's volume, as "Dell VIRTUAL DISK".
_VIRTUAL = re.compile("virtual", re.I)
_CRYPT_UUID = re.compile(r"CRYPT-[A-Z0-9]+-[0-9a-f]{32}(?=-|$)")
# Prefixes of the UUIDs that `integritysetup` gives its devices, and cryptsetup the lower device of LUKS2 with
# --integrity.
_DM_INTEGRITY = ("CRYPT-INTEGRITY-", "CRYPT-SUBDEV-")
# Links that are hard to type: world-wide names and UUIDs.
_LONG_LINK = re.compile(r"wwn-|nvme-(eui|nvme|uuid)\.|scsi-[0-9]|(lvm-pv|dm|md)-uuid-")


@dataclass(frozen=True, slots=True)
class Stack:
    """The layers below a device, down to its leaves."""

    layers: tuple[str, ...]  # from the top device down, each once, as "name (kind)"
    leaves: tuple[str, ...]  # names of the leaves, each once
    # Byte of its only drive, `leaves[0]`, at which the top device starts. None if layers make it meaningless.
    offset_bytes: int | None
    volume: str  # identifies the top device if `offset_bytes` is None; "" if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCounters:
    """Counts of completed requests of a drive, or a difference of two. `flushes` None: not counted."""

    reads: int
    writes: int
    write_kib: int
    flushes: int | None


def name_of(device_number: tuple[int, int], *, sys: Path = SYS) -> str | None:
    """The kernel's name of the block device with this major and minor number; None if there is none."""
    link = sys / "dev" / "block" / f"{device_number[0]}:{device_number[1]}"
    return link.resolve().name if link.exists() else None


def number_of(name: str, *, sys: Path = SYS) -> int | None:
    """The number of the block device `name`, as in `st_rdev`; None if it is gone."""
    major, colon, minor = text_of(_class(name, sys) / "dev").partition(":")
    return os.makedev(int(major), int(minor)) if colon else None


def node_of(name: str) -> Path:
    """The node of the block device with this kernel name. In the name, `!` stands for `/`, as in etherd!e0.0
    of ATA over Ethernet."""
    return Path("/dev", name.replace("!", "/"))


def stack_of(names: tuple[str, ...], *, beside: tuple[str, ...] = (), sys: Path = SYS) -> Stack:
    """The stack below the block devices `names`, which together hold one file system or target, and below
    the devices `beside` them, which hold its log. Offset and volume are those of `names`."""
    layers, leaves = _descend(names, sys)
    layers_beside, leaves_beside = _descend(beside, sys)
    offset = None
    if len(names) == 1 and len(leaves) == 1:
        if names[0] == leaves[0]:
            offset = 0
        elif _is_partition(names[0], sys) and _below(names[0], sys) == leaves:
            offset = (_number(_class(names[0], sys) / "start") or 0) * _SYS_SECTOR_BYTES
    volume = _volume(names[0], sys) if len(names) == 1 and offset is None else ""
    return Stack(
        layers=tuple(dict.fromkeys(layers + layers_beside)),
        leaves=tuple(dict.fromkeys(leaves + leaves_beside)),
        offset_bytes=offset,
        volume=volume,
    )


def _descend(names: tuple[str, ...], sys: Path) -> tuple[list[str], list[str]]:
    """The layers from the devices `names` down, as "name (kind)", and the leaves, each once."""
    layers: list[str] = []
    leaves: list[str] = []
    pending = list(names)
    while pending:
        name = pending.pop(0)
        below = _below(name, sys)
        entry = f"{name} ({_what(name, sys)})"
        if entry not in layers:
            layers.append(entry)
            pending.extend(below)
            if not below:
                leaves.append(name)
    return layers, leaves


def drive(name: str, *, sys: Path = SYS) -> Drive:
    """The facts of the leaf `name`."""
    block = _class(name, sys)
    model = model_of(name, sys=sys)
    emulated = bool(_EMULATED_NAME.fullmatch(name) or _EMULATED_MODEL.search(model))
    emulated = emulated or (not _vendor(block / "device") and _VIRTUAL.search(model) is not None)
    emulated = emulated or is_named_by_users(model)
    rotational, fua = _number(block / "queue" / "rotational"), _number(block / "queue" / "fua")
    return Drive(
        name=name,
        model=model,
        serial=_serial(block),
        firmware=_first_text(
            block / "device" / "firmware_rev", block / "device" / "rev", block / "device" / "fwrev"
        ),
        size_bytes=size_of(name, sys=sys),
        logical_block_bytes=_number(block / "queue" / "logical_block_size") or 512,
        physical_block_bytes=_number(block / "queue" / "physical_block_size") or 512,
        rotational=None if rotational is None else bool(rotational),
        write_cache=text_of(block / "queue" / "write_cache") or None,
        fua=None if fua is None else bool(fua),
        diskseq=diskseq_of(name, sys=sys),
        unsafe_shutdowns=None if emulated else unsafe_shutdowns_of(name, sys=sys),
        atomic_write_bytes=_number(block / "queue" / "atomic_write_max_bytes") or None,
        flushes=flushes_of(name, sys=sys),
        emulated=emulated,
        wwid=wwid_of(name, sys=sys) or text_of(block / "device" / "cid"),
    )


def unsafe_shutdowns_of(name: str, *, sys: Path = SYS) -> int | None:
    """The drive's count of unsafe shutdowns; None if it cannot be read, or is no evidence of a power cut.

    A drive on USB loses its supply at each clean power-off too, and Linux does not tell it to stop before.
    """
    if name.startswith("loop") or is_on_usb(name, sys=sys):
        return None
    return unsafe_shutdowns(node_of(name))


def is_on_usb(name: str, *, sys: Path = SYS) -> bool:
    """Whether the drive `name` is attached by USB."""
    return any(part.startswith("usb") for part in _class(name, sys).resolve().parts)


def model_of(name: str, *, sys: Path = SYS) -> str:
    """The model of the drive `name`, with its vendor if that is meaningful."""
    device = _class(name, sys) / "device"
    return f"{_vendor(device)} {_first_text(device / 'model', device / 'name')}".strip()


def _vendor(device: Path) -> str:
    """The vendor of a drive; "" if the field holds only its interface or a number."""
    vendor = text_of(device / "vendor")
    return "" if vendor == "ATA" or vendor.startswith("0x") else vendor


def size_of(name: str, *, sys: Path = SYS) -> int:
    """Bytes of the block device `name`, 0 if it is gone."""
    return (_number(_class(name, sys) / "size") or 0) * _SYS_SECTOR_BYTES


def is_host_managed(name: str, *, sys: Path = SYS) -> bool:
    """Whether the device `name` is of zones that take only sequential writes."""
    return text_of(_class(whole_of(name, sys=sys), sys) / "queue" / "zoned") == "host-managed"


def diskseq_of(name: str, *, sys: Path = SYS) -> int | None:
    """The number that the kernel gave the disk `name` at its enumeration; None if it gives none."""
    return _number(_class(name, sys) / "diskseq")


def counters_of(name: str, *, sys: Path = SYS) -> DiskCounters | None:
    """Completed requests of the drive `name` since its enumeration; None if they are not counted.

    Linux counts a write with FUA as a write, and a flush without data as a flush and a write.
    """
    stat = text_of(_class(name, sys) / "stat").split()
    if len(stat) <= _STAT_WRITE_SECTORS or _number(_class(name, sys) / "queue" / "iostats") == 0:
        return None
    return DiskCounters(
        reads=int(stat[_STAT_READS]),
        writes=int(stat[_STAT_WRITES]),
        write_kib=int(stat[_STAT_WRITE_SECTORS]) * _SYS_SECTOR_BYTES // 1024,
        flushes=int(stat[_STAT_FLUSHES])
        if len(stat) > _STAT_FLUSHES and _counts_flushes(name, sys)
        else None,
    )


def _counts_flushes(name: str, sys: Path) -> bool:
    """Whether Linux counts the flushes of the drive `name`. It does not for a path of dm-multipath, which
    counts them for all paths together, nor for a drive under NVMe's own multipath."""
    uuids = (text_of(_class(holder, sys) / "dm" / "uuid") for holder in holders_of(name, sys=sys))
    by_nvme = (_class(name, sys) / "device").resolve().name.startswith("nvme-subsys")
    return not by_nvme and not any(uuid.startswith("mpath-") for uuid in uuids)


def flushes_of(name: str, *, sys: Path = SYS) -> int | None:
    """Completed flush requests of the drive `name` since its enumeration; None if not counted."""
    counters = counters_of(name, sys=sys)
    return None if counters is None else counters.flushes


def backing_file(name: str, *, sys: Path = SYS) -> Path | None:
    """The file behind the loop device `name`; None for other devices, or if the file has no name now."""
    backing = Path(text_of(_class(name, sys) / "loop" / "backing_file") or ".")
    try:
        return backing if backing.is_file() else None
    except OSError:  # a FUSE file system whose process has ended
        return None


def device_at(serial: str, offset_bytes: int, *, sys: Path = SYS) -> Path | None:
    """The device that starts at `offset_bytes` of the drive with `serial`, whatever its current name; None if
    none or several match."""
    found = []
    for entry in (sys / "class" / "block").glob("*"):
        stack = stack_of((entry.name,), sys=sys)
        serials = [_serial(_class(leaf, sys)) for leaf in stack.leaves]
        if (stack.offset_bytes, serials) == (offset_bytes, [serial]):
            found.append(node_of(entry.name))
    return found[0] if len(found) == 1 else None


def link_to(device: Path, *, links: Path = Path("/dev/disk/by-id")) -> Path | None:
    """A link to `device` that stays the same after a restart; None if there is none."""
    found = [link for link in links.glob("*") if link.resolve() == device]
    return min(found, key=lambda link: (bool(_LONG_LINK.match(link.name)), link.name), default=None)


def drop_backing_cache(name: str, *, sys: Path = SYS) -> None:
    """Drop the kernel's cached pages of the file behind `name`, if that is a loop device."""
    backing = backing_file(name, sys=sys)
    if backing is None:
        return
    with suppress(OSError):  # reads of the file fail, too; or it is another user's and stays cached
        fd = os.open(backing, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def is_read_only(name: str, *, sys: Path = SYS) -> bool:
    """Whether the kernel refuses writes to the device."""
    return _number(_class(name, sys) / "ro") == 1


def partitions_of(name: str, *, sys: Path = SYS) -> list[str]:
    """The kernel's names of the partitions of the device `name`."""
    return sorted(entry.parent.name for entry in _class(name, sys).glob("*/partition"))


def holders_of(name: str, *, sys: Path = SYS) -> list[str]:
    """The md, dm and similar devices that are built on the device `name`."""
    return sorted(entry.name for entry in _class(name, sys).glob("holders/*"))


def mapped_to(name: str, *, sys: Path = SYS) -> list[str]:
    """The devices below the device-mapper volume `name` (LVM, multipath, dm-crypt); [] for other devices."""
    return _below(name, sys) if (_class(name, sys) / "dm").exists() else []


def whole_of(name: str, *, sys: Path = SYS) -> str:
    """The whole device of the partition `name`; `name` itself for any other device."""
    return _below(name, sys)[0] if _is_partition(name, sys) else name


def start_of(name: str, *, sys: Path = SYS) -> int:
    """The byte at which the device `name` starts on its whole device."""
    return (_number(_class(name, sys) / "start") or 0) * _SYS_SECTOR_BYTES


def is_misaligned(name: str, *, sys: Path = SYS) -> bool:
    """Whether the device `name` is known to start inside a physical block of the device below."""
    physical = _number(_class(whole_of(name, sys=sys), sys) / "queue" / "physical_block_size")
    if physical is None or physical <= _SYS_SECTOR_BYTES:
        return False  # every device starts at a sector
    # Offset to the first multiple of all members' blocks; -1 if the members are not aligned to each other.
    offset = text_of(_class(name, sys) / "alignment_offset")
    return offset == "-1" or (offset.isdecimal() and int(offset) % physical > 0)


def serial_of(name: str, *, sys: Path = SYS) -> str:
    """The serial of the drive `name`; "" if it has none."""
    return _serial(_class(name, sys))


def may_be_one_drive(name: str, other: str, *, sys: Path = SYS) -> bool:
    """Whether two devices have one world-wide name, and no serials that differ: makers have given one name to
    all drives of a model."""
    wwid = wwid_of(name, sys=sys)
    # The serial of a drive that gives none is its world-wide name.
    serials = {serial_of(name, sys=sys), serial_of(other, sys=sys)} - {"", wwid}
    return bool(wwid) and wwid == wwid_of(other, sys=sys) and len(serials) < 2


def wwid_of(name: str, *, sys: Path = SYS) -> str:
    """The world-wide name of the drive `name`; "" if it has none, or one that is not registered or not
    unique."""
    wwid = _first_text(_class(name, sys) / "wwid", _class(name, sys) / "device" / "wwid")
    kind, _, number = wwid.partition(".")
    return wwid if kind in ("naa", "eui", "uuid") and not is_nobodys(number) else ""


def nvme_drive_of(name: str, *, sys: Path = SYS) -> str:
    """An identifier that only the namespaces of one NVMe drive share; "" for other drives, and for NVMe over
    a network. Namespaces of one drive share its cache and its power supply."""
    device = _class(name, sys) / "device"
    ways = [text_of(place / "transport") for place in (device, *sorted(device.glob("nvme*")))]
    subsystem, serial = text_of(device / "subsysnqn"), text_of(device / "serial")
    return f"{subsystem} {serial}" if subsystem and serial and "pcie" in ways else ""


def all_names(*, sys: Path = SYS) -> list[str]:
    """The kernel's names of all block devices, partitions included."""
    return sorted(entry.name for entry in (sys / "class" / "block").glob("*"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop device that is set up."""

    name: str
    backing: str  # path of its file or device, as the kernel reports it
    start_bytes: int
    end_bytes: int | None  # None: the end of the file or device


def loop_of(name: str, *, sys: Path = SYS) -> Loop | None:
    """The configuration of the loop device `name`; None for other devices."""
    directory = _class(name, sys) / "loop"
    backing = text_of(directory / "backing_file")
    if not backing:
        return None
    start, size = _number(directory / "offset") or 0, _number(directory / "sizelimit") or 0
    return Loop(name=name, backing=backing, start_bytes=start, end_bytes=start + size if size else None)


def _class(name: str, sys: Path) -> Path:
    return sys / "class" / "block" / name


def _is_partition(name: str, sys: Path) -> bool:
    return (_class(name, sys) / "partition").exists()


def _below(name: str, sys: Path) -> list[str]:
    """The devices directly below `name`: a partition's whole device, or a stacked device's members."""
    directory = _class(name, sys)
    if _is_partition(name, sys):
        return [directory.resolve().parent.name]
    try:
        return sorted(entry.name for entry in (directory / "slaves").iterdir())
    except OSError:
        return []


def _volume(name: str, sys: Path) -> str:
    """The UUID of the device-mapper or md volume `name`, with a start for a partition of one; "" if it has no
    unique one."""
    if _is_partition(name, sys):
        whole = _volume(whole_of(name, sys=sys), sys)
        return f"{whole} at {start_of(name, sys=sys)}" if whole else ""
    directory = _class(name, sys)
    if array := text_of(directory / "md" / "uuid"):
        return f"md-{array}"
    mapped = text_of(directory / "dm" / "uuid")
    if mapped.startswith("CRYPT-"):  # ends with the current name of the device
        known = _CRYPT_UUID.match(mapped)
        return known[0] if known else ""
    return mapped


def _what(name: str, sys: Path) -> str:
    directory = _class(name, sys)
    if _is_partition(name, sys):
        return "partition"
    if level := text_of(directory / "md" / "level"):
        return f"md {level}"
    if uuid := text_of(directory / "dm" / "uuid"):
        if uuid.startswith(_DM_INTEGRITY):
            return "dm integrity"
        return f"dm {uuid.split('-')[0].lower()}"
    for prefix, kind in (("dm-", "dm"), ("md", "md"), ("bcache", "bcache"), ("loop", "loop")):
        if name.startswith(prefix):
            return kind
    return "drive"


def _serial(block: Path) -> str:
    """Serial number or WWN of a drive. For a loop device, its backing file, with its offset in the file if
    that is not 0. Namespaces of one NVMe drive share its serial, so all but the first have their number
    appended."""
    if backing := text_of(block / "loop" / "backing_file"):
        start = _number(block / "loop" / "offset")
        return f"loop:{backing}@{start}" if start else f"loop:{backing}"
    device = block / "device"
    plain = _first_text(block / "serial", device / "serial")
    if plain and (namespace := _number(block / "nsid") or 1) > 1:
        plain += f"/{namespace}"
    return plain or _vpd_serial(device) or _first_text(block / "wwid", device / "wwid", device / "cid")


def _vpd_serial(device: Path) -> str:
    """The unit serial number of a SCSI or SATA drive: VPD page 0x80, a 4-byte header and ASCII."""
    try:
        page = (device / "vpd_pg80").read_bytes()
    except OSError:
        return ""
    return page[4:].decode("ascii", errors="replace").strip("\0 ")


def text_of(path: Path) -> str:
    """The text of a file in /sys without white space at its ends; "" if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip("\0 \n\t")
    except OSError:
        return ""


def _first_text(*paths: Path) -> str:
    return next((text for text in map(text_of, paths) if text), "")


def _number(path: Path) -> int | None:
    text = text_of(path)
    return int(text) if text.isdecimal() else None
