"""What tells a drive from every other one: its serial, as far as that is its own.

A serial that several machines have is a drive's only together with its machine. One that is given to any
drive is no serial. Some adapters give one serial to every drive in them, so model, world-wide name and size
must agree as well. Refuses to take one drive for another by its name.
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
    """Drives at arming and now, each once. `both`: each that is there at both times, as it was and as it is.
    `gone`: those of arming only. `added`: those of now only."""

    both: tuple[tuple[Drive, Drive], ...]
    gone: tuple[Drive, ...]
    added: tuple[Drive, ...]


def matched(armed: Iterable[Drive], now: Iterable[Drive], machines: tuple[str, str]) -> Matched:
    """Each drive at arming with itself now, one to one. Of those with its serial that are not known to be
    others, it is the one most alike. A drive without a serial of its own at arming is any that is left. Paths
    to one drive need not be as many at both times, nor tell its world-wide name: what may be a further path
    to a drive of its moment that was found is no drive more."""
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
            not before.own,  # last: those with a serial leave what they are not
            before.own != after.own,
            not then.wwid or then.wwid != found.wwid,
            then.model != found.model,
            abs(then.size_bytes - found.size_bytes),
            then.name != found.name,  # for what people are told: it decides nothing else
        )

    pairs: list[tuple[_Known, _Known]] = []
    for before, after in sorted(product(gone, added), key=unlike):
        if before in gone and after in added and may_be_one(before, after):
            pairs.append((before, after))
            gone.remove(before)
            added.remove(after)
    both: list[tuple[_Known, _Known]] = []
    # Another path may tell no size.
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
    """The drives of those `left` to which no path of those `found` leads, each once."""
    others: list[_Known] = []
    for path in sorted(left, key=lambda path: -path.drive.size_bytes):
        if not any(_lead_to_one(path, known) for known in (*found, *others)):
            others.append(path)
    return tuple(path.drive for path in others)


def _lead_to_one(path: _Known, other: _Known) -> bool:
    """Whether two paths of one moment may lead to one drive. Without a serial only its world-wide name shows
    that."""
    one, two = path.drive, other.drive
    same = path.own == other.own if path.own else bool(one.wwid) and one.wwid == two.wwid
    return same and not are_two(one, two) and not are_two(two, one)


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
