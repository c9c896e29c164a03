"""Which serials are no drive's own: those that several machines have, and those that say nothing.

Loop devices and hypervisors give one serial on many machines. Some hypervisors number their drives where
nobody names them; some adapters have one serial for whatever is attached. Nobody can list them all, so a
serial alone never tells that two drives are one. One rule for verdicts, listings and results.
"""

from __future__ import annotations

import re

from durability.formats.facts import Drive

# What QEMU, VMware, VirtualBox and Google give of themselves. By its WWID a drive of QEMU has its model
# before that. Then what USB adapters of JMicron, ASMedia and others give, and memory cards. A further
# namespace of NVMe has its number behind it.
_GIVEN_TO_ANY = re.compile(
    r"((.*\s)?(QM\d{5}|drive-[a-z]+\d+(-\d+)*)|VMware NVMe_\d{4}|VB1234-56789|nvme_card(-pd|\d*)"
    r"|152D00539000|5000000000000001|0?123456789(012|ABC(DEF?)?)?|(0x)?0+)(/\d+)?",
    re.DOTALL,
)
# No system has a longer serial. A client could name hundreds, each of which would cost the server as much
# time as it is long.
_CHARS_MAX = 256
# Volumes of DigitalOcean and Linode, which have the name that a user gave them as their serial.
_NAMED_BY_USERS = re.compile(r"\b(DO|Linode) Volume\b")


def is_nobodys(serial: str) -> bool:
    """Whether a serial tells no drive from another: there is none, or it is given to any."""
    return not serial or (len(serial) <= _CHARS_MAX and _GIVEN_TO_ANY.fullmatch(serial) is not None)


def is_shared(drive: Drive) -> bool:
    """Whether drives of other machines have the same serial. That of a loop device may be hidden, so its name
    counts too."""
    is_loop = drive.serial.startswith("loop:") or drive.name.startswith("loop")
    return bool(drive.serial) and (drive.emulated or is_loop or is_named_by_users(drive.model))


def is_named_by_users(model: str) -> bool:
    """Whether drives of this model have a name as their serial that their user gave them."""
    return _NAMED_BY_USERS.search(model) is not None
