"""The list of kept results: what a rate is of stands beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from durability.bench.catalogue import FSYNC, HEADLINE, STANDARD
from durability.bench.cells import Cell
from durability.bench.kept_result import other_cell, summary_of
from durability.formats.documents import to_value
from durability_client.bench.kept_results import listing_lines
from tests.core.bench.results import Device, simulate


def _row(*cells: Cell) -> Mapping[str, Any]:
    return {"result": "0123456789ab", **to_value(summary_of(simulate(Device(), cells=cells)))}


def test_a_rate_has_its_megabytes() -> None:
    """A listed rate has the MB/s of the same cell; a row stored by an earlier server has none."""
    row = _row(*STANDARD[:4])
    assert row["bytes_per_s"] == 4096 * row["rate"] and row["cell"] == HEADLINE.name
    head, line, _ = listing_lines([row], None)
    assert head.split()[5:9] == ["commits/s", "MB/s", "p99", "honest"]
    at = head.index("MB/s")
    assert line[at:].split()[0] == f"{row['bytes_per_s'] / 1e6:,.0f}"
    older = {name: value for name, value in row.items() if name not in ("bytes_per_s", "cell")}
    _, line, _ = listing_lines([older], None)
    assert line[at:].split()[0] == "-" and other_cell(older) == ""


def test_a_rate_of_another_cell_is_named() -> None:
    """A commit by fsync does not stand in the list as if it were one by fdatasync."""
    head, *lines = listing_lines([_row(*STANDARD[:4]), _row(FSYNC)], None)
    assert head.endswith("cell") and lines[1].endswith(FSYNC.name) and lines[0].endswith("  -")
    head, *_ = listing_lines([_row(*STANDARD[:4])], None)
    assert "cell" not in head
