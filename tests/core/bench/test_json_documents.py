"""The documents of `bench --json` and `compare --json`: derived, plain, and described key by key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from durability.bench.catalogue import ETCD, STANDARD
from durability.bench.cells import make_cell
from durability.bench.compare import compare
from durability.bench.json_documents import (
    COMPARE_SCHEMA,
    SUMMARY_SCHEMA,
    comparison_document,
    summary_document,
)
from durability.bench.plausibility import controls_of
from durability.bench.result import decode, encode
from durability.bench.summary import written_bytes
from durability.formats.documents import to_json
from tests.core.bench.results import JUDGED, Device, simulate
from tests.places import DOCS

CELLS = (*JUDGED, ETCD, make_cell("group commit", "", writes_per_sync=8))
RESULT = simulate(Device(written={"zeros": 0.1}), cells=CELLS)


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys(part)


@pytest.mark.slow
def test_a_summary_is_what_the_file_gives() -> None:
    """Plain JSON, schema first, the same from the run as from its file."""
    document = summary_document(RESULT)
    assert next(iter(document)) == "schema" and document["schema"] == SUMMARY_SCHEMA
    assert summary_document(decode(encode(RESULT))) == document
    assert json.loads(to_json(document)) == document


def test_a_cell_of_a_summary() -> None:
    """Rate, latencies in microseconds, what a drive did, and null for what does not apply."""
    document: Any = summary_document(RESULT)
    headline = document["cells"][0]
    assert headline["name"] == STANDARD[0].name and headline["rate"]["rounds"] == 5
    assert headline["commit_us"]["samples"] == 2000 and headline["commit_us"]["p99.9"] is None
    assert 30 < headline["commit_us"]["p50"] < 40 and headline["disks"][0]["flushes"] == 1.0
    assert headline["read_us"] is None and headline["rule"] is None
    assert document["cells"][-2]["rule"] == {"limit_ms": 10.0, "kept": True}
    assert document["cells"][-1]["writes_per_s"]["median"] > document["cells"][-1]["rate"]["median"]
    assert document["plausibility"]["code"] == "flush-no-media-work"
    assert {one["cell"].split("-")[-2]: one["inflated"] for one in document["inflation"]}["zeros"] is True


@pytest.mark.slow
def test_a_summary_has_the_machine_and_the_controls() -> None:
    """Facts with the keys of the file, what was written, and the medians that the verdict rests on."""
    document: Any = summary_document(RESULT)
    assert document["machine"]["cpu_model"] == "CPU" and document["before"]["busy_percent"] == 1.0
    assert document["after"]["load"] == 1.0
    assert summary_document(replace(RESULT, after=None))["after"] is None
    assert document["written_bytes"] == written_bytes(RESULT) > 0
    controls, found = document["controls"], controls_of(RESULT)
    assert found.write_ns is not None and controls["write_us"] == found.write_ns / 1000
    assert found.flush_ns is not None and controls["flush_us"] == found.flush_ns / 1000
    assert found.commit_ns is not None and controls["commit_us"] == found.commit_ns / 1000
    ladder = [(one["dirty_bytes"], one["flush_us"] * 1000) for one in controls["ladder"]]
    assert ladder == [(size, pytest.approx(time_ns)) for size, time_ns in found.ladder]
    assert all(one["least_us"] <= one["flush_us"] <= one["most_us"] for one in controls["ladder"])
    alone: Any = summary_document(simulate(Device(), cells=STANDARD[:1]))["controls"]
    assert alone == {"write_us": None, "flush_us": None, "commit_us": None, "ladder": []}


def test_a_summary_has_the_bottom_line() -> None:
    """The four lines, and their parts as figures and words."""
    line: Any = summary_document(RESULT)["bottom_line"]
    assert [text.split(":")[0] for text in line["lines"]] == ["speed", "steady", "honest", "place"]
    assert line["one_writer"]["bytes_per_s"] == pytest.approx(4096 * line["one_writer"]["rate"])
    assert line["honest"]["word"] == "not shown" and line["honest"]["command"].startswith("durability run")
    assert line["place"]["kinds"] == ["datacenter SSD with power-loss protection"]
    assert line["many_writers"] is None


def test_a_comparison_document() -> None:
    """Each result's rates and each but the first against it; refusals leave no cells."""
    other = simulate(Device(flush_ns=40_000), seed=2, cells=CELLS)
    document: Any = comparison_document(compare([("a", RESULT), ("b", other)]))
    assert document["schema"] == COMPARE_SCHEMA and document["labels"] == ["a", "b"]
    row = document["cells"][0]
    assert len(row["rates"]) == 2 and row["against_first"][0]["ratio"]["value"] < 1
    other = simulate(Device(), cells=STANDARD[9:10])
    refused: Any = comparison_document(compare([("a", RESULT), ("b", other)]))
    assert refused["refusals"] and refused["cells"] == []
    assert json.loads(to_json(document)) == document


@pytest.mark.slow
def test_the_document_has_every_key() -> None:
    """docs/reference/bench-results.md describes each key of both."""
    text = (DOCS / "reference/bench-results.md").read_text()
    comparison = comparison_document(compare([("a", RESULT), ("b", simulate(Device(), seed=2, cells=CELLS))]))
    used = {*keys(summary_document(RESULT)), *keys(comparison)}
    assert {name for name in used if f"`{name}`" not in text} == set()
