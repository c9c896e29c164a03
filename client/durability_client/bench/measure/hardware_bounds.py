"""Physical bounds of a leaf drive, whatever it claims: its rotation speed and its link.

They are read from /sys, and the rotation speed of a disk also from smartctl, if installed. Unknown values are
None or "", never guessed from names. An emulated drive has no link.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from durability.bench.result import Medium
from durability.formats.facts import Drive
from durability_client.system.block_devices import SYS, node_of, text_of
from durability_client.system.programs import output_of

_ROTATION_RATE = slice(4, 6)  # place in the VPD page 0xB1 (block device characteristics), big-endian
_DOES_NOT_TURN = 1  # value in that page; 0 means not reported, other values below the least rate are reserved
_RPM_LEAST, _RPM_MOST = 0x0401, 0xFFFE
# Share of payload bits in the transferred bits: 8b/10b coding up to 5 GT/s, 128b/130b from 8 GT/s on.
_PCIE_CODING = {2.5: 0.8, 5.0: 0.8}
_PCIE_CODING_LATER = 128 / 130
_SATA_CODING = 0.8
_USB_CODING = {480: 1.0, 5000: 0.8, 10000: 128 / 132, 20000: 128 / 132}


def medium(drive: Drive, *, sys: Path = SYS) -> Medium:
    """The physical bounds of `drive`."""
    device = sys / "class" / "block" / drive.name / "device"
    rpm = _rpm(drive, device) if drive.rotational and not drive.emulated else None
    bytes_per_s, link = (None, "") if drive.emulated else _link(device)
    return Medium(name=drive.name, rpm=rpm, link_bytes_per_s=bytes_per_s, link=link)


def _rpm(drive: Drive, device: Path) -> int | None:
    try:
        rate = int.from_bytes((device / "vpd_pgb1").read_bytes()[_ROTATION_RATE], "big")
    except OSError:
        return rpm_in(_identity_by_smartctl(drive.name))
    return 0 if rate == _DOES_NOT_TURN else _known(rate)


def _identity_by_smartctl(name: str) -> object:
    try:
        return json.loads(output_of("smartctl", "--json", "-i", str(node_of(name))))
    except ValueError:
        return None


def rpm_in(document: object) -> int | None:
    """Revolutions per minute from a document of `smartctl --json -i`. 0 if the drive reports that it does not
    rotate, although a USB bridge or RAID controller may report the opposite; None if unknown."""
    rate = document.get("rotation_rate") if isinstance(document, dict) else None
    return None if not isinstance(rate, int) else 0 if rate == 0 else _known(rate)


def _known(rate: int) -> int | None:
    return rate if _RPM_LEAST <= rate <= _RPM_MOST else None


def _link(device: Path) -> tuple[int | None, str]:
    """The drive's link: the first SATA, USB or PCIe link above the drive, which is usually the slowest."""
    if not device.exists():
        return None, ""
    where = device.resolve()
    for place in (where, *where.parents):
        for look in (_sata, _usb, _pcie):
            if found := look(place):
                return found
    return None, ""


def _sata(place: Path) -> tuple[int, str] | None:
    for speed in place.glob("link*/ata_link/link*/sata_spd"):
        if match := re.fullmatch(r"([\d.]+) Gbps", text_of(speed)):
            return int(float(match[1]) * 1e9 / 8 * _SATA_CODING), f"SATA {match[0]}"
    return None


def _usb(place: Path) -> tuple[int, str] | None:
    speed = text_of(place / "speed")
    if not (place / "bMaxPower").exists() or not speed.isdecimal():
        return None
    megabits = int(speed)
    return int(megabits * 1e6 / 8 * _USB_CODING.get(megabits, 1.0)), f"USB {megabits} Mbit/s"


def _pcie(place: Path) -> tuple[int, str] | None:
    match = re.match(r"([\d.]+) GT/s", text_of(place / "current_link_speed"))
    width = text_of(place / "current_link_width")
    if match is None or not width.isdecimal() or not int(width):
        return None
    transfers, lanes = float(match[1]), int(width)
    coding = _PCIE_CODING.get(transfers, _PCIE_CODING_LATER)
    return int(transfers * 1e9 / 8 * coding * lanes), f"PCIe {match[0]} x{lanes}"
