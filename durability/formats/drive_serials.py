"""Which serials are no drive's own: those that several machines have, and those that say nothing.

Loop devices and hypervisors give one serial on many machines. Some hypervisors number their drives where
nobody names them. One rule for verdicts, listings and results.
"""

from __future__ import annotations

import re

from durability.formats.facts import Drive

# What QEMU, VMware and VirtualBox give of themselves. By its WWID a drive of QEMU has its model before that.
_GIVEN_TO_ANY = re.compile(
    r"(.*\s)?(QM\d{5}|drive-[a-z]+\d+(-\d+)*)|VMware NVMe_\d{4}|VB1234-56789|0+", re.DOTALL
)


def is_nobodys(serial: str) -> bool:
    """Whether a serial tells no drive from another: there is none, or it is given to any."""
    return not serial or _GIVEN_TO_ANY.fullmatch(serial) is not None


def is_shared(drive: Drive) -> bool:
    """Whether drives of other machines have the same serial. That of a loop device may be hidden, so its name
    counts too."""
    is_loop = drive.serial.startswith("loop:") or drive.name.startswith("loop")
    return bool(drive.serial) and (drive.emulated or is_loop)
