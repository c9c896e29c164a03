"""The JSON of a report and its hash, and the page that describes kinds and profiles."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from durability.acceptance.acceptance_document import Report, document_of, hash_of
from durability.acceptance.criteria import KINDS
from durability.acceptance.decision import decide_on
from durability.acceptance.profile import Criterion, Profile
from durability.formats.documents import to_json
from tests.core.acceptance.samples import accept_result, campaign, evidence, measured
from tests.core.bench.results import drive, facts
from tests.places import ROOT

PAGE = ROOT / "docs/reference/acceptance-profile.md"


def _report() -> Report:
    criterion = Criterion(
        kind="clean-cuts", limit=59, cut_class="power", required=True, reason="Cuts tell; µ and … are text."
    )
    profile = Profile(name="p", title="P", about="", criteria=(criterion,))
    hostile = facts(drives=(drive(model="m\x1b[31m\u202e<script>", serial="s\0"),))
    failed = accept_result(facts=hostile, complete=False, stopped="I/O error of the target\x1b[2J")
    every = evidence(campaign(12, losses=1), results=[measured(failed)])
    return Report(
        profile=profile,
        profile_sha256="00" * 32,
        by="somebody",
        created="2026-01-02T03:04:05+00:00",
        software="durability 1",
        decisions=(decide_on(profile, every),),
    )


def test_the_hash_is_of_the_document_as_it_is_written() -> None:
    """The hash can be recomputed from the written file as documented, and any change changes it."""
    written = to_json(document_of(_report()))
    read: dict[str, Any] = json.loads(written)
    said = read.pop("sha256")
    text = json.dumps(read, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == said == hash_of(read)
    read["drives"][0]["decision"] = "pass"
    assert hash_of(read) != said


def test_the_document_holds_all_evidence_as_plain_text() -> None:
    """Cuts, campaigns with their cycles and health, and results by hash; a drive's name moves no terminal."""
    document: Any = document_of(_report())
    assert next(iter(document)) == "schema"
    (one,) = document["drives"]
    assert one["subject"]["model"].isprintable()
    (known,) = one["evidence"]["campaigns"]
    assert (len(known["cycles"]), len(known["health"]), known["result"]["tally"]["losses"]) == (12, 13, 1)
    (result,) = one["evidence"]["results"]
    assert (result["sha256"], result["complete"]) == ("ab" * 32, False)
    assert result["stopped"].startswith("I/O error of the target") and result["stopped"].isprintable()
    assert one["criteria"][0]["word"] == document["decision"] == "refuse"


def test_every_kind_is_on_the_page() -> None:
    """The reference has a row for each kind, with its limit, and for no other."""
    rows = [
        line.split("|")[1:3]
        for line in PAGE.read_text(encoding="utf-8").split("## Kinds")[1].split("\n## ")[0].splitlines()
        if line.startswith("| `")
    ]
    written = {name.strip().strip("`"): limit.strip() for name, limit in rows}
    assert written == {
        kind.name: "none" if kind.limit is None else f"{kind.limit.sense} N {kind.limit.unit}"
        for kind in KINDS.values()
    }
