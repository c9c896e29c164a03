"""Results that can be shown to others: what identifies a machine, a drive or a file system, as a hash.

The same serial gives the same hash, so two results still tell whether they are of one drive. Hides a serial
from readers, not from an attacker who can try all serials of a maker.
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

HASHED = "sha256:"  # what a hash begins with
_CONTEXT = b"durability.bench serial\0"
_HASH_DIGITS = 16
_PART_CHARACTERS_MIN = 5  # of a serial that is looked for within other texts: a shorter one is in too many
# A name that udev gives, whole: those by WWN, EUI or partition UUID have no serial of the facts in them.
_BY = re.compile(r"(/dev/disk/by-(?:id|uuid|partuuid)/)([^\s/'\":,;]+(?::[^\s/'\":,;]+)*)")


def hash_serials(result: Result) -> Result:
    """`result` with serials, machine id and UUID replaced wherever they stand: in the facts, their paths and
    warnings too, and in what is said of errors."""
    hashed = _hasher(result.facts)
    return replace(
        result,
        serials="hashed",
        stopped=hashed(result.stopped),
        facts=_hash_facts(result.facts, hashed),
        cells=tuple(replace(one, note=hashed(one.note)) for one in result.cells),
    )


def _hasher(facts: Facts) -> Callable[[str], str]:
    """The replacements that remove the serial numbers in `facts` from a text. One that any drive may have is
    no secret; it stays, so that it is not taken for a drive's own."""
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
    return from_value(Facts, value | {"kind": facts.kind})  # which a serial may be equal to


def hashed(secret: str) -> str:
    """What stands for `secret` in a result that hides it; "" and what is hidden already stay as they are."""
    return secret if not secret or secret.startswith(HASHED) else _hash(secret)


def mark(serial: str, machine_id: str) -> str:
    """What tells a drive from others, without its serial. `machine_id`: that of its machine where other
    machines have the same serial, else ""."""
    return " ".join(filter(None, (hashed(serial), hashed(machine_id))))


def marks_of(facts: Facts) -> frozenset[str]:
    """The marks of the drives in `facts`; none if one of them has no serial of its own, also not together
    with its machine. One that an earlier release hid counts as the drive's own."""
    machine = facts.host.machine_id
    for drive in facts.drives:
        if is_nobodys(drive.serial) or (is_shared(drive) and not machine):
            return frozenset()
    return frozenset(mark(drive.serial, machine if is_shared(drive) else "") for drive in facts.drives)


def are_of_one_drive(one: Facts, other: Facts) -> bool:
    """Whether both are of the same drive or drives, as far as they tell: each has a serial of its own, and
    the serials agree, and models, world-wide names and sizes too. An adapter may give one serial to every
    drive in it, so what differs in those is another drive."""
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
    """The drives of one result as those of another compare with them: by serial, hidden or not. The kernel
    may find them in another order at each boot."""
    return sorted(drives, key=lambda one: (hashed(one.serial), one.model, one.firmware, one.size_bytes))


def _hash(secret: str) -> str:
    return f"{HASHED}{hashlib.sha256(_CONTEXT + secret.encode()).hexdigest()[:_HASH_DIGITS]}"
