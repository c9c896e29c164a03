"""The acceptance decision as a JSON document, with a hash of its content.

docs/reference/acceptance-profile.md describes the document. The hash is SHA-256 over the document without its
key `sha256`, with sorted keys, without spaces, in ASCII only. So anybody can compute the hash again, and a
page that shows the hash belongs to exactly one document. The document is not signed: a hash shows that
nothing was changed since, but not who wrote it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from durability.acceptance.decision import CriterionLine, Decision, decided_of_all
from durability.acceptance.drive_evidence import BenchEvidence, CampaignEvidence
from durability.acceptance.profile import Profile
from durability.bench.decision.bottom_line import bottom_line
from durability.formats.documents import escaped, to_value
from durability.formats.packing import Value

SCHEMA = "durability.acceptance/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A complete acceptance report."""

    profile: Profile
    profile_sha256: str  # SHA-256 of the profile's text
    by: str  # who asked for the report
    created: str  # wall time, ISO 8601
    software: str
    decisions: tuple[Decision, ...]


def document_of(report: Report) -> dict[str, Value]:
    """The document with its hash."""
    document: dict[str, Value] = {
        "schema": SCHEMA,
        "software": report.software,
        "created": report.created,
        "by": report.by,
        "profile": {**to_value(report.profile), "sha256": report.profile_sha256},
        "decision": decided_of_all([one.word for one in report.decisions]),
        "drives": [_decision(one) for one in report.decisions],
    }
    return document | {"sha256": hash_of(document)}


def hash_of(document: Mapping[str, Value]) -> str:
    """The hash of a document in hexadecimal. The key `sha256` of the document is not hashed."""
    rest = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(canonical(rest)).hexdigest()


def canonical(document: Mapping[str, Value]) -> bytes:
    """The bytes of a document that are hashed, and that are written to a file."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode()


def _decision(decision: Decision) -> dict[str, Value]:
    evidence = decision.evidence
    return {
        "subject": to_value(escaped(evidence.subject)),
        "decision": decision.word,
        "why": decision.why,
        "criteria": [_line(line) for line in decision.lines],
        "not_proven": list(decision.not_proven),
        "unfinished": list(evidence.unfinished),
        "evidence": {
            "cuts": [to_value(one) for one in evidence.proofs],
            "campaigns": [_campaign(one) for one in evidence.campaigns],
            "against": [_campaign(one) for one in evidence.against],
            "results": [_measured(one) for one in evidence.results],
        },
    }


def _line(line: CriterionLine) -> dict[str, Value]:
    return {
        "kind": line.criterion.kind,
        "asks": line.asks,
        "required": line.criterion.required,
        "word": line.word,
        "figure": line.figure,
        "limit": line.limit,
        "evidence": line.source,
        "reason": line.criterion.reason,
    }


def _campaign(campaign: CampaignEvidence) -> dict[str, Value]:
    cycles: Sequence[dict[str, Value]] = [to_value(one) for one in campaign.cycles]
    return {
        "name": campaign.name,
        "state": campaign.state,
        "cut_class": campaign.cut_class,
        "planned": campaign.planned,
        "result": to_value(campaign.result),
        "cycles": list(cycles),
        "health": [to_value(row) for row in campaign.rows],
    }


def _measured(measured: BenchEvidence) -> dict[str, Value]:
    result = measured.result
    return {
        "name": measured.name,
        "sha256": measured.sha256,
        "created": result.created,
        "software": result.software,
        "mode": result.mode,
        "profile": result.profile,
        "complete": result.complete,
        "stopped": escaped(result.stopped),
        "bottom_line": list(bottom_line(result).lines()),
    }
