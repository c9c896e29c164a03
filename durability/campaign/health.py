"""Health of a drive over the cycles: its own reports, times to ready, mount and commit, and their changes.

Counters and facts are compared with earlier cycles; any change for the worse gives a warning. Times vary by
themselves, so a warning about a time needs two signs. The median of the last cycles must be clearly above
that of the first cycles, and a test must show a trend beyond chance. Data are not judged here, and few cycles
give no warning about times.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median
from typing import TypeAlias, TypeVar

from durability.campaign.campaign_state import CampaignState, PastCycle
from durability.campaign.tasks import Condition, in_one_order
from durability.units import counted

CYCLES_MIN = 12  # cycles with a value that a trend needs
GREW_BY = 1.5  # least ratio of the median of the last third to that of the first third
TREND_VALUES_MAX = 400  # values in a trend test, which compares all pairs; more values are thinned out evenly
CHANCE = 1e-4  # largest probability of a false warning for one figure
CAPACITOR_FELL_BY = 5  # least fall that gives a warning, in percentage points


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRow:
    """A drive after one cycle. A value is None if it was not reported. Times are in seconds and latencies in
    microseconds. The other values are as in `Condition`."""

    cycle: int  # 0 is the check
    serial: str
    firmware: str
    size_bytes: int | None
    ready_s: float | None
    power_cycles: int | None
    unsafe_shutdowns: int | None
    media_errors: int | None
    spare_percent: int | None
    used_percent: int | None
    backup_failed: bool | None
    capacitor_percent: int | None
    commit_p50_us: float | None
    commit_p99_us: float | None
    mount_s: float | None
    repaired: bool
    not_back: bool  # its machine did not boot within `boot_within_s` and was switched off and on once more


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthWarning:
    """A change for the worse."""

    code: str  # for programs
    cycle: int  # cycle in which the change was seen first; for a trend, the last cycle with a value
    text: str  # a sentence for people


T = TypeVar("T")
Warnings: TypeAlias = Iterator[HealthWarning]


def health_rows(state: CampaignState, drive: str) -> tuple[HealthRow, ...]:
    """The rows of a drive, oldest first: one for each ended cycle with a status of the drive."""
    machine = state.machine_of(drive)
    rows = (_row(past, drive, machine) for past in state.cycles)
    return tuple(row for row in rows if row is not None)


def health_warnings(rows: Sequence[HealthRow]) -> tuple[HealthWarning, ...]:
    """Warnings from the rows of one drive, most serious first."""
    return tuple(warning for look in _LOOKS for warning in look(rows))


def _row(past: PastCycle, drive: str, machine: str) -> HealthRow | None:
    status, judged = past.statuses.get(drive), past.judged.get(drive)
    if status is None:
        return None
    said: Condition | None = status.condition
    return HealthRow(
        cycle=past.began.cycle,
        serial=said.serial if said is not None else "",
        firmware=said.firmware if said is not None else "",
        size_bytes=said.size_bytes if said is not None else None,
        ready_s=said.ready_s if said is not None else None,
        power_cycles=said.power_cycles if said is not None else None,
        unsafe_shutdowns=said.unsafe_shutdowns if said is not None else None,
        media_errors=said.media_errors if said is not None else None,
        spare_percent=said.spare_percent if said is not None else None,
        used_percent=said.used_percent if said is not None else None,
        backup_failed=said.backup_failed if said is not None else None,
        capacitor_percent=said.capacitor_percent if said is not None else None,
        commit_p50_us=judged.commit_p50_us if judged is not None else None,
        commit_p99_us=judged.commit_p99_us if judged is not None else None,
        mount_s=status.mount_s,
        repaired=status.repaired,
        not_back=machine in past.not_back,
    )


def known_values(rows: Sequence[HealthRow], figure: Callable[[HealthRow], T | None]) -> list[tuple[int, T]]:
    """Cycle and value of a figure, for each row that has the figure."""
    return [(row.cycle, value) for row in rows if (value := figure(row)) is not None]


def _changes(
    rows: Sequence[HealthRow], figure: Callable[[HealthRow], T | None]
) -> Iterator[tuple[tuple[int, T], tuple[int, T]]]:
    """Each change of a figure: cycle and value before the change, and cycle and value after it."""
    values = known_values(rows, figure)
    return (pair for pair in itertools.pairwise(values) if pair[0][1] != pair[1][1])


# Facts and counters: one change is enough.


def _backup(rows: Sequence[HealthRow]) -> Warnings:
    failed = next((row for row in rows if row.backup_failed), None)
    if failed is not None:
        text = f"since cycle {failed.cycle} the drive says that its power-loss protection is broken"
        yield HealthWarning(code="backup-failed", cycle=failed.cycle, text=text)


def _smaller(rows: Sequence[HealthRow]) -> Warnings:
    for before, after in _changes(rows, lambda row: row.size_bytes or None):
        if after[1] < before[1]:
            text = f"it came back smaller in cycle {after[0]}: {after[1]:,} bytes, and {before[1]:,} before"
            yield HealthWarning(code="smaller", cycle=after[0], text=text)


def _firmware(rows: Sequence[HealthRow]) -> Warnings:
    for before, after in _changes(rows, lambda row: in_one_order(row.firmware) or None):
        text = f"it came back with firmware {after[1]} in cycle {after[0]}, and had {before[1]} before"
        yield HealthWarning(code="firmware", cycle=after[0], text=text)


def _media_errors(rows: Sequence[HealthRow]) -> Warnings:
    values = known_values(rows, lambda row: row.media_errors)
    # Each rise counts: the counter falls when sectors are rewritten, and errors after that are new ones.
    changes = list(_changes(rows, lambda row: row.media_errors))
    rises = [(after[0], after[1] - before[1]) for before, after in changes if after[1] > before[1]]
    if not rises:
        return
    first, last = rises[0][0], values[-1][1]
    if len(rises) == len(changes):
        text = f"its media errors rose from {values[0][1]} to {last}, first in cycle {first}"
    else:
        added = sum(rise for _, rise in rises)
        text = f"its media errors rose by {added} in all, first in cycle {first}; the last value is {last}"
    yield HealthWarning(code="media-errors", cycle=first, text=text)


def _spare(rows: Sequence[HealthRow]) -> Warnings:
    yield from _fell(rows, lambda row: row.spare_percent, code="spare", what="spare blocks", by=1)


def _capacitors(rows: Sequence[HealthRow]) -> Warnings:
    yield from _fell(
        rows,
        lambda row: row.capacitor_percent,
        code="capacitors",
        what="capacitors' health",
        by=CAPACITOR_FELL_BY,
    )


def _fell(
    rows: Sequence[HealthRow], figure: Callable[[HealthRow], int | None], *, code: str, what: str, by: int
) -> Warnings:
    """A warning if a percentage is lower at the end than at the beginning by at least `by` points."""
    values = known_values(rows, figure)
    if values and values[0][1] - values[-1][1] >= by:
        first = next(cycle for cycle, value in values if values[0][1] - value >= by)
        text = f"its {what} fell from {values[0][1]} % to {values[-1][1]} %, first in cycle {first}"
        yield HealthWarning(code=code, cycle=first, text=text)


def _repairs(rows: Sequence[HealthRow]) -> Warnings:
    repaired = [row.cycle for row in rows if row.repaired]
    if repaired:
        of = f"{len(repaired)} of {counted(sum(row.cycle > 0 for row in rows), 'cycle')}"
        text = f"its file system had to be repaired in {of}, first in cycle {repaired[0]}"
        yield HealthWarning(code="repaired", cycle=repaired[0], text=text)


def _not_back(rows: Sequence[HealthRow]) -> Warnings:
    every = [row.cycle for row in rows if row.not_back]
    missed = [cycle for cycle in every if cycle > 0]
    where = ["in the check"] if every[:1] == [0] else []
    if missed:
        of = f"{len(missed)} of {counted(sum(row.cycle > 0 for row in rows), 'cycle')}"
        where.append(f"in {of}, first in cycle {missed[0]}")
    if where:
        text = f"its machine did not come back by itself {' and '.join(where)}"
        yield HealthWarning(code="not-back", cycle=every[0], text=text)


# Times: only a trend counts.


def _ready(rows: Sequence[HealthRow]) -> Warnings:
    yield from _grew(rows, lambda row: row.ready_s, code="slow-ready", what="time to ready", unit="s")


def _mount(rows: Sequence[HealthRow]) -> Warnings:
    yield from _grew(rows, lambda row: row.mount_s, code="slow-mount", what="time to mount", unit="s")


def _commits(rows: Sequence[HealthRow]) -> Warnings:
    what = "99th percentile of commits"
    yield from _grew(rows, lambda row: row.commit_p99_us, code="slow-commits", what=what, unit="µs")


def _grew(
    rows: Sequence[HealthRow], figure: Callable[[HealthRow], float | None], *, code: str, what: str, unit: str
) -> Warnings:
    values = known_values(rows, figure)
    if len(values) < CYCLES_MIN:
        return
    third = len(values) // 3
    before = median(value for _, value in values[:third])
    after = median(value for _, value in values[-third:])
    if after > before * GREW_BY and rises([value for _, value in values]):
        grew = f"its {what} grew from {before:.3g} {unit} to {after:.3g} {unit}"
        text = f"{grew} (medians of the first and the last third of its cycles)"
        yield HealthWarning(code=code, cycle=values[-1][0], text=text)


def rises(values: Sequence[float]) -> bool:
    """Whether values rise over time more than chance explains (Mann-Kendall test, one-sided, with ties). The
    test assumes no distribution, so a few outliers do not matter."""
    chosen = values[:: math.ceil(len(values) / TREND_VALUES_MAX)] if values else values
    n = len(chosen)
    score = sum((later > value) - (later < value) for value, later in itertools.combinations(chosen, 2))
    ties = Counter(chosen).values()
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    return variance > 0 and (score - 1) / math.sqrt(variance) > NormalDist().inv_cdf(1 - CHANCE)


_LOOKS: tuple[Callable[[Sequence[HealthRow]], Warnings], ...] = (
    _backup,
    _smaller,
    _firmware,
    _media_errors,
    _spare,
    _capacitors,
    _repairs,
    _not_back,
    _ready,
    _mount,
    _commits,
)
