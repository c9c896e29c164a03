"""Sets of cells: choosing among them, and what every set must hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.bench.catalogue import (
    ACCEPT_MINUTES_MIN,
    CONTROLS,
    HEADLINE,
    HELD_COMMIT,
    HELD_FILL,
    HELD_WRITERS,
    LADDER,
    PROFILES,
    QUICK,
    STANDARD,
    minutes_to_hold,
    profile,
    select,
    sustained,
)
from durability.bench.cells import Cell
from durability.errors import UsageError
from durability.formats.histogram import supported
from tests.core.bench.results import planned_s
from tests.places import DOCS, REFERENCE


@pytest.mark.parametrize("cells", [STANDARD, QUICK, sustained(), *PROFILES.values()])
def test_every_set_holds_what_the_plausibility_verdict_needs(cells: tuple[Cell, ...]) -> None:
    """Each set of cells includes the controls that the plausibility verdict needs."""
    names = {cell.name for cell in cells}
    assert {cell.name for cell in CONTROLS} <= names


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["headline"], {HEADLINE.name}),
        ([HEADLINE.name], {HEADLINE.name}),
        (["flush ladder"], {cell.name for cell in LADDER}),
        (["64k-random"], {"64k-random-fdatasync-overwritten", "64k-random-fsync-16jobs-overwritten"}),
        (
            ["random-fsync", "empty"],
            {
                "4k-random-fsync-overwritten",
                "64k-random-fsync-16jobs-overwritten",
                "empty-flush-fdatasync-overwritten",
            },
        ),
    ],
)
def test_words_choose_cells(words: list[str], names: set[str]) -> None:
    """A name, a group and words of a name in a row each mean the cells that one expects, in their order."""
    chosen = select(STANDARD, words)
    assert {cell.name for cell in chosen} == names
    assert [STANDARD.index(cell) for cell in chosen] == sorted(STANDARD.index(cell) for cell in chosen)


@pytest.mark.parametrize("word", ["", "k", "4", "random-fdatasync-4", "postgres", "HEADLINE"])
def test_a_word_that_means_nothing_is_refused_with_what_there_is(word: str) -> None:
    """The message names the groups and the cells."""
    with pytest.raises(UsageError) as refused:
        select(STANDARD, ["headline", word])
    assert "flush ladder" in str(refused.value) and HEADLINE.name in str(refused.value)


def test_a_profile_is_found_by_its_name() -> None:
    """An unknown one is refused with those that there are."""
    assert profile("etcd")[0].block_bytes == 2300
    with pytest.raises(UsageError, match=r"'oracle'.*postgres.*zfs-qcow2"):
        profile("oracle")


def test_accept_takes_the_time_that_it_is_given() -> None:
    """Four long rounds fill what the standard cells leave; the paced ones of these have a p99.9. One writes
    most of the free space, and two sync nothing."""
    cells = sustained(10)
    for cell, standard in zip(cells, STANDARD, strict=False):
        assert replace(cell, seconds=standard.seconds) == standard
        assert cell.pace_us or cell == standard
    paced = [cell for cell in cells if cell.pace_us]
    assert [cell.place for cell in paced] == ["target", "memory"]
    for cell in paced:
        assert supported(round(cell.seconds * cell.rounds * 1e6) // cell.pace_us, 99.9)
    held = cells[len(STANDARD) :]
    assert [(cell.rounds, cell.group) for cell in held] == [(1, "sustained")] * 4
    assert [cell.name for cell in held if cell.fills] == [HELD_FILL.name]
    assert [cell.sync for cell in held] == ["fdatasync", "fdatasync", "none", "none"]
    assert 9.5 * 60 <= planned_s(cells) <= 10 * 60
    with pytest.raises(UsageError, match=r"2 to 1440 minutes, not 0\.5"):
        sustained(0.5)
    assert planned_s(sustained(ACCEPT_MINUTES_MIN)) <= 120


@pytest.mark.parametrize("held", [HELD_COMMIT, HELD_WRITERS, HELD_FILL])
@pytest.mark.parametrize("seconds", [300, 600, 1234.5])
def test_the_minutes_that_hold_a_load_long_enough(held: Cell, seconds: float) -> None:
    """So many, and not one less."""
    minutes = minutes_to_hold(held, seconds)
    assert minutes is not None

    def lasts_s(whole: int) -> float:
        return next(cell.seconds for cell in sustained(whole) if cell.name == held.name)

    assert lasts_s(minutes) > seconds >= lasts_s(minutes - 1)


def test_pages_have_the_numbers_of_cells_and_the_times_of_sustained_loads() -> None:
    """The row of `--quick` in docs/reference/bench-cells.md, and what is said beside the old long run."""
    assert f"| `--quick` | {len(QUICK)} of them |" in (REFERENCE / "bench-cells.md").read_text()
    one, two, three, four = (f"{cell.seconds:.0f}" for cell in sustained() if cell.group == "sustained")
    page = " ".join((DOCS / "explanation/bench-on-drives.md").read_text().split())
    assert f"of {one}, {two}, {three} and {four} s." in page


def test_no_minutes_hold_a_load_for_longer_than_a_day() -> None:
    """A fourth of the longest run is six hours."""
    assert minutes_to_hold(HELD_COMMIT, 6 * 3600) is None and minutes_to_hold(HELD_COMMIT, 1) == 2


def test_etcd_and_server_profiles_are_the_workloads_that_people_know() -> None:
    """60/40 at 16 KiB with and without sync, 64 KiB of 16 jobs, sizes from 4 to 256 KiB with 8 jobs."""
    mixes = [cell for cell in PROFILES["consumer-vs-datacenter"] if cell.workload == "mix"]
    assert {(cell.sync == "none", cell.jobs) for cell in mixes} == {
        (no, jobs) for no in (True, False) for jobs in (1, 16)
    }
    busy = PROFILES["dedicated-server"][0]
    assert (busy.block_bytes, busy.jobs, busy.sync) == (64 << 10, 16, "fsync")
    sizes = {cell.block_bytes >> 10 for cell in PROFILES["zfs-qcow2"] if cell.jobs == 8}
    assert sizes == {4, 8, 16, 32, 64, 128, 256}
    assert [cell.sync for cell in PROFILES["postgres"][:4]] == ["fdatasync", "fsync", "dsync", "osync"]
