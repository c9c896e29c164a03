"""What a device or file holds for others: file systems, partition tables, swap, RAID, LVM and ZFS members.

blkid is always asked; it looks at both ends. A header of a GPT counts too, at either end: blkid says nothing
of one without its protective MBR, as when a run has overwritten the beginning of a disk.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from durability.errors import TargetError
from durability_client.system.programs import run_tool

_NOTHING_FOUND = 2  # exit code of blkid -p: no signature
_GPT = b"EFI PART"
_SECTORS_BYTES = (512, 4096)
# What blkid says of the partition itself, which is no signature in it.
_OF_THE_PARTITION = ("DEVNAME", "PART_ENTRY_")


def signature_of(path: Path) -> str:
    """What is recognised in the device or file, "" for nothing. Raises TargetError if blkid cannot tell."""
    done = run_tool("blkid", "-p", "-o", "export", str(path))
    if done.returncode not in (0, _NOTHING_FOUND):
        why = done.stderr.strip() or f"exit code {done.returncode}"
        raise TargetError(
            f"{path}: blkid cannot tell its contents ({why}); erase it with wipefs if you do not need it, or "
            "add --force"
        )
    tags = dict(line.partition("=")[::2] for line in done.stdout.split("\n") if line)
    if any(not tag.startswith(_OF_THE_PARTITION) for tag in tags):
        return tags.get("TYPE") or tags.get("PTTYPE") or "something"
    return _gpt(path)


def _gpt(path: Path) -> str:
    with suppress(OSError):  # blkid could read it, so nothing is hidden by an error here
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size_bytes = os.lseek(fd, 0, os.SEEK_END)
            for sector_bytes in _SECTORS_BYTES:
                if os.pread(fd, len(_GPT), sector_bytes) == _GPT:
                    return "gpt"
                last = size_bytes // sector_bytes * sector_bytes - sector_bytes
                if last > 0 and os.pread(fd, len(_GPT), last) == _GPT:
                    return "gpt (its copy at the end)"
        finally:
            os.close(fd)
    return ""
