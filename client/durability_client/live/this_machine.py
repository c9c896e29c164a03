"""The identity of a live machine, which is the same in each boot, and its description on the consoles.

The live image stores nothing on a disk, so the identity comes from the hardware. It is the firmware's UUID
or, if other boards may have the same UUID, the lowest address of a network card. A list of all shared UUIDs
is impossible. So a UUID counts if it has the standard's format, or if there is a serial number, too.
Otherwise, and without network cards, the machine has no identity until somebody gives it one.
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
    r"([0-9a-f]{2})\1*|[0-9a-f]{4}9712f{24}|03000200040005000006000700080009|00020003000400050006000700080009"
    r"|07090201010303010807060504030201|03020100050407060809[0-9a-f]{12}|0001020304050607[0-9a-f]{16}"
    r"|123456781234567890abcddeefaabbcc",
    re.I,
)
# Version and variant of RFC 9562. On some boards, the two bytes with the version are swapped.
_STANDARD = re.compile(r"[0-9a-f]{12}(?:[1-5]...|..[1-5].)[89ab][0-9a-f]{15}", re.I)
_NO_SERIAL = re.compile(
    r"|(.)\1*|0?123456789?0?|none|n/?a|null|oem|empty|invalid|unknown|not (?:specified|applicable|available)"
    r"|default(?: string)?|to be filled by o\.?e\.?m\.?|((system|chassis|base board) )?serial( number)?",
    re.I,
)
# Serials that are not used in keys. Keys identify machines that have joined, so this list must not change.
_NOT_IN_KEY = frozenset(
    {"", "none", "not specified", "default string", "to be filled by o.e.m.", "0", "123456789"}
)
_RANDOM = "1"  # a random address of the kernel, which changes with each boot
_NOT_DRIVES = re.compile(r"(?:loop|ram|zram|sr|fd|dm-|md)\d+")
_DMI = "class/dmi/id"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisMachine:
    """Identity of this machine. `key` identifies it; `id` has the format of /etc/machine-id. Both are "" if
    nothing identifies the machine. `description` is for people."""

    key: str
    id: str
    name: str
    description: str


@dataclass(frozen=True, slots=True, order=True)
class Card:
    """A network card."""

    on_usb: bool
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDrive:
    """A drive, and its number of writes in this boot (None: not counted)."""

    name: str
    model: str
    serial: str
    size_bytes: int
    writes: int | None


def this_machine(*, given_key: str = "", sys: Path = block_devices.SYS) -> ThisMachine:
    """This machine, from the tree `sys`. `given_key`: a key that people gave it."""
    dmi = {
        name: block_devices.text_of(sys / _DMI / name)
        for name in ("sys_vendor", "product_name", "product_serial")
    }
    serial = "" if _NO_SERIAL.fullmatch(dmi["product_serial"]) else dmi["product_serial"]
    key = given_key or _firmware_key(sys) or _card_key(sys)
    number = hashlib.sha256(f"{_LABEL}\0{key}".encode()).hexdigest()[:32] if key else ""
    words = [dmi["sys_vendor"], dmi["product_name"]]
    parts = [" ".join(filter(None, words)) or "a machine without a name"]
    if serial:
        parts.append(f"serial {serial}")
    parts.append(counted(os.cpu_count() or 1, "processor"))
    parts.append(f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB")
    tail = re.sub(r"[^A-Za-z0-9-]+", "-", serial).strip("-") or number[:8]
    name = f"live-{tail[:40]}" if tail else "live"
    return ThisMachine(key=number, id=number, name=name, description=", ".join(parts))


def is_known_by_cards(*, sys: Path = block_devices.SYS) -> bool:
    """Whether only its network cards identify this machine."""
    return not _firmware_key(sys)


def cards(*, sys: Path = block_devices.SYS) -> list[Card]:
    """The network cards that are present and have a permanent address, sorted by address. Cards on USB come
    last, because they may be removed."""
    found = []
    for place in (sys / "class/net").glob("*"):
        device = place / "device"
        address = block_devices.text_of(place / "address")
        is_own = block_devices.text_of(place / "addr_assign_type") != _RANDOM
        if device.exists() and address.strip("0:") and is_own:
            found.append(Card(on_usb="/usb" in str(device.resolve()), address=address))
    return sorted(found)


def drives(*, sys: Path = block_devices.SYS) -> list[SeenDrive]:
    """The drives that could be tested, by name. Sends no command to them; the kernel has the values."""
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


def _firmware_key(sys: Path) -> str:
    """A key from the firmware's UUID and serial; "" if other boards may have the same."""
    uuid, serial = (block_devices.text_of(sys / _DMI / name) for name in ("product_uuid", "product_serial"))
    digits = uuid.replace("-", "")
    if not uuid or _SHARED.fullmatch(digits):
        return ""
    if not _STANDARD.fullmatch(digits) and _NO_SERIAL.fullmatch(serial):
        return ""
    return f"firmware {uuid.lower()} {'' if serial.lower() in _NOT_IN_KEY else serial}"


def _card_key(sys: Path) -> str:
    """A key from the first network card; "" without one, since a constant would be the key of many
    machines."""
    found = cards(sys=sys)
    return f"card {found[0].address}" if found else ""
