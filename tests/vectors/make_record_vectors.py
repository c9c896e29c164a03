"""Prints a new vector for record-v1.json from NAME PLAN_JSON WRITER SEQ...

PLAN_JSON holds all fields of the plan. Vectors are only ever added: a format that changes gets a new version.
"""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np

from durability.formats.mixing import U64
from durability.formats.plan import Plan
from durability.formats.record import SECTOR_WORDS, Stamper, superblock
from durability.formats.versions import Versions


def main() -> None:
    """Print one vector as JSON."""
    name, fields, writer, *seq_words = sys.argv[1:]
    plan = Plan(**json.loads(fields))
    seqs = np.asarray([int(word) for word in seq_words], dtype=U64)
    versions = Versions(plan)
    slots = versions.slots_of(int(writer), seqs)
    offsets = versions.offsets(int(writer), slots)
    out = np.empty((len(seqs), plan.record_bytes // 512, SECTOR_WORDS), dtype=U64)
    Stamper(plan).stamp(out, writer=int(writer), slots=slots, seqs=seqs, offsets=offsets)
    vector = {
        "name": name,
        "plan": json.loads(fields),
        "encoded": plan.encode().hex(),
        "superblock_sha256": hashlib.sha256(superblock(plan, 0)).hexdigest(),
        "writer": int(writer),
        "seqs": seqs.tolist(),
        "slots": slots.tolist(),
        "places": [list(versions.place(int(writer), int(slot))[:2]) for slot in slots],
        "removals": versions.removals(int(writer), slots, seqs).tolist(),
        "first_sector": out[0, 0].tobytes().hex(),
        "record_sha256": [hashlib.sha256(record.tobytes()).hexdigest() for record in out],
    }
    print(json.dumps(vector, indent=1))


if __name__ == "__main__":
    main()
