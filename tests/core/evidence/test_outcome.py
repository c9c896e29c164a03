"""The document of `verify --json` has the keys that scripts rely on, in their order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from durability.evidence.outcome import EXAMPLES_MAX, subject
from durability.formats.documents import to_json
from durability.formats.packing import Value
from durability.formats.plan import Plan
from tests.core.evidence.memory_target import (
    Disk,
    Found,
    MakePlan,
    judged,
    make_case,
    make_statistics,
    scan,
    small,
)
from tests.sample_facts import drive, facts

KEYS = [
    "schema",
    "run",
    "verdict",
    "reasons",
    "subject",
    "cut",
    "acked",
    "checked",
    "at_risk",
    "in_flight",
    "in_flight_damaged",
    "findings",
    "order_violations",
    "collateral",
    "unstable",
    "loss_window",
    "control",
    "strength",
    "examples",
    "duration_s",
    "lost",
    "requirements",
]
NESTED = {
    "cut": ["class", "proof", "attested"],
    "at_risk": ["ms1", "ms10", "ms100", "ms1000"],
    "findings": [
        "lost",
        "torn",
        "corrupt",
        "misdirected",
        "foreign",
        "unreadable",
        "truncated",
        "absent",
        "stale",
        "resurrected",
    ],
    "control": ["completed", "lost"],
    "strength": ["cuts", "losses", "bound"],
}


def made(plan: Plan, found: Found) -> dict[str, Value]:
    """The document on a run of 2000 operations that was cut."""
    return judged(make_case(plan, (2000,), control=7), plan, found).document()


@pytest.fixture(name="plan", scope="module")
def fixture_plan(make_plan: MakePlan) -> Plan:
    """A small plan."""
    return small(make_plan)


@pytest.mark.slow
def test_a_durable_document(plan: Plan) -> None:
    """Every key is there, in order, and survives JSON."""
    disk = Disk(plan)
    disk.write_to(0, 2000)
    result: dict[str, Any] = json.loads(to_json(made(plan, scan(disk, (2000,)))))
    assert list(result) == KEYS
    assert {key: list(result[key]) for key in NESTED} == NESTED
    assert result["schema"] == "durability.verify/1"
    assert result["run"] == f"{plan.run:016x}"
    assert result["verdict"] == "durable"
    assert (result["acked"], result["checked"], result["in_flight"]) == (2000, 64, 8)
    assert result["loss_window"] is None
    assert result["control"] == {"completed": 7, "lost": 0}
    assert result["duration_s"] == 1.235


def test_a_document_of_loss(plan: Plan) -> None:
    """Counts are whole, examples are a few, and the window is a pair of milliseconds and a count."""
    result: dict[str, Any] = dict(made(plan, scan(Disk(plan), (2000,))))
    assert result["verdict"] == "loss"
    assert result["findings"]["lost"] == 64
    assert [reason["code"] for reason in result["reasons"]] == ["findings"]
    assert len(result["examples"]) == EXAMPLES_MAX
    assert list(result["examples"][0]) == [
        "class",
        "writer",
        "slot",
        "file_suffix",
        "offset",
        "expected_seq",
        "found_seq",
        "order_violation",
        "collateral",
        "text",
    ]
    assert list(result["loss_window"]) == ["ms_min", "ms_max", "operations"]
    assert result["loss_window"]["operations"] == 2000


def test_many_findings_of_a_class_hide_no_other(plan: Plan) -> None:
    """All slots are lost but the last, which is damaged: the second example shows it."""
    disk = Disk(plan)
    disk.put(0, plan.slots - 1, b"\xa5" * plan.record_bytes)
    result: dict[str, Any] = dict(made(plan, scan(disk, (2000,))))
    assert result["findings"]["corrupt"] == 1
    assert [one["class"] for one in result["examples"]][:3] == ["lost", "corrupt", "lost"]


@pytest.mark.slow
def test_the_subject_is_the_whole_stack(plan: Plan) -> None:
    """File system with its options, layers and drives are named, as the verdict is on all of them."""
    disk = Disk(plan)
    disk.write_to(0, 2000)
    result: dict[str, Any] = dict(made(plan, scan(disk, (2000,))))
    subject = result["subject"]
    assert subject["file_system"]["options"] == "rw"
    assert subject["layers"] == ["sda1", "sda"]
    assert subject["drives"][0]["firmware"] == "1.0"
    assert (subject["syncs"], subject["commit_us"]["max"]) == (2000, 1000.0)


def test_the_subject_says_what_was_flushed(plan: Plan) -> None:
    """Flushes per sync of each drive, FUA writes as unknown, and a warning where no flush was sent."""
    armed = facts(drives=(drive(), drive(name="sdb", serial="S2")))
    statistics = make_statistics(operations=(2000,), flushes={"sda": 3000, "sdb": 0})
    named: dict[str, Any] = subject(plan, armed, statistics)
    first, second = named["drives"]
    assert (first["flushes"], first["flushes_per_sync"], first["fua_writes"]) == (3000, 1.5, None)
    assert (second["flushes"], second["flushes_per_sync"]) == (0, 0)
    assert [warning["code"] for warning in named["warnings"]] == ["no-flush"]
    assert named["warnings"][0]["text"].startswith("sdb: no flush was sent")


def test_a_run_without_statistics(plan: Plan) -> None:
    """Without the client's statistics, their fields are null and cause no warning."""
    named: dict[str, Any] = subject(plan, facts(), None)
    assert (named["syncs"], named["commit_us"], named["warnings"]) == (None, None, [])
    assert (named["drives"][0]["flushes"], named["drives"][0]["flushes_per_sync"]) == (None, None)
