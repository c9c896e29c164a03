"""Tables of plain text: aligned columns, the widest cell of each giving its width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from durability import plain_text


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of a table with a heading; a cell without a value is a dash."""
    cells = [[name.replace("_", " ") for name in columns]]
    cells += [[plain_text.as_line(str(row.get(name) or "-")) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
