"""Facts that can be shown to others: what identifies a machine, a drive or a file system, as a hash.

The same serial gives the same hash, so two results still tell whether they are of one drive. Hides a serial
from readers, not from somebody who can try all serials of a maker.
"""

from __future__ import annotations

import hashlib
import re

from durability.documents import from_value, to_value
from durability.facts import Facts
from durability.packing import Value

HASHED = "sha256:"  # what a hash begins with
_CONTEXT = b"durability.bench serial\0"
_HASH_DIGITS = 16
_PART_CHARACTERS_MIN = 5  # of a serial that is looked for within other texts: a shorter one is in too many


def hash_serials(facts: Facts) -> Facts:
    """`facts` with serials, machine id and UUID replaced wherever they stand, also in paths and warnings."""
    secrets = {facts.host.machine_id, *(drive.serial for drive in facts.drives)} - {""}
    if facts.file_system is not None and facts.file_system.uuid:
        secrets.add(facts.file_system.uuid)
    hashes = {secret: _hash(secret) for secret in secrets}
    # Names under /dev/disk/by-id have underscores where a serial has spaces.
    spelled = {name: _hash(secret) for secret in secrets for name in (secret, secret.replace(" ", "_"))}
    parts = sorted((name for name in spelled if len(name) >= _PART_CHARACTERS_MIN), key=len, reverse=True)
    within = re.compile("|".join(map(re.escape, parts)) or "(?!)")

    def hashed(value: Value) -> Value:
        if isinstance(value, str):
            return hashes.get(value) or within.sub(lambda match: spelled[match[0]], value)
        if isinstance(value, dict):
            return {name: hashed(part) for name, part in value.items()}
        if isinstance(value, list):
            return [hashed(part) for part in value]
        return value

    return from_value(Facts, hashed(to_value(facts)))


def _hash(secret: str) -> str:
    return f"{HASHED}{hashlib.sha256(_CONTEXT + secret.encode()).hexdigest()[:_HASH_DIGITS]}"
