"""What a live machine is: what tells it from others in each boot, and what its consoles say of it.

Nothing of the machine lies on a disk, so its number comes from the hardware: what the firmware says of the
system, or if that is one of the numbers that many boards share, the lowest number of a network card.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from durability.units import counted
from durability_client.system import block_devices

_LABEL = "durability live machine"
_SHARED = re.compile(
    r"(?:([0-9a-f])\1*|03000200040005000006000700080009|123456781234567890abcddeefaabbcc)", re.I
)
_EMPTY = frozenset(
    {"", "none", "not specified", "default string", "to be filled by o.e.m.", "0", "123456789"}
)
_NOT_DRIVES = re.compile(r"(?:loop|ram|zram|sr|fd|dm-|md)\d+")
_DMI = "class/dmi/id"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisMachine:
    """`key` tells it from others; `id` is of the form of /etc/machine-id. `description` is for people."""

    key: str
    id: str
    name: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDrive:
    """A drive, and how many writes it got in this boot; None: not counted."""

    name: str
    model: str
    serial: str
    size_bytes: int
    writes: int | None


def this_machine(*, given_key: str = "", sys: Path = block_devices.SYS) -> ThisMachine:
    """This machine, as the tree `sys` shows it; `given_key`: a key that somebody gave it."""
    dmi = {
        name: block_devices.text_of(sys / _DMI / name)
        for name in ("sys_vendor", "product_name", "product_serial")
    }
    serial = "" if dmi["product_serial"].lower() in _EMPTY else dmi["product_serial"]
    key = given_key or _key(sys, serial)
    number = hashlib.sha256(f"{_LABEL}\0{key}".encode()).hexdigest()[:32]
    words = [dmi["sys_vendor"], dmi["product_name"]]
    parts = [" ".join(filter(None, words)) or "a machine without a name"]
    if serial:
        parts.append(f"serial {serial}")
    parts.append(counted(os.cpu_count() or 1, "processor"))
    parts.append(f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB")
    tail = re.sub(r"[^A-Za-z0-9-]+", "-", serial).strip("-") or number[:8]
    return ThisMachine(key=number, id=number, name=f"live-{tail[:40]}", description=", ".join(parts))


def has_key(*, sys: Path = block_devices.SYS) -> bool:
    """Whether there is something yet that tells it from others: cards may come late."""
    return bool(_firmware_key(sys, "") or _cards(sys))


def drives(*, sys: Path = block_devices.SYS) -> list[SeenDrive]:
    """The drives that could be tested, by name. Nothing is asked of them: the kernel knows this much."""
    names = [name for name in block_devices.all_names(sys=sys) if not _NOT_DRIVES.fullmatch(name)]
    found = []
    for name in names:
        if block_devices.whole_of(name, sys=sys) == name:
            counters = block_devices.counters_of(name, sys=sys)
            found.append(
                SeenDrive(
                    name=name,
                    model=block_devices.model_of(name, sys=sys),
                    serial=block_devices.serial_of(name, sys=sys),
                    size_bytes=block_devices.size_of(name, sys=sys),
                    writes=counters.writes if counters is not None else None,
                )
            )
    return found


def _key(sys: Path, serial: str) -> str:
    return _firmware_key(sys, serial) or f"card {min(_cards(sys), default='none')}"


def _firmware_key(sys: Path, serial: str) -> str:
    uuid = block_devices.text_of(sys / _DMI / "product_uuid")
    if not uuid or _SHARED.fullmatch(uuid.replace("-", "")):
        return ""
    return f"firmware {uuid.lower()} {serial}"


def _cards(sys: Path) -> list[str]:
    """The numbers of network cards on the board or a bus of it; those on USB come and go."""
    found = []
    for card in (sys / "class/net").glob("*"):
        device = card / "device"
        if device.exists() and "/usb" not in str(device.resolve()):
            found.append(block_devices.text_of(card / "address"))
    return [address for address in found if address.strip("0:")]
