"""Stands between a command line and somebody's data: what may be overwritten, and where a plan makes no
sense.

Three checks, all before anything is written: of the path (`check_path`), of the plan against the facts
(`check_plan`), and, under the lock, of what the target holds (`check_contents`). They refuse everything that
this tool did not make itself; `Consent` says what the user allowed.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from durability import limits
from durability.errors import NotOursError, TargetBusyError, TargetError, UsageError
from durability.facts import Facts
from durability.plan import MAIN, Plan
from durability.record import parse
from durability_client import blocks
from durability_client.cautions import lacks_journal
from durability_client.facts import mounts
from durability_client.io import Storage, TargetFile
from durability_client.target import KernelStorage
from durability_client.tools import run_tool

_NOTHING_FOUND = 2  # exit code of blkid -p: no signature
_APPEND_FILES = 3  # an append writer has at most this many full files at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What the user allowed on the command line."""

    destroy_data: bool = False
    force: bool = False
    allow_shared_blocks: bool = False


def block_bytes(facts: Facts) -> int:
    """What may be torn together on this target: the largest of physical and file-system blocks."""
    sizes = [drive.physical_block_bytes for drive in facts.drives]
    if facts.file_system is not None:
        sizes.append(facts.file_system.block_bytes)
    return max(limits.SECTOR_BYTES, *sizes) if sizes else limits.SECTOR_BYTES


def check_path(path: Path, consent: Consent) -> None:
    """Refuse a path that cannot be a target, before its lock is taken. Raises TargetError, UsageError."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        _check_new_file(path)
        return
    except OSError as error:
        raise TargetError(f"{path}: cannot be examined: {error.strerror}") from error
    _check_kind(path, mode)
    if stat.S_ISBLK(mode):
        _check_device(path, consent)
    else:
        _check_writable(path, path.parent)


def check_directory(directory: Path) -> None:
    """Refuse a directory in which no file can be made. Raises TargetError."""
    _check_writable(directory, directory)


def check_evidence(path: Path, consent: Consent) -> None:
    """Refuse a device that a run of this tool wrote to, which may still be to verify. Raises TargetError."""
    if not consent.force and _is_ours(KernelStorage(path), MAIN):
        raise TargetError(
            f"{path} holds a run of this tool, which could not be verified any more; use --force if that is "
            "done"
        )


def check_subject(path: Path) -> None:
    """Refuse to verify what cannot have been a target. A path that is gone passes. Raises TargetError."""
    with suppress(OSError):  # what cannot be examined is for identity and scan to judge
        _check_kind(path, path.stat().st_mode)


def check_plan(facts: Facts, plan: Plan, consent: Consent) -> None:
    """Refuse a plan whose verdict on this target would mean nothing. Raises UsageError, TargetError."""
    _check_blocks(facts, plan, consent)
    if plan.direct:
        logical = max((drive.logical_block_bytes for drive in facts.drives), default=limits.SECTOR_BYTES)
        if plan.record_bytes % logical:
            raise UsageError(
                f"--direct needs a record size that is a multiple of the drive's logical block, {logical} "
                f"bytes, not {plan.record_bytes}"
            )
    file_system = facts.file_system
    names_matter = plan.workload != "overwrite" and not consent.force
    if names_matter and file_system is not None and lacks_journal(file_system):
        raise TargetError(
            f"{facts.path}: {file_system.type} without a journal promises nothing about names and lengths "
            f"after a cut, so --workload {plan.workload} proves nothing there; use another file system, or "
            "--force"
        )
    if plan.target_kind == "device" and facts.size_bytes < plan.main_bytes:
        raise UsageError(
            f"{facts.path}: the device has {facts.size_bytes} bytes, the plan needs {plan.main_bytes}; "
            "lower --size"
        )


def check_space(storage: KernelStorage, plan: Plan) -> None:
    """Refuse a file target that its file system has no room for. Raises TargetError."""
    if storage.kind == "device":
        return
    files = sum(extent.slots * extent.record_bytes for extent in plan.extents())
    if plan.workload == "append":
        files += _APPEND_FILES * plan.writers * plan.slots * plan.record_bytes
    needed = 2 * limits.SUPERBLOCK_BYTES + files
    needed += needed // 64  # what the file system itself needs to describe it
    held = 0
    for suffix in (MAIN, *storage.suffixes()):
        if storage.exists(suffix):
            held += storage.path_of(suffix).stat().st_blocks * 512
    file_system = os.statvfs(storage.path.parent)
    free = file_system.f_bavail * file_system.f_frsize + held
    if free < needed:
        raise TargetError(
            f"{storage.path.parent}: {free >> 20} MiB free, {-(-needed >> 20)} MiB needed; lower --size, or "
            "make room"
        )


def check_contents(storage: Storage) -> None:
    """Refuse to overwrite a file that this tool did not write; call it under the lock. Raises NotOursError.

    Empty files pass, and so do devices: what they hold was `check_path`'s to ask about.
    """
    if storage.kind == "device":
        return
    for suffix in (MAIN, *storage.suffixes()):
        if storage.exists(suffix) and storage.size(suffix) and not _is_ours(storage, suffix):
            raise NotOursError(
                f"{storage.path}{suffix} exists and holds nothing that this tool wrote; name another "
                "file, or remove it if you are sure"
            )


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISBLK(mode) or stat.S_ISREG(mode):
        return
    kind = "a directory" if stat.S_ISDIR(mode) else "neither a regular file nor a block device"
    hint = f"; name a file in it, such as {path / 'durability.dat'}" if stat.S_ISDIR(mode) else ""
    raise TargetError(f"{path} is {kind}{hint}")


def _check_new_file(path: Path) -> None:
    if not path.parent.is_dir():
        raise TargetError(
            f"{path}: the directory {path.parent} does not exist; make it, or mount what it is on"
        )
    # A mistyped device name must not become a file in memory that passes for a drive.
    if path.is_relative_to("/dev") and not path.is_relative_to("/dev/shm"):
        raise TargetError(f"{path}: no such device")
    _check_writable(path.parent, path.parent)


def _check_writable(path: Path, directory: Path) -> None:
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        raise TargetError(f"{path}: its file system is mounted read-only; mount it read-write")
    for needed in {path, directory}:
        if not os.access(needed, os.W_OK):
            raise TargetError(f"{needed}: no permission to write; use another place or another user")


def _check_device(path: Path, consent: Consent) -> None:
    number = path.stat().st_rdev
    name = blocks.name_of((os.major(number), os.minor(number))) or path.name
    if not consent.destroy_data:
        raise UsageError(f"{path} is a block device: a run overwrites it whole; say --destroy-data if it may")
    in_use = {name, *blocks.partitions_of(name)}
    for mount in mounts():
        if blocks.name_of(mount.device_number) in in_use:
            raise TargetBusyError(
                f"{path} is mounted at {mount.mount_point}; unmount it, or name a file on it"
            )
    if blocks.is_read_only(name):
        raise TargetError(f"{path}: the kernel says that the device is read-only")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            holders = ", ".join(blocks.holders_of(name)) or "a mount, swap or another program"
            raise TargetBusyError(f"{path} is held by {holders}; release it first") from error
        raise TargetError(f"{path}: cannot be opened for writing: {error.strerror}") from error
    if not consent.force and not _is_ours(KernelStorage(path), MAIN):
        _check_signature(path)


def _check_blocks(facts: Facts, plan: Plan, consent: Consent) -> None:
    """A record that shares a block with another puts acknowledged data at risk whenever the other is
    written."""
    if consent.allow_shared_blocks:
        return
    block = block_bytes(facts)
    if plan.record_bytes % block:
        raise UsageError(
            f"records of {plan.record_bytes} bytes share blocks of {block} bytes on {facts.path}, so that a "
            f"write in flight may damage a neighbour; use a multiple of {block}, or --allow-shared-blocks"
        )
    physical = max((drive.physical_block_bytes for drive in facts.drives), default=limits.SECTOR_BYTES)
    if facts.offset_bytes is not None and facts.offset_bytes % physical:
        raise UsageError(
            f"{facts.path}: its partition starts at byte {facts.offset_bytes} of the drive, not at a "
            f"multiple of the physical block of {physical} bytes, so records share blocks; align it, or use "
            "--allow-shared-blocks"
        )


def _is_ours(storage: Storage, suffix: str) -> bool:
    """Whether any sector at the beginning or the end of the file is one of this tool's."""
    try:
        file = storage.open(suffix)
        try:
            last = max(0, file.size() - limits.SUPERBLOCK_BYTES) // mmap.PAGESIZE * mmap.PAGESIZE
            return any(_holds_our_sector(file, offset) for offset in (0, last))
        finally:
            file.close()
    except OSError as error:
        raise TargetError(
            f"{storage.path}{suffix}: what it holds cannot be read: {error.strerror}; name another target"
        ) from error


def _holds_our_sector(file: TargetFile, offset: int) -> bool:
    with mmap.mmap(-1, limits.SUPERBLOCK_BYTES) as buffer:
        got = file.pread_into(buffer, offset) // limits.SECTOR_BYTES * limits.SECTOR_BYTES
        return bool(got) and bool(parse(buffer[:got]).header_ok.any())


def _check_signature(path: Path) -> None:
    """Refuse a device on which blkid recognises a file system, RAID member, partition table or the like."""
    done = run_tool("blkid", "-p", "-o", "export", str(path))
    if done.returncode == _NOTHING_FOUND:
        return
    if done.returncode:
        raise TargetError(
            f"{path}: blkid cannot tell what it holds ({done.stderr.strip() or done.returncode}); wipe it, "
            "or use --force"
        )
    tags = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    kind = tags.get("TYPE") or tags.get("PTTYPE") or "something"
    raise NotOursError(f"{path} carries {kind}; wipe it with wipefs if it may go, or use --force")
