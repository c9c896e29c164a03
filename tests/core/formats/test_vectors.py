"""The formats do not move: golden vectors, only ever added to, pin every byte."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from durability.formats.mixing import U64
from durability.formats.plan import Plan
from durability.formats.record import SECTOR_WORDS, Stamper, superblock
from durability.formats.versions import Versions
from tests.places import VECTORS

MakePlan = Callable[..., Plan]
RECORDS: list[dict[str, Any]] = json.loads((VECTORS / "record-v1.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", RECORDS, ids=[vector["name"] for vector in RECORDS])
def test_golden_vector(make_plan: MakePlan, vector: dict[str, Any]) -> None:
    """Plan encoding, schedule, record bytes and superblock are those of the release that made the vector."""
    plan = make_plan(**vector["plan"])
    assert plan.encode().hex() == vector["encoded"]
    assert hashlib.sha256(superblock(plan, 0)).hexdigest() == vector["superblock_sha256"]
    seqs = np.asarray(vector["seqs"], dtype=U64)
    versions, writer = Versions(plan), vector["writer"]
    slots = versions.slots_of(writer, seqs)
    assert slots.tolist() == vector["slots"]
    if "places" in vector:  # those made since names can be slots
        assert [list(versions.place(writer, int(slot))[:2]) for slot in slots] == vector["places"]
        assert versions.removals(writer, slots, seqs).tolist() == vector["removals"]
    out = np.empty((len(seqs), plan.record_bytes // 512, SECTOR_WORDS), dtype=U64)
    offsets = versions.offsets(writer, slots)
    Stamper(plan).stamp(out, writer=writer, slots=slots, seqs=seqs, offsets=offsets)
    assert out[0, 0].tobytes().hex() == vector["first_sector"]
    assert [hashlib.sha256(record.tobytes()).hexdigest() for record in out] == vector["record_sha256"]
