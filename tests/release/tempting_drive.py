"""A drive on which careless systems write when they boot: they mount, check, swap or resume."""

from __future__ import annotations

import struct
import subprocess
import uuid
import zlib
from pathlib import Path

from durability_lab.vm_rig.live_machine import JOIN_FILE, LABEL

SECTOR = 512
_SIZE = 96 << 20
_PART = 16 << 20
_FIRST = 1 << 20
_ENTRIES, _ENTRY_BYTES = 128, 128
# What systemd's gpt-auto-generator mounts and swaps to by itself, by the types of partitions.
_ESP = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
_SWAP = "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"
_ROOT = "4f68bce3-e8cd-4db1-96e7-fbcaf984b709"
_VAR = "4d21b016-b534-45c2-a9fb-5c16e091fd2d"


def make(drive: Path, *, elsewhere: str) -> None:
    """Write the drive: a partition that says to join `elsewhere`, a swap with a sleeping system, an ext4
    whose journal was never replayed, and one for /var. Raises CalledProcessError."""
    part = drive.with_suffix(".part")
    made = []
    for kind, fill in ((_ESP, _labelled), (_SWAP, _sleeping), (_ROOT, _unclean), (_VAR, _plain)):
        part.unlink(missing_ok=True)
        with part.open("wb") as file:
            file.truncate(_PART)
        fill(part, elsewhere)
        made.append((kind, part.read_bytes()))
    part.unlink()
    with drive.open("wb") as file:
        file.truncate(_SIZE)
        entries, at = b"", _FIRST
        for kind, data in made:
            file.seek(at)
            file.write(data)
            last = (at + len(data)) // SECTOR - 1
            entries += uuid.UUID(kind).bytes_le + uuid.uuid4().bytes_le
            entries += struct.pack("<QQQ", at // SECTOR, last, 0) + bytes(72)
            at += len(data)
        entries = entries.ljust(_ENTRIES * _ENTRY_BYTES, b"\0")
        disk, end = uuid.uuid4().bytes_le, _SIZE // SECTOR - 1
        file.seek(0)
        file.write(_protective() + _header(entries, disk, at=1, other=end, entries_at=2) + entries)
        # UEFI firmware writes the second table if it is missing, before anything is booted.
        file.seek(_SIZE - SECTOR - len(entries))
        file.write(entries + _header(entries, disk, at=end, other=1, entries_at=end - 32))


def _protective() -> bytes:
    entry = struct.pack("<B3sB3sII", 0, b"\0\2\0", 0xEE, b"\xff\xff\xff", 1, _SIZE // SECTOR - 1)
    return bytes(446) + entry + bytes(48) + b"\x55\xaa"


def _header(entries: bytes, disk: bytes, *, at: int, other: int, entries_at: int) -> bytes:
    last = _SIZE // SECTOR - 1

    def packed(check: int) -> bytes:
        return struct.pack(
            "<8sIIIIQQQQ16sQIII",
            *(b"EFI PART", 0x10000, 92, check, 0, at, other, 34, last - 33, disk, entries_at),
            *(_ENTRIES, _ENTRY_BYTES, zlib.crc32(entries)),
        )

    return packed(zlib.crc32(packed(0))).ljust(SECTOR, b"\0")


def _labelled(part: Path, elsewhere: str) -> None:
    subprocess.run(
        ["mformat", "-i", part, "-v", LABEL, "-T", str(_PART // SECTOR), "-h", "64", "-s", "32", "::"],
        check=True,
    )
    text = part.with_suffix(".txt")
    text.write_text(f"join = {elsewhere}\n")
    subprocess.run(["mcopy", "-i", part, text, f"::{JOIN_FILE}"], check=True)
    text.unlink()


def _sleeping(part: Path, _elsewhere: str) -> None:
    subprocess.run(["mkswap", part], check=True, capture_output=True)
    with part.open("r+b") as file:
        file.seek(4086)
        file.write(b"S1SUSPEND\0")


def _unclean(part: Path, _elsewhere: str) -> None:
    """An ext4 that says that its journal must be replayed: its first mount writes, also one for reading."""
    subprocess.run(["mkfs.ext4", "-q", part], check=True, capture_output=True)
    subprocess.run(["debugfs", "-w", "-R", "feature needs_recovery", part], check=True, capture_output=True)


def _plain(part: Path, _elsewhere: str) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-L", "var", part], check=True, capture_output=True)
