"""The identity of a drive: its serial, as far as that serial is unique to the drive.

Several machines can have drives with the same serial. Such a serial identifies a drive only together with its
machine. A serial that is given to any drive does not count as a serial. Some adapters report one serial for
every drive attached to them, so model, world-wide name and size must agree as well. This module never
identifies a drive by its device name.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from durability.formats.drive_serials import is_nobodys, is_shared
from durability.formats.facts import Drive, Facts, Host
from durability.formats.packing import pack

_HASH_DIGITS = 16


def own_serial(drive: Drive, machine_id: str) -> str:
    """A serial that no other drive has; "" if no such serial is known."""
    if is_nobodys(drive.serial):
        return ""
    if not is_shared(drive):
        return drive.serial
    return serial_of_machine(machine_id, drive.model, drive.serial) if machine_id else ""


def serial_of_machine(machine_id: str, model: str, serial: str) -> str:
    """The own serial of a drive whose reported serial also occurs on other machines."""
    return f"{machine_id}:{model}:{serial}"


def own_serials(drives: Iterable[Drive], machine_id: str) -> frozenset[str] | None:
    """The own serials of all drives, each once: two paths to one drive have one serial. None if there are no
    drives, or if any drive has no serial of its own."""
    known = {own_serial(drive, machine_id) for drive in drives}
    return frozenset(known) if known and "" not in known else None


def are_two(before: Drive, after: Drive) -> bool:
    """Whether `before` and `after`, which share a serial, are different drives. `before` was found earlier. A
    drive may lose capacity. A drive that has gained capacity counts as the same drive only if the world-wide
    names agree. A value that either drive does not report is not compared."""
    if _differ(before.model, after.model) or _differ(before.wwid, after.wwid):
        return True
    known = bool(before.wwid) and before.wwid == after.wwid
    return 0 < before.size_bytes < after.size_bytes and not known


def _differ(one: str, other: str) -> bool:
    return bool(one and other) and one != other


def told_apart(armed: Facts, now: Facts) -> Facts:
    """`now`, where each drive that has the serial of a drive at arming but is a different drive gets another
    serial. A drive with the serial and model of one at arming keeps the `emulated` flag of arming, because
    releases differ in which drives they call emulated."""
    then_on, now_on = machine_ids(armed.host, now.host)
    known = defaultdict[str, list[Drive]](list)
    for one in armed.drives:
        known[own_serial(one, then_on)].append(one)
    emulated = {(drive.serial, drive.model): drive.emulated for drive in armed.drives}

    def apart(drive: Drive) -> Drive:
        drive = replace(drive, emulated=emulated.get((drive.serial, drive.model), drive.emulated))
        serial = own_serial(drive, now_on)
        before = known[serial] if serial else []
        if not before or not all(are_two(one, drive) for one in before):
            return drive
        return replace(drive, serial=f"{drive.serial} ({drive.size_bytes:,} bytes: another drive)")

    return replace(now, drives=tuple(map(apart, now.drives)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Drives at arming and drives now, each listed once."""

    # Drives present at both times: as found at arming, and as found now.
    both: tuple[tuple[Drive, Drive], ...]
    gone: tuple[Drive, ...]  # drives present only at arming
    added: tuple[Drive, ...]  # drives present only now


def matched(armed: Iterable[Drive], now: Iterable[Drive], machines: tuple[str, str]) -> Matched:
    """Pair each drive at arming with the same drive now, one to one. Candidates are the drives with the same
    serial that are not known to be different drives; the most similar candidate is chosen. A drive without a
    serial of its own at arming can be paired with any drive that is left. The number of paths to a drive may
    differ between the two times, and a path need not report the world-wide name. So an unpaired path that may
    lead to a paired drive of the same time is not counted as another drive."""
    gone, added = (
        [_Known(own_serial(drive, on), drive) for drive in drives]
        for drives, on in zip((armed, now), machines, strict=True)
    )

    def may_be_one(before: _Known, after: _Known) -> bool:
        return not before.own or (before.own == after.own and not are_two(before.drive, after.drive))

    def unlike(pair: tuple[_Known, _Known]) -> tuple[bool, bool, bool, bool, int, bool]:
        before, after = pair
        then, found = before.drive, after.drive
        return (
            not before.own,  # last: a drive without a serial gets one that no serial matches
            before.own != after.own,
            not then.wwid or then.wwid != found.wwid,
            then.model != found.model,
            abs(then.size_bytes - found.size_bytes),
            then.name != found.name,  # only for messages: no decision depends on the name
        )

    pairs: list[tuple[_Known, _Known]] = []
    for before, after in sorted(product(gone, added), key=unlike):
        if before in gone and after in added and may_be_one(before, after):
            pairs.append((before, after))
            gone.remove(before)
            added.remove(after)
    both: list[tuple[_Known, _Known]] = []
    # A further path may report no size, so the largest comes first.
    for pair in sorted(pairs, key=lambda pair: (-pair[1].drive.size_bytes, -pair[0].drive.size_bytes)):
        if not any(all(map(_lead_to_one, pair, known)) for known in both):
            both.append(pair)
    return Matched(
        both=tuple((before.drive, after.drive) for before, after in both),
        gone=_others(gone, [before for before, _ in both]),
        added=_others(added, [after for _, after in both]),
    )


class _Known(NamedTuple):
    """A drive and its own serial."""

    own: str
    drive: Drive


def _others(left: Iterable[_Known], found: Sequence[_Known]) -> tuple[Drive, ...]:
    """The drives in `left` that no path in `found` leads to, each once."""
    others: list[_Known] = []
    for path in sorted(left, key=lambda path: -path.drive.size_bytes):
        if not any(_lead_to_one(path, known) for known in (*found, *others)):
            others.append(path)
    return tuple(path.drive for path in others)


def _lead_to_one(path: _Known, other: _Known) -> bool:
    """Whether two paths, found at the same time, may lead to one drive. Without a serial of the drive's own,
    only equal world-wide names show this."""
    one, two = path.drive, other.drive
    same = path.own == other.own if path.own else bool(one.wwid) and one.wwid == two.wwid
    return same and not are_two(one, two) and not are_two(two, one)


def same_kernel(one: Host, other: Host) -> bool:
    """Whether both hosts are the same boot of one system. Containers on one system have different machine
    ids."""
    return bool(one.boot_id) and one.boot_id == other.boot_id


def machine_ids(armed: Host, now: Host) -> tuple[str, str]:
    """The machine ids to use when serials at arming are compared with serials now. Within one boot, both are
    the id at arming."""
    return armed.machine_id, armed.machine_id if same_kernel(armed, now) else now.machine_id


def enumerations(facts: Facts) -> tuple[str, ...]:
    """A hash for each drive, its enumeration number and the boot. A cut affects all runs that were made on
    one enumeration of a drive. So two runs that share a hash did not end in two separate cuts. A kernel that
    does not number enumerations gives one hash per drive and boot."""
    boot = facts.host.boot_id or facts.host.machine_id
    enumerated = {(drive.serial or drive.name, drive.diskseq) for drive in facts.drives} or {("", None)}
    hashes = (hashlib.sha256(pack([boot, *one])).hexdigest()[:_HASH_DIGITS] for one in enumerated)
    return tuple(sorted(hashes))
