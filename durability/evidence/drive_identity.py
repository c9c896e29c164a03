"""What tells a drive from every other one: its serial, as far as that is its own.

A serial that several machines have is a drive's only together with its machine. One that is given to any
drive is no serial. Some adapters give one serial to every drive in them, so model, world-wide name and size
must agree as well. Refuses to take one drive for another by its name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

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


def are_two(before: Drive, after: Drive) -> bool:
    """Whether two drives with one serial are two, the one found before the other. A drive may lose capacity;
    one that has gained some is only itself by its world-wide name. What one of them does not tell is not
    compared."""
    if _differ(before.model, after.model) or _differ(before.wwid, after.wwid):
        return True
    known = bool(before.wwid) and before.wwid == after.wwid
    return 0 < before.size_bytes < after.size_bytes and not known


def _differ(one: str, other: str) -> bool:
    return bool(one and other) and one != other


def told_apart(armed: Facts, now: Facts) -> Facts:
    """`now`, where a drive that has the serial of one at arming, and is another, has another serial. A drive
    that arming took for emulated, or did not, counts as that: releases differ in which drives they take for
    it."""
    then_on, now_on = machine_ids(armed.host, now.host)
    known = [(own_serial(drive, then_on), drive) for drive in armed.drives]
    emulated = {(drive.serial, drive.model): drive.emulated for drive in armed.drives}

    def apart(drive: Drive) -> Drive:
        drive = replace(drive, emulated=emulated.get((drive.serial, drive.model), drive.emulated))
        serial = own_serial(drive, now_on)
        before = [one for own, one in known if serial and own == serial]
        if not before or not all(are_two(one, drive) for one in before):
            return drive
        return replace(drive, serial=f"{drive.serial} ({drive.size_bytes:,} bytes: another drive)")

    return replace(now, drives=tuple(map(apart, now.drives)))


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
