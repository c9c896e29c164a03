"""Cells that take milliseconds, since no test depends on how fast anything is."""

from __future__ import annotations

from typing import Any

from durability.bench.cells import MIB, Cell, make_cell

SIZE_BYTES = 2 * MIB


def tiny(**changes: Any) -> Cell:
    """The headline cell with `changes`, for a moment."""
    times: dict[str, Any] = {"seconds": 0.005, "warmup_s": 0.0, "rounds": 1}
    return make_cell("commit", "of a test", **{**times, **changes})
