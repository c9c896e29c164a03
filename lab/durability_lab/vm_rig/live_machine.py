"""A machine of rig C that boots the live image: firmware, an ISO, a USB stick, and its drives.

    firmware (BIOS or UEFI) -> GRUB on the ISO -> the system in memory -> the file on the stick -> joined

Each boot is from the disc, as on a real machine. QEMU supplies no kernel, and no credential survives a cut.
This module makes command lines and a stick; it starts no machine.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from durability.errors import SetupError
from durability_lab.vm_rig.guest_programs import QEMU, GuestDrive, drive_devices
from durability_lab.vm_rig.network import GUEST, TAP

Firmware: TypeAlias = Literal["bios", "uefi"]
LABEL: Final = "DURABILITY"
JOIN_FILE: Final = "durability-join.txt"
_UEFI: Final = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
_UEFI_VARIABLES: Final = Path("/usr/share/OVMF/OVMF_VARS_4M.fd")
_STICK_BYTES = 1440 << 10
_MEMORY_MIB = 1536  # for the system twice, packed and unpacked, and for the programs
_DRIVE_MEMORY_MIB = 128
_MACHINE = """
    -accel tcg,thread=multi -cpu Nehalem,+rdrand -machine q35 -nodefaults -display none -no-reboot -smp 1
    -vga std -device qemu-xhci
"""
_CARD = "virtio-net-pci,netdev=network"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveImage:
    """The image that the machine boots, and its firmware."""

    iso: Path
    firmware: Firmware


def missing(image: LiveImage) -> str:
    """What this machine lacks for the image, as a sentence; "" if nothing is missing."""
    if not image.iso.is_file():
        return f"{image.iso} does not exist: `make release R=live` makes one in dist/"
    if image.firmware == "uefi" and not _UEFI.is_file():
        return f"{_UEFI} not found: install ovmf"
    absent = [program for program in ("mformat", "mcopy") if shutil.which(program) is None]
    return f"{', '.join(absent)} not found: install mtools" if absent else ""


def make_stick(stick: Path, *, server: str, code: str, name: str) -> None:
    """Write the image of a stick with which the machine joins as `name`. Raises SetupError."""
    with stick.open("wb") as file:
        file.truncate(_STICK_BYTES)
    text = stick.with_suffix(".txt")
    text.write_text(f"join = {server} {code}\nname = {name}\naddress = {GUEST}/24\n")
    for command in (
        ("mformat", "-i", stick, "-f", "1440", "-v", LABEL, "::"),
        ("mcopy", "-i", stick, text, f"::{JOIN_FILE}"),
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SetupError(f"the stick cannot be made: {done.stderr.strip()}")
    text.unlink()


def boot_command(image: LiveImage, *, memory_mib: int) -> list[str]:
    """QEMU with firmware and disc. The caller adds a network called `network`, and all other devices."""
    return [
        *_machine(image.firmware, memory_mib=memory_mib),
        *("-device", f"{_CARD},romfile="),
        *("-drive", f"if=none,id=disc,format=raw,readonly=on,media=cdrom,file={image.iso}"),
        *("-device", "ide-cd,drive=disc,bus=ide.0,bootindex=1"),
    ]


def network_boot_command(firmware: Firmware, *, memory_mib: int) -> list[str]:
    """QEMU that boots by PXE. The caller adds a network called `network` with TFTP, and other devices."""
    return [*_machine(firmware, memory_mib=memory_mib), "-device", f"{_CARD},bootindex=1"]


def _machine(firmware: Firmware, *, memory_mib: int) -> list[str]:
    # Without flash for its variables, this firmware writes them to a file on the first FAT partition.
    flash = [f"if=pflash,unit=0,format=raw,readonly=on,file={_UEFI}"]
    flash += [f"if=pflash,unit=1,format=raw,snapshot=on,file={_UEFI_VARIABLES}"]
    return [
        *(QEMU, *_MACHINE.split(), "-m", str(memory_mib)),
        *(word for one in flash if firmware == "uefi" for word in ("-drive", one)),
    ]


def live_command(
    image: LiveImage, *, stick: Path, console: Path, drives: Sequence[tuple[GuestDrive, Path]]
) -> list[str]:
    """`boot_command` with stick, console and drives, as in `guest_programs.machine_command`."""
    return [
        *boot_command(image, memory_mib=_MEMORY_MIB + _DRIVE_MEMORY_MIB * len(drives)),
        *("-drive", f"if=none,id=stick,format=raw,readonly=on,file={stick}"),
        *("-device", "usb-storage,drive=stick,removable=on"),
        *("-chardev", f"file,id=console,path={console},append=on", "-serial", "chardev:console"),
        *("-netdev", f"tap,id=network,ifname={TAP},script=no,downscript=no"),
        *drive_devices(drives),
    ]
