"""A kept benchmark result as its page shows it: what the core concludes from it, nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from durability.bench.decision.block_size import best_sizes
from durability.bench.decision.bottom_line import bottom_line
from durability.bench.kept_result import unpack_body
from durability.bench.result_warnings import result_warnings
from durability_server.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultView:
    """The content of the page."""

    row: Mapping[str, Any]  # as `durability results --json` has it
    lines: tuple[tuple[str, str], ...]  # the four lines of the screen, each with its label
    sizes: tuple[str, ...]  # sentences on the best size of a commit
    warnings: tuple[str, ...]


def result_view(store: Store, name: str) -> ResultView:
    """Reads a kept result. Raises RefusedError "result-unknown", FormatError and StoreError."""
    row, body = store.results.find(name, client=None)
    result = unpack_body(body)[1]
    labelled = (line.partition(": ") for line in bottom_line(result).lines())
    return ResultView(
        row=row,
        lines=tuple((label, text) for label, _, text in labelled),
        sizes=tuple(one.text for one in best_sizes(result)),
        warnings=tuple(one.text for one in (*result_warnings(result), *result.facts.warnings)),
    )
