"""The health of drives by cycle, as text: a line of figures and bars for each value, warnings, and a table.

The text fits into 80 columns. `durability.campaign.health` decides about warnings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TextIO

from durability import plain_text
from durability.campaign.campaign_state import CampaignState
from durability.campaign.health import HealthRow, health_rows, health_warnings
from durability.units import counted, duration, format_size
from durability_client.text_tables import BARS, bar, table

DIGITS = "12345678"  # used if the terminal's encoding has no bars
BARS_MAX = 18
_S = 1_000_000_000
_COLUMNS = ("value", "least", "median", "most")
_ROW_COLUMNS = (
    "cycle",
    "ready_s",
    "mount_s",
    "p50_ms",
    "p99_ms",
    "power",
    "unsafe",
    "errors",
    "spare",
    "capacity",
)


@dataclass(frozen=True, slots=True)
class _Figure:
    """A value of the rows. `shown` formats the value. `rises`: show the rise since the previous cycle,
    because the counter rises in every cycle."""

    name: str
    of: Callable[[HealthRow], float | None]
    shown: Callable[[float], str]
    rises: bool = False


def health_text(state: CampaignState, *, bars: str, whole: bool) -> Iterator[str]:
    """The known health of each drive. `bars`: characters for bars, from `bars_for`. `whole`: also a table
    with a row for each cycle."""
    for drive in state.plan.drives:
        rows = health_rows(state, drive.name)
        if rows:
            yield from _drive_text(drive.name, rows, bars=bars, whole=whole)
        else:
            yield f"health of {drive.name}: nothing is known yet"


def bars_for(stream: TextIO) -> str:
    """The characters for bars that `stream` can show."""
    try:
        BARS.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return DIGITS
    return BARS


def bars_of(values: Sequence[float | None], bars: str) -> str:
    """`values` as at most `BARS_MAX` bars. The scale starts at 0, so that noise does not look large.

    If a bar stands for several cycles, it shows the value that is farthest from the median of all values, so
    that no outlier is hidden. A blank stands for cycles without a value.
    """
    known = _known(values)
    if not known:
        return ""
    most, middle = max(known), median(known)
    count = min(BARS_MAX, len(values))
    edges = [number * len(values) // count for number in range(count + 1)]
    drawn = []
    for begin, end in itertools.pairwise(edges):
        piece = _known(values[begin:end])
        if not piece:
            drawn.append(" ")
            continue
        value = max(piece, key=lambda one: abs(one - middle))
        drawn.append(bar(max(0.0, value) / most if most > 0 else 0.0, bars))
    return "".join(drawn)


def _drive_text(drive: str, rows: Sequence[HealthRow], *, bars: str, whole: bool) -> Iterator[str]:
    yield plain_text.as_line(f"health of {drive}{_identity(rows)}")
    by_figure = [(figure, _values(rows, figure)) for figure in _FIGURES]
    column = "by_cycle" if bars == BARS else f"by_cycle,_{bars[0]}_to_{bars[-1]}"
    cells = [
        {**_range(figure, known), column: bars_of(values, bars)}
        for figure, values in by_figure
        if (known := _known(values))
    ]
    yield from (f"  {line}" for line in table((*_COLUMNS, column), cells))
    unknown = [figure.name for figure, values in by_figure if not _known(values)]
    if unknown:
        yield f"  not known: {', '.join(unknown)}"
    yield f"  power-loss protection: {_protection(rows)}"
    for warning in health_warnings(rows):
        yield plain_text.as_line(f"  warning: {warning.text}")
    if whole:
        yield ""
        yield from table(_ROW_COLUMNS, [_row(row) for row in rows])


def _protection(rows: Sequence[HealthRow]) -> str:
    """The drive's own word on its power-loss protection."""
    said = [row for row in rows if row.backup_failed is not None]
    if not said:
        return "not said"
    failed = next((row.cycle for row in said if row.backup_failed), None)
    if failed is None:
        return "works"
    return f"failed, first in {f'cycle {failed}' if failed else 'the check'}"


def _identity(rows: Sequence[HealthRow]) -> str:
    """The last reported serial and firmware, and the number of cycles."""
    serial = next((row.serial for row in reversed(rows) if row.serial), "")
    firmware = next((row.firmware for row in reversed(rows) if row.firmware), "")
    count = counted(sum(row.cycle > 0 for row in rows), "cycle")
    parts = (serial and f"serial {serial}", firmware and f"firmware {firmware}", count)
    return f" ({', '.join(filter(None, parts))})"


def _values(rows: Sequence[HealthRow], figure: _Figure) -> list[float | None]:
    """The value of a figure in each row; for a rising figure, the rise since the last row that has it."""
    values = [figure.of(row) for row in rows]
    return _rises(values) if figure.rises else values


def _rises(values: Sequence[float | None]) -> list[float | None]:
    before = None
    rises: list[float | None] = []
    for value in values:
        rises.append(value - before if value is not None and before is not None else None)
        before = value if value is not None else before
    return rises


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _range(figure: _Figure, known: Sequence[float]) -> dict[str, str]:
    return {
        "value": f"rise of {figure.name}" if figure.rises else figure.name,
        "least": figure.shown(min(known)),
        "median": figure.shown(median(known)),
        "most": figure.shown(max(known)),
    }


def _row(row: HealthRow) -> dict[str, Any]:
    return {
        "cycle": str(row.cycle) if row.cycle else "check",
        "ready_s": _digits(row.ready_s),
        "mount_s": _digits(row.mount_s),
        "p50_ms": _digits(None if row.commit_p50_us is None else row.commit_p50_us / 1000),
        "p99_ms": _digits(None if row.commit_p99_us is None else row.commit_p99_us / 1000),
        "power": _digits(row.power_cycles),
        "unsafe": _digits(row.unsafe_shutdowns),
        "errors": _digits(row.media_errors),
        "spare": None if row.spare_percent is None else f"{row.spare_percent} %",
        "capacity": format_size(row.size_bytes) if row.size_bytes else None,
    }


def _digits(value: float | None) -> str | None:
    """The value as a whole number, or with three significant digits."""
    if value is None:
        return None
    if isinstance(value, int) or value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if value >= 0.001 else "0"


def _seconds(value: float) -> str:
    return duration(value * _S)


def _microseconds(value: float) -> str:
    return duration(value * 1000)


def _percent(value: float) -> str:
    return f"{value:g} %"


def _count(value: float) -> str:
    return f"{math.floor(value):,}" if value >= 1000 else f"{value:g}"


def _size(value: float) -> str:
    return format_size(int(value))


_FIGURES = (
    _Figure("time to ready", lambda row: row.ready_s, _seconds),
    _Figure("time to mount", lambda row: row.mount_s, _seconds),
    _Figure("commit p50", lambda row: row.commit_p50_us, _microseconds),
    _Figure("commit p99", lambda row: row.commit_p99_us, _microseconds),
    _Figure("power cycles", lambda row: row.power_cycles, _count, rises=True),
    _Figure("unsafe shutdowns", lambda row: row.unsafe_shutdowns, _count, rises=True),
    _Figure("media errors", lambda row: row.media_errors, _count),
    _Figure("spare blocks", lambda row: row.spare_percent, _percent),
    _Figure("endurance used", lambda row: row.used_percent, _percent),
    _Figure("capacitors", lambda row: row.capacitor_percent, _percent),
    _Figure("capacity", lambda row: row.size_bytes or None, _size),
)
