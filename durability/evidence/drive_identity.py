"""What tells a drive from every other one: its serial, as far as that is its own.

A serial that several machines have is a drive's only together with its machine. One that is given to any
drive is no serial. Refuses to take one drive for another by its name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from durability.formats.drive_serials import is_nobodys, is_shared
from durability.formats.facts import Drive, Facts, Host
from durability.formats.packing import pack

_HASH_DIGITS = 16


def own_serial(drive: Drive, machine_id: str) -> str:
    """What no other drive has; "" where nothing is known that it alone has."""
    if is_nobodys(drive.serial):
        return ""
    if not is_shared(drive):
        return drive.serial
    return serial_of_machine(machine_id, drive.model, drive.serial) if machine_id else ""


def serial_of_machine(machine_id: str, model: str, serial: str) -> str:
    """The own serial of a drive of which drives of other machines have the serial too."""
    return f"{machine_id}:{model}:{serial}"


def own_serials(drives: Iterable[Drive], machine_id: str) -> frozenset[str] | None:
    """Those of all drives, each once: two paths to one drive have one. None if there are no drives, or if
    one of them has none."""
    known = {own_serial(drive, machine_id) for drive in drives}
    return frozenset(known) if known and "" not in known else None


def same_kernel(one: Host, other: Host) -> bool:
    """Whether both were the same boot of one system: containers on it have machine ids of their own."""
    return bool(one.boot_id) and one.boot_id == other.boot_id


def machine_ids(armed: Host, now: Host) -> tuple[str, str]:
    """The machines by which serials of then and of now are compared."""
    return armed.machine_id, armed.machine_id if same_kernel(armed, now) else now.machine_id


def enumerations(facts: Facts) -> tuple[str, ...]:
    """A hash for each drive as it was enumerated: this time, in this boot. A cut takes all runs that were
    made on one enumeration of a drive, so two runs that share one did not end in two cuts. A kernel that
    numbers no enumerations has one in each boot."""
    boot = facts.host.boot_id or facts.host.machine_id
    enumerated = {(drive.serial or drive.name, drive.diskseq) for drive in facts.drives} or {("", None)}
    hashes = (hashlib.sha256(pack([boot, *one])).hexdigest()[:_HASH_DIGITS] for one in enumerated)
    return tuple(sorted(hashes))
