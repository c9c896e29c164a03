"""The programs of a machine of rig C as command lines: QEMU, and an nbdkit for each of its drives.

The drive is an NVMe or a SATA drive. QEMU's NVMe (7.2) drops the FUA bit of every write without an error.
Data that depend on FUA, such as the commit block of a file system's journal, then stay in the drive's cache,
even if the drive is honest. Linux sends no FUA to a SATA drive; it sends a flush after the write, which
arrives.

This module makes command lines only; it starts no program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from durability_lab.drive import NBDKIT_PLUGIN
from durability_lab.vm_rig.network import TAP

Bus: TypeAlias = Literal["nvme", "sata"]
DRIVES: Final[Mapping[Bus, Path]] = {"nvme": Path("/dev/nvme0n1"), "sata": Path("/dev/sda")}  # in the guest
QEMU: Final = "qemu-system-x86_64"
_MEMORY_MIB = 384
_DRIVE_MEMORY_MIB = 128  # per drive, for the programs that use it
_PROCESSORS = 2
# The processor has the features that today's programs require and no more: wider vectors are slow to emulate.
_MACHINE = """
    -accel tcg,thread=multi -cpu Nehalem,+rdrand -nodefaults -display none -no-reboot
    -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap
    -device virtio-9p-pci,fsdev=root,mount_tag=host -device virtio-net-pci,netdev=network,romfile=
"""
# The kernel's check of the timer interrupt is a loop that is too short on a busy host: the kernel panics.
_KERNEL_OPTIONS = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr audit=0 no_timer_check"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestDrive:
    """A drive of a guest. `model`: a spec of `durability_lab.drive.faults`, which draws from `seed`."""

    model: str
    bus: Bus
    file_system: bool
    serial: str
    seed: int

    @property
    def sector_bytes(self) -> int:
        """Sector size of the drive: a whole block if it has a file system."""
        return 4096 if self.file_system else 512


def drive_command(drive: GuestDrive, *, media: Path, drive_log: Path, socket: Path, ready: Path) -> list[str]:
    """nbdkit with the drive on `media`; the caller adds `cuts=N`. nbdkit listens at `socket` once its process
    id is in the file `ready`."""
    return [
        *("nbdkit", "-f", "-U", str(socket), "-P", str(ready), "python", f"script={NBDKIT_PLUGIN}"),
        f"media={media}",
        f"model={drive.model}",
        f"seed={drive.seed}",
        f"sector_bytes={drive.sector_bytes}",
        f"drive_log={drive_log}",
    ]


def machine_command(
    kernel: Path, initramfs: Path, console: Path, drives: Sequence[tuple[GuestDrive, Path]]
) -> list[str]:
    """QEMU with drives, at most six if they are SATA, each with the socket of its nbdkit.

    The output of the first serial port is appended to the file `console`. The caller adds other ports.
    """
    # With one drive, the guest has one processor. Two processors wait for each other and take half as much
    # time again if the host does not have two free. With several drives, their programs work in parallel.
    processors = 1 if len(drives) == 1 else _PROCESSORS
    memory_mib = _MEMORY_MIB + _DRIVE_MEMORY_MIB * len(drives)
    return [
        *(QEMU, *_MACHINE.split(), "-smp", str(processors), "-m", str(memory_mib)),
        *("-kernel", str(kernel), "-initrd", str(initramfs), "-append", _KERNEL_OPTIONS),
        *("-chardev", f"file,id=console,path={console},append=on", "-serial", "chardev:console"),
        *("-netdev", f"tap,id=network,ifname={TAP},script=no,downscript=no"),
        *drive_devices(drives),
    ]


def drive_devices(drives: Sequence[tuple[GuestDrive, Path]]) -> list[str]:
    """QEMU's options for the drives, each with the socket of its nbdkit."""
    devices = [word for number, drive in enumerate(drives) for word in _devices(number, *drive)]
    if any(drive.bus == "sata" for drive, _ in drives):
        devices = ["-device", "ich9-ahci,id=sata", *devices]
    return devices


def _devices(number: int, drive: GuestDrive, socket: Path) -> list[str]:
    node, sectors = f"drive-{number}", drive.sector_bytes
    block = f"drive={node},serial={drive.serial},physical_block_size={sectors}"
    behind = ("-blockdev", f"driver=nbd,node-name={node},server.type=unix,server.path={socket}")
    if drive.bus == "nvme":
        return [*behind, "-device", f"nvme,{block},logical_block_size={sectors}"]
    return [*behind, "-device", f"ide-hd,bus=sata.{number},{block}"]
