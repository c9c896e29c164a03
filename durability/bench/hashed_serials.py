"""Results that can be shown to others: hashes replace the ids of machine, drives and file system.

The same serial gives the same hash, so two results still show whether they are of one drive. The hash hides a
serial from readers, but not from an attacker who can try all serials of a maker.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from durability.bench.result import Result
from durability.formats.documents import from_value, to_value
from durability.formats.drive_serials import is_nobodys, is_shared
from durability.formats.facts import Drive, Facts
from durability.formats.packing import Value

HASHED = "sha256:"  # prefix of a hash
_CONTEXT = b"durability.bench serial\0"
_HASH_DIGITS = 16
_PART_CHARACTERS_MIN = 5  # shorter serials are not replaced within other texts: they occur by chance
# A complete name from udev. Names by WWN, EUI or partition UUID contain no serial from the facts.
_BY = re.compile(r"(/dev/disk/by-(?:id|uuid|partuuid)/)([^\s/'\":,;]+(?::[^\s/'\":,;]+)*)")


def hash_serials(result: Result) -> Result:
    """`result` with all serials, the machine id and the UUID replaced by hashes: in the facts, with their
    paths and warnings, and in texts about errors."""
    hashed = _hasher(result.facts)
    return replace(
        result,
        serials="hashed",
        stopped=hashed(result.stopped),
        facts=_hash_facts(result.facts, hashed),
        cells=tuple(replace(one, note=hashed(one.note)) for one in result.cells),
    )


def _hasher(facts: Facts) -> Callable[[str], str]:
    """A function that replaces the ids in `facts` within a text. Placeholder serials, which any drive may
    have, stay: they are not secret, and a hash would look like a drive's own serial."""
    serials = {drive.serial for drive in facts.drives if not is_nobodys(drive.serial)}
    secrets = (serials | {facts.host.machine_id}) - {""}
    if facts.file_system is not None and facts.file_system.uuid:
        secrets.add(facts.file_system.uuid)
    hashes = {secret: _hash(secret) for secret in secrets}
    # Names under /dev/disk/by-id have underscores where a serial has spaces.
    spelled = {name: _hash(secret) for secret in secrets for name in (secret, secret.replace(" ", "_"))}
    parts = sorted((name for name in spelled if len(name) >= _PART_CHARACTERS_MIN), key=len, reverse=True)
    within = re.compile("|".join(map(re.escape, parts)) or "(?!)")

    def whole(match: re.Match[str]) -> str:
        return match[0] if HASHED in match[2] else match[1] + _hash(match[2])

    return lambda text: hashes.get(text) or _BY.sub(whole, within.sub(lambda it: spelled[it[0]], text))


def _hash_facts(facts: Facts, hash_text: Callable[[str], str]) -> Facts:
    def hashed(value: Value) -> Value:
        if isinstance(value, str):
            return hash_text(value)
        if isinstance(value, dict):
            return {name: hashed(part) for name, part in value.items()}
        if isinstance(value, list):
            return [hashed(part) for part in value]
        return value

    value = {name: hashed(part) for name, part in to_value(facts).items()}
    return from_value(Facts, value | {"kind": facts.kind})  # a serial may be equal to the word in `kind`


def hashed(secret: str) -> str:
    """The hash that replaces `secret` in a result. "" and text that is already a hash stay as they are."""
    return secret if not secret or secret.startswith(HASHED) else _hash(secret)


def mark(serial: str, machine_id: str) -> str:
    """A text that identifies a drive without showing its serial. `machine_id`: id of its machine if drives in
    other machines have the same serial, else ""."""
    return " ".join(filter(None, (hashed(serial), hashed(machine_id))))


def marks_of(facts: Facts) -> frozenset[str]:
    """The marks of the drives in `facts`. Empty if a drive has neither a serial of its own nor a serial that
    is unique within its machine. A serial that an earlier release hashed counts as the drive's own."""
    machine = facts.host.machine_id
    for drive in facts.drives:
        if is_nobodys(drive.serial) or (is_shared(drive) and not machine):
            return frozenset()
    return frozenset(mark(drive.serial, machine if is_shared(drive) else "") for drive in facts.drives)


def are_of_one_drive(one: Facts, other: Facts) -> bool:
    """Whether both facts are of the same drives: each drive has a serial of its own, the serials agree, and
    known models, world-wide names and sizes agree. An adapter may report one serial for every drive in it, so
    drives that differ in these values are different drives."""
    marks = marks_of(one)
    if not marks or marks != marks_of(other):
        return False
    pairs = zip(in_lasting_order(one.drives), in_lasting_order(other.drives), strict=False)
    return len(one.drives) == len(other.drives) and not any(
        known and told and known != told
        for ours, theirs in pairs
        for known, told in (
            (ours.model, theirs.model),
            (ours.wwid, theirs.wwid),
            (ours.size_bytes, theirs.size_bytes),
        )
    )


def in_lasting_order(drives: Iterable[Drive]) -> list[Drive]:
    """The drives in an order that is the same in all results: by the hash of the serial first. The kernel may
    find the drives in another order at each boot."""
    return sorted(drives, key=lambda one: (hashed(one.serial), one.model, one.firmware, one.size_bytes))


def _hash(secret: str) -> str:
    return f"{HASHED}{hashlib.sha256(_CONTEXT + secret.encode()).hexdigest()[:_HASH_DIGITS]}"
