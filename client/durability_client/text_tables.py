"""Tables of plain text, with columns as wide as their widest cells, and bars for cells."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from durability import plain_text

BARS = "▁▂▃▄▅▆▇█"
_BETWEEN = "  "
_NARROW = 8  # least width to which a column is narrowed
_CUT = "…"


def table(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    *,
    width: int | None = None,
    whole: Collection[str] = (),
) -> Iterator[str]:
    """The lines of a table with a heading. A cell without a value is a dash. `width`: width of the terminal,
    or None. The widest columns are narrowed, except those in `whole`, and their cells cut, until the lines
    fit."""
    cells = [[name.replace("_", " ") for name in columns]]
    cells += [[plain_text.as_line(str(row.get(name) or "-")) for name in columns] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        narrowed = [at for at, name in enumerate(columns) if name not in whole]
        _narrow(widths, narrowed, width - len(_BETWEEN) * (len(widths) - 1))
    for line in cells:
        yield _BETWEEN.join(_cell(*each) for each in zip(line, widths, strict=True)).rstrip()


def bar(share: float, bars: str = BARS) -> str:
    """The bar for a value that is `share` (0 to 1) of the highest."""
    return bars[min(len(bars) - 1, int(share * len(bars)))]


def _narrow(widths: list[int], narrowed: Sequence[int], room: int) -> None:
    """Narrow the widest of the columns with these numbers until all widths together fit in `room`."""
    while narrowed and sum(widths) > room:
        widest = max(narrowed, key=widths.__getitem__)
        if widths[widest] <= _NARROW:
            break
        widths[widest] -= 1


def _cell(text: str, width: int) -> str:
    """The text padded or cut to `width` columns; some characters take two columns."""
    fits = cell_len(text) <= width
    return set_cell_size(text, width) if fits else set_cell_size(text, width - 1) + _CUT
