"""Which serials do not identify one drive: those that several machines have, and those that mean nothing.

Loop devices and hypervisors use the same serial on many machines. Some hypervisors number drives that have no
given name. Some adapters report one serial for any drive attached to them. No list of these can be complete,
so equal serials alone never prove that two drives are the same. Verdicts, listings and results all use this
one rule.
"""

from __future__ import annotations

import re

from durability.formats.facts import Drive

# Default serials of QEMU, VMware, VirtualBox and Google. In its WWID, a QEMU drive has its model before the
# serial. Then the serials of USB adapters of JMicron, ASMedia and others, and of memory cards. A further NVMe
# namespace has its number after the serial.
_GIVEN_TO_ANY = re.compile(
    r"((.*\s)?(QM\d{5}|drive-[a-z]+\d+(-\d+)*)|VMware NVMe_\d{4}|VB1234-56789|nvme_card(-pd|\d*)"
    r"|152D00539000|5000000000000001|0?123456789(012|ABC(DEF?)?)?|(0x)?0+)(/\d+)?",
    re.DOTALL,
)
# No system reports a longer serial. A client could send hundreds, and the time that the server needs for a
# serial grows with its length.
_CHARS_MAX = 256
# Volumes of DigitalOcean and Linode: their serial is the name that a user gave them.
_NAMED_BY_USERS = re.compile(r"\b(DO|Linode) Volume\b")


def is_nobodys(serial: str) -> bool:
    """Whether a serial identifies no drive: it is empty, or is given to any drive."""
    return not serial or (len(serial) <= _CHARS_MAX and _GIVEN_TO_ANY.fullmatch(serial) is not None)


def is_shared(drive: Drive) -> bool:
    """Whether drives of other machines can have the same serial. A loop device's serial may be hidden, so the
    drive's name is checked too."""
    is_loop = drive.serial.startswith("loop:") or drive.name.startswith("loop")
    return bool(drive.serial) and (drive.emulated or is_loop or is_named_by_users(drive.model))


def is_named_by_users(model: str) -> bool:
    """Whether the serial of drives of this model is a name that their user gave them."""
    return _NAMED_BY_USERS.search(model) is not None
