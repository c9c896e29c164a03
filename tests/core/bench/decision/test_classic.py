"""Classic rates: each row beside its commits, what a sync takes away, and no figure that was not measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from durability.bench.catalogue import CLASSIC, PROFILES
from durability.bench.compare import compare
from durability.bench.decision.bottom_line import bottom_line
from durability.bench.decision.classic import classic_rows, classic_version, sync_cost
from durability.bench.result import CellRounds, Result
from tests.core.bench.results import Device, classic_result


def test_a_row_has_what_people_know_beside_the_same_with_syncs() -> None:
    """A write takes 20 µs and its sync 380 µs more, so a sync leaves a twentieth."""
    result = classic_result(Device(write_ns=20_000, flush_ns=380_000, noise=0.0))
    rows = classic_rows(result)
    assert [row.label for row in rows] == ["SEQ1M Q8T1", "SEQ1M Q1T1", "RND4K Q32T1", "RND4K Q1T1"]
    assert classic_version(result) == "fio-3.33"
    assert rows[3].kept is not None and round(rows[3].kept, 3) == 0.05
    assert sync_cost(rows).startswith(
        "with a sync after each write, RND4K Q1T1 keeps 5.0% (2,488 of 49,773 IOPS)"
    )
    assert ", SEQ1M Q1T1 5.0% (" in sync_cost(rows) and sync_cost(rows).endswith(" MB/s)")


def test_a_sync_that_costs_nothing_is_said_to_keep_all() -> None:
    """On a busy machine the commits may even be faster."""
    rows = tuple(replace(row, write=row.synced) for row in classic_rows(classic_result()))
    assert "RND4K Q1T1 keeps all (" in sync_cost(rows) and ", SEQ1M Q1T1 all (" in sync_cost(rows)


def test_commits_have_as_many_writers_as_writes_were_in_flight() -> None:
    """And the same block size, order and O_DIRECT."""
    for row in CLASSIC:
        assert row.synced.jobs == row.write.depth and row.synced.sync == "fdatasync"
        for name in ("block_bytes", "pattern", "direct", "workload"):
            assert getattr(row.synced, name) == getattr(row.write, name)
        assert row.read.only_fio and row.write.only_fio and not row.synced.only_fio


def test_what_was_not_measured_is_not_said() -> None:
    """A result without fio has no row, one without commits no ratio."""
    whole = classic_result()
    ours = [one for one in whole.cells if one.engine == "durability"]
    theirs = [one for one in whole.cells if one.engine == "fio"]
    assert classic_rows(_of(whole, ours)) == () and classic_version(_of(whole, ours)) == ""
    rows = classic_rows(_of(whole, theirs))
    assert len(rows) == 4 and {row.kept for row in rows} == {None} and sync_cost(rows) == ""


def _of(result: Result, cells: Sequence[CellRounds]) -> Result:
    order = tuple(index for index, one in enumerate(cells) for _ in one.rounds)
    return replace(result, cells=tuple(cells), order=order)


def test_the_bottom_line_is_about_commits() -> None:
    """Rates without a sync are in no line of it."""
    found = bottom_line(classic_result())
    assert found.one is not None and found.one.summary.cell.name == PROFILES["classic"][0].name
    assert found.many is not None and found.many.summary.cell.sync == "fdatasync"


def test_classic_rows_are_compared_and_do_not_decide() -> None:
    """A standard result shares the commits; two classic ones share the rows too."""
    first, second = classic_result(), classic_result(Device(write_ns=40_000, noise=0.0))
    both = compare([("a", first), ("b", second)])
    assert {row.cell.name for row in both.rows if row.engine == "fio"} >= {row.read.name for row in CLASSIC}
    assert "commits" in both.answers[0] and both.caveat
    parts = [[one for one in result.cells if one.engine == "fio"] for result in (first, second)]
    alone = compare([("a", _of(first, parts[0])), ("b", _of(second, parts[1]))])
    assert alone.rows and "no cell that commits was measured in both" in alone.answers[0]
