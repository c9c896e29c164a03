"""Speeds of a pair: two results of a comparison, compared in the cells that these two share.

Cells that a third result lacks still count. Sustained loads of different lengths are compared at the end of
the shorter one. Cells of one name that are not the same measurement are not compared. A rate that fell in a
load, or in a part of a load, that the other result did not hold is always reported. So is a load at whose end
there were no commits, in either result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from durability.bench.catalogue import HEADLINE
from durability.bench.cells import differing
from durability.bench.decision.bottom_line import fall, has_rate_of_commits, seconds_of, writers_of
from durability.bench.decision.speeds import HeldLoad, Speeds
from durability.bench.intervals import ratio
from durability.bench.measurement import Engine
from durability.bench.result import CellRounds
from durability.bench.steady_state import THIRD_MIN
from durability.bench.summary import CellSummary, summarise

Key: TypeAlias = tuple[str, Engine]
Table: TypeAlias = Mapping[Key, CellRounds]  # the cells of a result that have rounds


def pair_speeds(first: Table, other: Table) -> Speeds:
    """How fast the result `other` commits compared with `first`."""
    ours, theirs = _held(first), _held(other)
    pairs = [(ours[key], theirs[key]) for key in ours if key in theirs and _is_one_load(first, other, key)]
    short = _deciding(first, other, {*ours, *theirs})
    cell = None if short is None else first[short].cell
    rates = [[] if short is None else [one.rate for one in table[short].rounds] for table in (first, other)]
    loads = []
    for one, another in pairs:
        length_s = min(one.series_s, another.series_s)
        shorter = min(one, another, key=lambda each: each.series_s)
        loads.append(
            HeldLoad(
                text=_load_text(shorter),
                rates=(one.rate_before(length_s), another.rate_before(length_s)),
                commit_bytes=one.cell.block_bytes * max(1, one.cell.writes_per_sync),
                is_alike=cell is not None
                and (cell.jobs, cell.block_bytes) == (one.cell.jobs, one.cell.block_bytes),
            )
        )
    return Speeds(
        short=ratio(rates[1], rates[0]),
        held=tuple(loads),
        has_held=bool(ours or theirs),
        fell=(_fell(ours, pairs), _fell(theirs, [(another, one) for one, another in pairs])),
        silent=(0.0 in rates[0], 0.0 in rates[1]),
        stopped=(_stopped(ours), _stopped(theirs)),
    )


def _load_text(held: CellSummary) -> str:
    return f"{seconds_of(held)} of load by {writers_of(held.cell)}"


def _stopped(held: Mapping[Key, CellSummary]) -> str:
    """The first of these loads at whose end there were no commits, in words. "" for none. A load with few
    operations counts too: operations are few because the commits stopped."""
    return next((_load_text(one) for one in held.values() if not one.end_rate), "")


def _held(table: Table) -> dict[Key, CellSummary]:
    """The sustained loads of commits in a result."""
    found = {key: summarise(one) for key, one in table.items() if one.cell.group == "sustained"}
    return {key: one for key, one in found.items() if one.series and _is_of_commits(key, table)}


def _is_of_commits(key: Key, table: Table) -> bool:
    return key[1] == "durability" and has_rate_of_commits(table[key].cell)


def _is_one_load(first: Table, other: Table, key: Key) -> bool:
    return not differing([first[key].cell, other[key].cell])


def _deciding(first: Table, other: Table, held: set[Key]) -> Key | None:
    """The cell of short rounds that decides: the headline, else the first cell that both results have and
    that only commits. None if there is none."""
    shared = [
        key
        for key in first
        if key in other
        and key not in held
        and first[key].cell.group != "flush ladder"
        and _is_of_commits(key, first)
        and _is_one_load(first, other, key)
    ]
    return next((key for key in shared if key[0] == HEADLINE.name), next(iter(shared), None))


def _fell(mine: Mapping[Key, CellSummary], pairs: list[tuple[CellSummary, CellSummary]]) -> str:
    """How the rate of a result fell in a load that the other result did not hold, or held for a shorter time.
    "" if the rate was steady. `pairs`: the loads that both held, this result's load first."""
    compared = [one for one, other in pairs if not _fell_later(one, other)]
    found = fall([one for one in mine.values() if one not in compared])
    return "" if found is None else f"{found[0]}, its rate {found[1]}"


def _fell_later(one: CellSummary, other: CellSummary) -> bool:
    """Whether the rate of `one` fell after the end of the shorter load of `other`."""
    if one.series_s <= other.series_s:
        return False
    return one.end_rate < THIRD_MIN * one.rate_before(other.series_s)
