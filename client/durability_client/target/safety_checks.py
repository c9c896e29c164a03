"""Checks before anything is written. They refuse targets that hold other data, and plans that prove nothing.

A run makes these checks: of the path (`check_path`), of its file system (`check_place`), of the plan
(`check_plan`), and of free space (`check_space`). Under the lock it checks whether a device is unchanged
(`check_held_device`), and the contents of a file (`check_contents`). Data that this tool did not create are
refused, unless `Consent` allows to overwrite them.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import shlex
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from durability import limits
from durability.errors import NotOursError, TargetBusyError, TargetError, UsageError
from durability.formats.facts import Facts
from durability.formats.mixing import U64
from durability.formats.plan import CONTROL, MAIN, Plan, TargetKind, parse_name
from durability.formats.record import KIND_SUPERBLOCK, Sectors, parse
from durability_client.system import block_devices, device_users, opal
from durability_client.system.programs import find_tool
from durability_client.target import discovery, remembered_places
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.signatures import (
    Signature,
    is_member,
    signature_of,
    signatures_of,
    spans_devices,
)
from durability_client.target.storage import Storage, TargetFile
from durability_client.target.target_warnings import lacks_journal

Ends: TypeAlias = list[tuple[int, Sectors]]  # sectors at the two ends of a file, with their offsets

# Before Linux 6.6 these file systems wrote all blocks of a changed page: iomap tracked only whole pages.
_PAGES_WRITTEN_WHOLE = frozenset({"xfs", "gfs2", "zonefs"})
_BLOCKS_WRITTEN_ALONE_SINCE = (6, 6)
_LOOKS_AGAIN, _LOOK_AGAIN_S = 10, 0.2
_NAME_BYTES = 1024  # for a file's inode and directory entry: xfs needs about 600, btrfs twice 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What the user allowed on the command line."""

    destroy_data: bool = False
    force: bool = False
    allow_shared_blocks: bool = False


def block_bytes(facts: Facts, *, direct: bool) -> int:
    """Size of the blocks that a cut may tear on this target: the largest physical or file-system block.

    Without `direct` the page cache adds its own blocks. On a device they are at most a page, and a divisor of
    the device's size. In a file they are whole pages on some file systems.
    """
    sizes = [limits.SECTOR_BYTES, *(drive.physical_block_bytes for drive in facts.drives)]
    if facts.file_system is not None:
        sizes.append(facts.file_system.block_bytes)
    if facts.kind == "device" and not direct:
        sizes.append(min(mmap.PAGESIZE, facts.size_bytes & -facts.size_bytes))
    if facts.kind == "file" and not direct and _writes_whole_pages(facts):
        sizes.append(mmap.PAGESIZE)
    return max(sizes)


def _writes_whole_pages(facts: Facts) -> bool:
    """Whether unchanged blocks of a changed page are written, too. An unknown kernel counts as an old one."""
    if facts.file_system is None or facts.file_system.type not in _PAGES_WRITTEN_WHOLE:
        return False
    release = re.match(r"(\d+)\.(\d+)", facts.host.release)
    return release is None or (int(release[1]), int(release[2])) < _BLOCKS_WRITTEN_ALONE_SINCE


def name_bytes(record_bytes: int, facts: Facts) -> int:
    """Space for a file of one record on this target, including its inode and directory entry."""
    return _file_bytes(record_bytes, facts) + _NAME_BYTES


def check_path(path: Path, consent: Consent) -> None:
    """Refuse a path that cannot be a target. Called before the lock. Raises TargetError, UsageError."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        _check_new_name(path)
        _check_writable(path.parent, path.parent)
        _check_name(path)
        return
    except OSError as error:
        raise TargetError(f"{path}: cannot be examined: {error.strerror}") from error
    _check_kind(path, mode)
    if stat.S_ISBLK(mode):
        _check_device(path, consent)
    else:
        _check_writable(path, path.parent)
        _check_name(path)
        _check_file(path)


def check_erasable(path: Path) -> dict[str, tuple[Signature, ...]]:
    """Refuse a block device that must not be formatted although its own data may be erased.

    Such a device is in use or read-only, or is a part of RAID, LVM, ZFS, an encrypted device or a btrfs on
    several devices. The same applies to its partitions. Returns the signatures on the device, with key "",
    and in its partitions, with their numbers as keys. Raises TargetError.
    """
    _check_device(path, Consent(destroy_data=True, force=True))
    number = path.stat().st_rdev
    name = block_devices.name_of((os.major(number), os.minor(number))) or path.name
    members = {part: block_devices.node_of(part) for part in block_devices.partitions_of(name)}
    holds: dict[str, tuple[Signature, ...]] = {}
    for part, member in {name: path, **members}.items():
        holds[part.removeprefix(name).lstrip("p")] = found = signatures_of(member)
        for kind in (one.type for one in found):
            if is_member(kind) or (kind == "btrfs" and spans_devices(member)):
                raise NotOursError(
                    f"{member} is a part of something else ({kind}); take it out of that, then erase it"
                )
    return holds


def check_directory(directory: Path) -> None:
    """Refuse a directory in which this user cannot make files. Raises TargetError."""
    _check_writable(directory, directory)


def check_place(path: Path, consent: Consent) -> None:
    """Refuse a file or directory on a file system that the user probably did not mean, unless the user
    answers yes at the terminal (see `remembered_places`). Call it after the other checks of the path. Raises
    TargetError."""
    if not path.is_block_device():
        remembered_places.check(path, path if path.is_dir() else path.parent, force=consent.force)


def check_evidence(path: Path, consent: Consent) -> None:
    """Refuse a device that holds a run of this tool, perhaps unverified. Raises TargetError."""
    if not consent.force and holds_run(path):
        raise TargetError(
            f"{path} holds a run of this tool, which could no longer be verified; if it has been verified, "
            "add --force"
        )


def holds_run(path: Path) -> bool:
    """Whether a run of this tool wrote to the file or device. Raises TargetError if it cannot be read."""
    with mmap.mmap(-1, limits.SUPERBLOCK_BYTES) as buffer:
        return _is_ours(_ends(KernelStorage(path), MAIN, buffer))


def check_subject(path: Path) -> None:
    """Refuse to verify a path that cannot have been a target. A missing path passes. Raises TargetError."""
    with suppress(OSError):  # identity check and scan handle a path that cannot be examined
        _check_kind(path, path.stat().st_mode)


def check_unlocked(path: Path, kind: TargetKind, *, then: str) -> None:
    """Refuse a target on a self-encrypting drive that is locked: its data are there, but cannot be read.
    `then`: the command to repeat. Raises TargetError."""
    for drive in discovery.drive_states(path, kind):
        if opal.is_locked(drive.name):
            raise TargetError(f"the drive {drive.name} is locked (OPAL): unlock it first, then {then}")


def check_shown(path: Path) -> None:
    """Refuse to show a path that cannot be a target, or a new name in a missing directory: a typing error
    would show another drive. Raises TargetError."""
    try:
        _check_kind(path, path.stat().st_mode)
    except FileNotFoundError:
        _check_new_name(path)
    except OSError as error:
        raise TargetError(f"{path}: cannot be examined: {error.strerror}") from error


def check_plan(facts: Facts, plan: Plan, consent: Consent, *, is_misaligned: bool = False) -> None:
    """Refuse a plan whose verdict on this target would be meaningless, or that needs a larger device.
    `is_misaligned`: see `discovery`. Raises UsageError, TargetError."""
    if not consent.allow_shared_blocks:
        _check_blocks(facts, plan)
        _check_alignment(facts, is_misaligned=is_misaligned)
    if plan.direct:
        logical = max((drive.logical_block_bytes for drive in facts.drives), default=limits.SECTOR_BYTES)
        if plan.record_bytes % logical:
            raise UsageError(
                f"--direct needs a record size that is a multiple of the drive's logical block, {logical} "
                f"bytes, not {plan.record_bytes}"
            )
    file_system = facts.file_system
    names_matter = plan.contract.needs_file and not consent.force
    if names_matter and file_system is not None and lacks_journal(file_system):
        raise TargetError(
            f"{facts.path}: {file_system.type} without a journal may lose names and lengths in a cut, so "
            f"--workload {plan.workload} proves nothing there; use another file system, or add --force"
        )
    if plan.target_kind == "device" and facts.size_bytes < plan.main_bytes:
        raise UsageError(
            f"{facts.path}: the device has {facts.size_bytes} bytes, the run needs {plan.main_bytes}; "
            "lower --size"
        )


def check_space(storage: KernelStorage, facts: Facts, plan: Plan) -> None:
    """Refuse a file target if its file system has too few free bytes or inodes. Raises TargetError."""
    if storage.kind == "device":
        return
    file_system = os.statvfs(storage.path.parent)
    needed, files_needed = _room_needed(plan, facts)
    held, files_held = _room_held(storage)
    free = file_system.f_bavail * file_system.f_frsize + held
    if free < needed:
        raise TargetError(
            f"{storage.path.parent}: {free >> 20} MiB free, {-(-needed >> 20)} MiB needed; lower --size, or "
            "free some space"
        )
    files_free = file_system.f_favail + files_held
    if file_system.f_files and files_free < files_needed:  # btrfs has no limit, and reports 0
        raise TargetError(
            f"{storage.path.parent}: inodes for {files_free} files free, {files_needed} needed; lower --size,"
            " or use a file system with more inodes"
        )


def check_held_device(path: Path, facts: Facts, consent: Consent) -> None:
    """Refuse a device if its name belongs to other drives than in `facts` by now, or if it carries a
    signature. Collecting facts and connecting take time, so both may have changed since `check_path`. Call it
    under the lock. Raises TargetError."""
    number = path.stat().st_rdev
    name = block_devices.name_of((os.major(number), os.minor(number)))
    leaves = block_devices.stack_of((name,)).leaves if name is not None else ()
    known = {drive.name: drive.diskseq for drive in facts.drives}
    is_gone = bool(known) and not leaves  # if /sys shows no drives at all, `known` is empty
    if is_gone or any(known.get(leaf, -1) != block_devices.diskseq_of(leaf) for leaf in leaves):
        raise TargetError(
            f"{path}: the drive was attached anew, or replaced, since it was examined; nothing was written."
            f" Look at it with `durability device {shlex.quote(str(path))}`, then begin again"
        )
    if not consent.force:
        _check_signature(path)


def check_contents(storage: Storage) -> None:
    """Refuse to overwrite or remove files that this tool did not write, and a sibling that is the target of
    another run. Call it under the lock.

    An empty main file passes. Empty siblings pass only beside a main file of this tool. Devices pass, because
    `check_held_device` checks them. Raises NotOursError.
    """
    if storage.kind == "device":
        return
    with mmap.mmap(-1, limits.SUPERBLOCK_BYTES) as buffer:
        made = False  # whether a run has made the main file
        for suffix in (MAIN, *storage.suffixes()):
            if not storage.exists(suffix):
                continue
            empty = not storage.size(suffix)
            if empty and (made or suffix == MAIN):
                continue
            ends = [] if empty else _ends(storage, suffix, buffer)
            is_target = _has_superblock(ends)
            if is_target and suffix != MAIN:
                raise NotOursError(
                    f"{storage.path}{suffix} is the target of another run, and a run on {storage.path} would "
                    f"remove it as a file of its own; name another file, or remove {storage.path}{suffix} if "
                    "you do not need it"
                )
            if not (is_target if suffix == MAIN else _is_ours(ends)):
                raise NotOursError(
                    f"{storage.path}{suffix} exists and was not written by this tool; name another file, or "
                    "remove it if you do not need it"
                )
            made = True


def _room_needed(plan: Plan, facts: Facts) -> tuple[int, int]:
    """The most bytes and files that a run of `plan` uses on this target."""
    siblings = [extent for extent in plan.extents() if extent.suffix != MAIN]
    needed, files = plan.main_bytes + sum(extent.end_bytes for extent in siblings), 1 + len(siblings)
    bytes_each, files_each = plan.contract.room_needed(
        slots=plan.slots,
        group=plan.group,
        record_bytes=plan.record_bytes,
        name_bytes=name_bytes(plan.record_bytes, facts),
    )
    needed += plan.writers * bytes_each
    files += plan.writers * files_each
    return needed + needed // 64, files  # 1/64 more for the file system's own metadata


def _room_held(storage: KernelStorage) -> tuple[int, int]:
    """Bytes and files of the existing target, which a run overwrites or removes."""
    held = files = 0
    for suffix in (MAIN, *storage.suffixes()):
        with suppress(OSError):  # gone or damaged: frees no space
            held += storage.path_of(suffix).stat().st_blocks * 512 + (_NAME_BYTES if suffix else 0)
            files += 1
    return held, files


def _file_bytes(record_bytes: int, facts: Facts) -> int:
    """`record_bytes` in whole blocks of the file system."""
    block = facts.file_system.block_bytes if facts.file_system is not None else mmap.PAGESIZE
    return -(-record_bytes // block) * block


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISBLK(mode) or stat.S_ISREG(mode):
        return
    kind = "a directory" if stat.S_ISDIR(mode) else "neither a regular file nor a block device"
    wanted = f"a file in it, such as {path / 'durability.dat'}" if stat.S_ISDIR(mode) else "one of these"
    raise TargetError(f"{path} is {kind}; name {wanted}")


def _check_new_name(path: Path) -> None:
    if not path.parent.is_dir():
        raise TargetError(
            f"{path}: the directory {path.parent} does not exist; create it, or mount its file system"
        )
    # A mistyped device name must not become a file in memory that is tested instead of a drive.
    if path.is_relative_to("/dev") and not path.is_relative_to("/dev/shm"):
        raise TargetError(f"{path}: no such device; `lsblk` lists the devices")


def _check_writable(path: Path, directory: Path) -> None:
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        raise TargetError(f"{path}: its file system is mounted read-only; mount it read-write")
    for needed in {path, directory}:
        if not os.access(needed, os.W_OK):
            raise TargetError(f"{needed}: no permission to write; name another path, or use another user")


def _check_device(path: Path, consent: Consent) -> None:
    number = path.stat().st_rdev
    name = block_devices.name_of((os.major(number), os.minor(number))) or path.name
    if not consent.destroy_data:
        raise UsageError(
            f"{path} is a block device, and a run overwrites data on it; add --destroy-data to allow this"
        )
    _check_unused(path, device_users.use_of_device(name))
    _check_unused(path, _lasting_writer_of(name))
    if block_devices.is_read_only(name):
        raise TargetError(f"{path}: the device is read-only; make it writable (blockdev --setrw {path})")
    if block_devices.is_host_managed(name):
        raise TargetError(
            f"{path}: a zoned drive (host-managed) takes only sequential writes; name a file on a file system"
            " that supports zones"
        )
    try:
        os.close(os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise TargetBusyError(
                f"{path} is held by a mount, swap or another program; release it first"
            ) from error
        raise TargetError(f"{path}: cannot be opened for writing: {error.strerror}") from error
    if not consent.force:
        _check_signature(path)


def _check_signature(device: Path) -> None:
    if kind := signature_of(device):
        raise NotOursError(
            f"{device} carries {kind}; erase it with wipefs if you do not need it, or add --force"
        )


def _check_name(path: Path) -> None:
    """Refuse a name that belongs to the files of another target: `verify` would judge the file as that
    target's."""
    parts = path.name.split(".")
    for count in (1, 2, 3):  # TARGET.control, TARGET.W.N, TARGET.W.N.tmp
        suffix = "." + ".".join(parts[-count:])
        main = path.name.removesuffix(suffix)
        if not main or main == path.name or not (suffix == CONTROL or parse_name(suffix)):
            continue
        target = path.with_name(main)
        if not target.is_file() or target.is_symlink():
            continue
        with mmap.mmap(-1, limits.SUPERBLOCK_BYTES) as buffer:
            if _has_superblock(_ends(KernelStorage(target), MAIN, buffer)):
                raise NotOursError(
                    f"{path} has the name of a file of the run on {target}; name another file, or remove "
                    f"{target} if you do not need it"
                )


def _check_file(path: Path) -> None:
    """Refuse a file in use, and a file of this tool that now carries another program's signature."""
    _check_unused(path, device_users.use_of_file(path))
    with mmap.mmap(-1, limits.SUPERBLOCK_BYTES) as buffer:
        ours = _is_ours(_ends(KernelStorage(path), MAIN, buffer))
    if ours and find_tool("blkid") is not None and (kind := signature_of(path)):
        raise NotOursError(
            f"{path} carries {kind}, expected a file of this tool only; name another file, or remove it if "
            "you do not need it"
        )


def _lasting_writer_of(name: str) -> device_users.Use | None:
    """A process that has the device open for writing, such as a virtual machine. Programs such as udev do so
    only for a moment."""
    use = device_users.writer_of(name)
    for _ in range(_LOOKS_AGAIN):
        if use is None:
            break
        time.sleep(_LOOK_AGAIN_S)
        use = device_users.writer_of(name)
    return use


def _check_unused(path: Path, use: device_users.Use | None) -> None:
    if use is not None:
        subject = path if use.name in {path.name, str(path), path.resolve().name} else f"{path}: {use.name}"
        raise TargetBusyError(f"{subject} is {use.text}; {use.remedy}")


def _check_blocks(facts: Facts, plan: Plan) -> None:
    """Refuse records that share a block: writing one of them may damage the acknowledged data of another."""
    # Different files never share a block of the file system or a page of the cache.
    by_name = plan.contract.by_name
    block = block_bytes(facts, direct=plan.direct or by_name)
    own = _file_bytes(plan.record_bytes, facts) if by_name else plan.record_bytes
    if own % block:
        by_cache = not own % block_bytes(facts, direct=True)
        raise UsageError(
            f"records of {plan.record_bytes} bytes share blocks of {block} bytes "
            f"{'in the page cache of' if by_cache else 'on'} {facts.path}, so a write in flight may damage a "
            f"neighbour; use a multiple of {block}, or add {'--direct or ' if by_cache else ''}"
            "--allow-shared-blocks"
        )


def _check_alignment(facts: Facts, *, is_misaligned: bool) -> None:
    """Refuse a misaligned target: records of whole blocks share physical blocks if they begin inside one."""
    physical = max((drive.physical_block_bytes for drive in facts.main_drives), default=limits.SECTOR_BYTES)
    if facts.offset_bytes is not None and facts.offset_bytes % physical:
        raise UsageError(
            f"{facts.path}: its partition starts at byte {facts.offset_bytes} of the drive, not at a "
            f"multiple of the physical block of {physical} bytes, so records share blocks; align it, or add "
            "--allow-shared-blocks"
        )
    if facts.offset_bytes is None and is_misaligned:
        raise UsageError(
            f"{facts.path}: its device does not start at a multiple of the physical block of {physical} "
            "bytes, so records share blocks; align the partitions below it, or add --allow-shared-blocks"
        )
    file_system = facts.file_system
    if file_system is not None and file_system.block_bytes % physical:
        raise UsageError(
            f"{facts.path}: {file_system.type} has blocks of {file_system.block_bytes} bytes, and the drive "
            f"physical blocks of {physical} bytes, so records share blocks; use a file system with blocks of "
            f"{physical} bytes (mkfs.ext4 -b {physical}), or the device, or add --allow-shared-blocks"
        )


def _is_ours(ends: Ends) -> bool:
    """Whether this tool wrote any sector at the start or end of a file."""
    return any(sectors.header_ok.any() for _, sectors in ends)


def _has_superblock(ends: Ends) -> bool:
    """Whether any sector of a superblock is in its place at the start or end of a file. One sector is enough,
    since a cut may have lost the others.
    """
    for offset, sectors in ends:
        places = np.arange(len(sectors.offset), dtype=U64) * U64(limits.SECTOR_BYTES) + U64(offset)
        in_place = sectors.intact & (sectors.kind == KIND_SUPERBLOCK) & (sectors.offset == places)
        if in_place.any():
            return True
    return False


def _ends(storage: Storage, suffix: str, buffer: mmap.mmap) -> Ends:
    """The sectors at the start and end of the file, with their offsets. Raises TargetError."""
    try:
        file = storage.open(suffix)
        try:
            last = max(0, file.size() - limits.SUPERBLOCK_BYTES) // mmap.PAGESIZE * mmap.PAGESIZE
            return [(offset, _sectors(file, offset, buffer)) for offset in sorted({0, last})]
        finally:
            file.close()
    except OSError as error:
        raise TargetError(
            f"{storage.path}{suffix}: its contents cannot be read: {error.strerror}; name another target"
        ) from error


def _sectors(file: TargetFile, offset: int, buffer: mmap.mmap) -> Sectors:
    got = file.pread_into(buffer, offset) // limits.SECTOR_BYTES * limits.SECTOR_BYTES
    return parse(bytes(buffer[:got]))
