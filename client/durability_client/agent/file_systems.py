"""Makes, mounts and unmounts the file system of a drive, and reads the kernel's messages about it.

A mount replays the file system's log, and its duration is measured. The kernel's log and the file system's
own error count show whether more repairs were needed. This module refuses nothing: `drives` decides before
which devices may be overwritten.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from functools import partial
from pathlib import Path

from durability.campaign.definition.settings import FileSystem
from durability_client.agent.abandonable_calls import Children, ProgramError, in_thread
from durability_client.agent.drives import DriveError
from durability_client.system import block_devices
from durability_client.system.mounts import mounts

# No discard, so that a cycle on a large drive does not begin with minutes of TRIM. On a small drive mkfs.ext4
# would choose blocks of 1 KiB, which are smaller than the physical blocks of many drives.
_MKFS = {
    "ext4": ("-q", "-F", "-b", "4096", "-E", "nodiscard"),
    "xfs": ("-q", "-f", "-K"),
    "btrfs": ("-q", "-f", "-K"),
}
_UUID = {"ext4": ("-U", "{}"), "xfs": ("-m", "uuid={}"), "btrfs": ("-U", "{}")}
# Otherwise the kernel would write the inode tables of a new ext4 during the runs, which pushes acknowledged
# data out of the cache of a lying drive.
_MOUNT = {"ext4": "noinit_itable"}
_MKFS_S = 1800.0
_MOUNT_S = 1800.0  # a replay on a slow drive takes long; a drive that hangs has not lost its data
_UNMOUNT_S = 120.0
_BUSY_S = 10.0  # time for a process that was just ended to release the mount
_UNSTEADY_S = 10.0  # for this time, reads of a drive that was just attached may fail
_MOUNTS_MAX = 16  # mounts on one directory
_RETRY_S = 0.5
# Errors of mount that say nothing about the file system: an earlier mount is not released yet.
_BUSY = re.compile(r"busy|already mounted|duplicate|File exists|filesystem with same UUID", re.IGNORECASE)
_RECORD_BYTES = 16 << 10
_SAYS_DAMAGE = re.compile(
    r"corrupt|with errors|e2fsck|xfs_repair|btrfs check|checksum|bad magic|bad tree block|invalid"
    r"|internal error|error recorded|fs error|EXT4-fs error|BTRFS (error|critical)",
    re.IGNORECASE,
)
# Messages about a drive that went away: they are not damage, and may be about the previous mount.
_SAYS_GONE = re.compile(
    r"I/O error|aborted journal|shut ?down|remounting|lost .*write|errs: wr|error -5\b|log error",
    re.IGNORECASE,
)
_WARNING = 4  # priority: see syslog(2)


class NotMountedError(Exception):
    """The file system could not be mounted."""


async def mark(children: Children, device: Path, text: bytes) -> None:
    """Write `text` durably to the start of a device. Raises DriveError."""
    await _change(children, "wipefs", "--all", "--no-act", "--quiet", str(device))  # fails if it is in use
    options = ("iflag=fullblock", "count=1", "conv=notrunc,nocreat,fsync", "status=none")
    await _change(children, "dd", f"bs={len(text)}", *options, f"of={device}", given=text)


async def erase(children: Children, device: Path) -> None:
    """Erase all signatures. Raises DriveError."""
    # Only --force erases a partition table inside a partition, but it also erases a device in use. The call
    # without --force fails for a device in use.
    for force in ((), ("--force",)):
        await _change(children, "wipefs", "--all", "--quiet", *force, str(device))


async def make(children: Children, kind: FileSystem, device: Path, *, uuid: str) -> None:
    """Erase all signatures, then make the file system with that UUID. Raises DriveError."""
    await erase(children, device)
    options = (*_MKFS[kind], *(option.format(uuid) for option in _UUID[kind]))
    await _change(children, f"mkfs.{kind}", *options, str(device))


async def _change(children: Children, *command: str, given: bytes = b"") -> None:
    try:
        done = await children.run(*command, timeout_s=_MKFS_S, given=given)
    except ProgramError as error:
        raise DriveError("not-made", str(error)) from error
    if done.exit_code:
        raise DriveError("not-made", f"{command[0]} {command[-1]}: {done.said}")


async def mount(
    children: Children, kind: FileSystem, device: Path, directory: Path, *, options: str, within_s: float
) -> float:
    """Mount the file system. Returns the duration in seconds, including the replay of its log.

    A failed mount is tried again: for `within_s` if an earlier mount is not released yet, else for some
    seconds, since reads of a drive that was just attached may fail. Raises NotMountedError and ProgramError.
    """
    loop = asyncio.get_running_loop()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # noqa: ASYNC240 - in memory
    together = ",".join(filter(None, (_MOUNT.get(kind), options)))
    chosen = ("-o", together) if together else ()
    first_s = loop.time()
    while True:
        began_s = loop.time()
        done = await children.run(
            "mount", "-t", kind, *chosen, str(device), str(directory), timeout_s=_MOUNT_S
        )
        if done.exit_code == 0:
            return round(loop.time() - began_s, 3)
        patience_s = within_s if _BUSY.search(done.errors) else _UNSTEADY_S
        if loop.time() > first_s + patience_s:
            raise NotMountedError(f"{kind} on {device} does not mount: {done.said}")
        await asyncio.sleep(_RETRY_S)


async def unmount(children: Children, directory: Path, *, gone: bool) -> None:
    """Unmount all file systems at `directory`. If one stays in use, or if its device is `gone`, it is
    detached (lazy unmount), and ends with its last user. Raises DriveError."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + _BUSY_S
    for _ in range(_MOUNTS_MAX):
        while is_mounted(directory):
            lazy = ("--lazy",) if gone or loop.time() > deadline_s else ()
            with suppress(ProgramError):  # if umount hangs, a lazy one follows
                command = ("umount", "--no-canonicalize", *lazy, str(directory))
                done = await children.run(*command, timeout_s=_UNMOUNT_S)
                if done.exit_code == 0:
                    break
            if lazy:
                raise DriveError("in-use", f"{directory} cannot be unmounted")
            await asyncio.sleep(_RETRY_S)
    with suppress(OSError):  # the directory is not empty, or does not exist
        directory.rmdir()  # noqa: ASYNC240 - in memory


def is_mounted(directory: Path) -> bool:
    """Whether a file system is mounted at `directory`."""
    return any(mount.mount_point == str(directory) for mount in mounts())


def error_count(kind: FileSystem, name: str) -> int:
    """Number of errors that the file system on the device `name` has counted; 0 if it does not count them."""
    if kind != "ext4":
        return 0
    try:
        return int((Path("/sys/fs/ext4") / name / "errors_count").read_text())
    except (OSError, ValueError):
        return 0


async def first_damage(log: KernelLog, name: str) -> str:
    """The first message in `log` since the last call about damage on the device `name`; "" if none."""
    return next(iter(await in_thread(partial(log.damage, name))), "")


class KernelLog:
    """The kernel's log from the record with number `first` on; None: from now on. Empty if the log cannot be
    read."""

    def __init__(self, first: int | None = None) -> None:
        self._fd: int | None = None
        with suppress(OSError):
            self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if first is None:
            numbers = [number for number, _, _ in self._records()]
            first = numbers[-1] + 1 if numbers else None
        self.first = first

    def damage(self, name: str) -> list[str]:
        """Messages since the last call in which a file system on the device `name` reports damage."""
        device = str(block_devices.node_of(name).relative_to("/dev"))
        subject = re.compile(rf"^(EXT4-fs|XFS|BTRFS|JBD2)\b.*\b{re.escape(device)}\b")
        return [
            text
            for number, priority, text in self._records()
            if number >= (self.first or 0)
            and priority <= _WARNING
            and subject.search(text)
            and not _SAYS_GONE.search(text)
            and _SAYS_DAMAGE.search(text)
        ]

    def close(self) -> None:
        """Stop reading the log."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _records(self) -> list[tuple[int, int, str]]:
        """Number, priority and text of each record that was not read yet."""
        found: list[tuple[int, int, str]] = []
        while self._fd is not None:
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BrokenPipeError:  # records were overwritten before they were read
                continue
            except OSError:  # no more records at present
                break
            head, _, text = record.decode(errors="replace").partition(";")
            priority, number = (*head.split(","), "")[:2]
            if priority.isdecimal() and number.isdecimal():
                found.append((int(number), int(priority) & 7, text.partition("\n")[0]))
        return found
