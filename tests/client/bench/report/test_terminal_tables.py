"""The terminal's tables: legible at 80 columns, roomy at more, and no way for a file to move the cursor."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from durability.bench import figures
from durability.bench.catalogue import HEADLINE, LADDER, sustained
from durability.bench.cells import make_cell
from durability.bench.compare import compare
from durability.bench.measurement import NO_LATENCIES
from durability.bench.result import Result
from durability.bench.summary import summarise
from durability.formats.facts import MachineLoad
from durability_client.bench.report import small_charts, terminal_tables
from tests.core.bench.results import Device, drive, facts, latencies, simulate, throttled

_LONG = "4k-random-fdatasync-overwritten"


def _shown(result: Result, width: int) -> str:
    out = io.StringIO()
    terminal_tables.show_result(result, Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120, 160, 240])
def test_names_are_whole_and_lines_fit(width: int) -> None:
    """At any width names are there uncut, and nothing but a command to copy is longer than a line."""
    result = simulate(Device())
    text = _shown(result, width)
    for one in result.cells:
        assert one.cell.name in text
    too_long = [line for line in text.splitlines() if len(line) > width and "next: durability" not in line]
    assert too_long == []
    assert "\x1b" not in text


@pytest.mark.slow
def test_figures_stand_under_their_headings() -> None:
    """A cell's line has its median, interval and percentiles; p99.9 of 2,000 samples is a dash."""
    result = simulate(Device(), seed=3)
    line = next(line for line in _shown(result, 160).splitlines() if line.startswith(f"  {_LONG}"))
    assert line.split()[0] == _LONG
    assert figures.DASH in line.split()
    assert line.split()[-1] == "steady"


@pytest.mark.slow
def test_a_narrow_terminal_has_two_tables_and_a_wide_one_has_one() -> None:
    """Each name stands twice where there is no room for all columns, and once where there is."""
    result = simulate(Device())
    for width, times in ((80, 2), (160, 2), (240, 1)):
        lines = [line for line in _shown(result, width).splitlines() if line.startswith(f"  {_LONG}")]
        assert len(lines) == times, width


def _head(result: Result, width: int = 160) -> dict[str, str]:
    """The facts above the tables, what was wrapped on one line again."""
    found: dict[str, str] = {}
    name = ""
    for line in _shown(result, width).split("\n\n")[1].splitlines():
        name = line[:12].strip() or name
        found[name] = f"{found.get(name, '')} {line[13:]}".strip()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 160])
def test_the_facts_are_told_before_the_figures(width: int) -> None:
    """Where, on what drive and processor, how busy before and after, in which mode, and what was written."""
    found = _head(simulate(Device(), profile="etcd"), width)
    written = found.pop("written")
    assert found == {
        "target": "/srv/data base (file), ext4 on /srv/data, blocks of 4,096 bytes, mounted rw, relatime",
        "drive": "sda: Model One, firmware 1.0, 1 TiB, not rotating, write cache write back, FUA yes",
        "processor": "2 x CPU, governor performance, 16 GiB of memory",
        "system": "Linux 6.1.0, virtualisation none",
        "before/after": (
            "load average 0.10, then 1.00; processors busy 1.0 %, then 60.0 %; taken by the host 0.0 %;"
            " file system used 1 bytes of 1 TiB"
        ),
        "run": "standard, profile etcd, 256 MiB, seed 1, 2026-01-02T03:04:05+00:00",
    }
    assert re.fullmatch(r"[\d.]+ GiB in the rounds, 0\.\d+ times the size of its drive", written)


@pytest.mark.slow
def test_unknown_facts_are_left_out() -> None:
    """No drive, no file system, nothing known after: shorter lines, and neither None nor unknown."""
    silent = MachineLoad(
        load=0.5,
        busy_percent=None,
        steal_percent=None,
        used_bytes=None,
        size_bytes=None,
        reserved_bytes=None,
    )
    where = facts(drives=(), file_system=None)
    found = _head(simulate(Device(), facts=where, before=silent, after=None))
    assert found["target"] == "/srv/data base (file)" and "drive" not in found
    assert found["before/after"] == "load average 0.50 before"
    assert found["written"].endswith("in the rounds")
    bare = facts(drives=(drive(model="", firmware="", fua=None, rotational=None, write_cache=None),))
    assert _head(simulate(Device(), facts=bare))["drive"] == "sda: 1 TiB"
    large = _head(simulate(Device(), facts=facts(drives=(drive(size_bytes=1 << 60),))))
    assert large["written"].endswith("in the rounds")


@pytest.mark.slow
def test_options_of_a_mount_as_long_as_a_page_are_wrapped() -> None:
    """Overlays of containers have such: lines end between options, and within one if they must."""
    options = f"rw,lowerdir={':'.join(f'/var/lib/layers/{number:032x}' for number in range(40))},xino=off"
    where = facts()
    assert where.file_system is not None
    where = replace(where, file_system=replace(where.file_system, options=options))
    text = _shown(simulate(Device(), facts=where), 80).split("\n\n")[1]
    assert max(map(len, text.splitlines())) <= 80
    assert options.replace(",", "") in text.replace(" ", "").replace("\n", "").replace(",", "")


@pytest.mark.slow
def test_the_flush_ladder_has_a_figure_at_its_top() -> None:
    """Where the sample has no percentile the column is a dash, and the median that the verdict takes is told
    with the range of the rounds, beside W, F0 and C."""
    few = tuple(
        replace(
            one, commits=3, sync_ns=latencies([median - 1000, median, median + 9000]), commit_ns=NO_LATENCIES
        )
        for one, median in zip(
            simulate(Device(), cells=LADDER[-1:]).cells[0].rounds,
            (90_000, 100_000, 110_000, 100_000, 100_000),
            strict=True,
        )
    )
    result = simulate(Device())
    cells = tuple(
        replace(one, rounds=few) if one.cell.name == LADDER[-1].name else one for one in result.cells
    )
    lines = _shown(replace(result, cells=cells), 240).splitlines()
    (row,) = (line for line in lines if LADDER[-1].name in line)
    assert row.split()[4:9] == [figures.DASH] * 5
    (told,) = (line for line in lines if line.startswith("  F(64 MiB): "))
    assert re.search(r" 100 µs +90(\.\d)? µs.110 µs$", told.rstrip()), told
    assert [line.split(":")[0].strip() for line in lines if re.match(r"  (W|F0|C): a ", line)] == [
        "W",
        "F0",
        "C",
    ]


def test_reads_and_writes_per_second_stand_below_their_cells() -> None:
    """The rate of a group commit is not that of its writes, and a mix has latencies of reads."""
    cell, mix = (
        make_cell("group commit", "", writes_per_sync=32),
        make_cell("mix", "", workload="mix", read_percent=60),
    )
    result = simulate(Device(), cells=(cell, mix, LADDER[-1]))
    reading = tuple(
        replace(one, reads=400, read_ns=latencies([70_000] * 400)) for one in result.cells[1].rounds
    )
    result = replace(
        result, cells=(result.cells[0], replace(result.cells[1], rounds=reading), result.cells[2])
    )
    for width in (80, 240):
        lines = _shown(result, width).splitlines()
        notes = [line.strip() for line in lines if "writes per second" in line or "reads: " in line]
        assert len(notes) == 2
        assert re.fullmatch(r"[\d,]+ writes per second \([\d,]+.[\d,]+\)", notes[0])
        assert re.fullmatch(r"reads: p50 [\d.]+ µs, p95 [\d.]+ µs, p99 [\d.]+ µs, max 70 µs", notes[1])


def _with_rates(result: Result, rates: Sequence[float]) -> Result:
    """The first cell with five rounds of these rates."""
    first = result.cells[0]
    rounds = tuple(
        replace(one, seconds=one.operations / rate) for one, rate in zip(first.rounds, rates, strict=True)
    )
    return replace(result, cells=(replace(first, rounds=rounds), *result.cells[1:]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rates", "word"),
    [
        ([1000, 1300, 1000, 1000, 1000], "NOT STEADY 28%"),
        ([1100, 1070, 1030, 1000, 950], "NOT STEADY -14%"),
        ([9000, 100, 100, 100, 100], "NOT STEADY 473%"),
        ([1000, 1010, 1000, 990, 1000], "steady"),
    ],
)
def test_short_rounds_that_scatter_are_no_alarm(rates: Sequence[float], word: str) -> None:
    """The word has how far they lie apart, or how far they fall, fits 80 columns, and is not red."""
    result = _with_rates(simulate(Device()), rates)
    out = io.StringIO()
    terminal_tables.show_result(
        result, Console(file=out, width=80, force_terminal=True, color_system="standard")
    )
    line = next(line for line in out.getvalue().splitlines() if f"  {_LONG} " in line)
    assert word in line and "\x1b[1;31m" not in line
    assert len(re.sub(r"\x1b\[[\d;]*m", "", line)) <= 80


def test_a_load_that_was_held_and_does_not_last_is_an_alarm() -> None:
    """Red, and in words below the tables."""
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system="standard")
    terminal_tables.show_result(throttled(sustained()[-4]), console)
    assert "\x1b[1;31mNOT STEADY" in out.getvalue()


def test_engines_stand_side_by_side() -> None:
    """fio's line of a cell is right below this tool's, not at the end of the group."""
    result = simulate(Device())
    fio = tuple(replace(one, engine="fio", engine_version="fio-3") for one in result.cells[:2])
    order = (*result.order, *(len(result.cells) + at for at, one in enumerate(fio) for _ in one.rounds))
    both = replace(result, cells=(*result.cells, *fio), order=order)
    names = [figures.name_of(one) for one in figures.side_by_side(map(summarise, both.cells))]
    first, second = (one.cell.name for one in fio)
    assert names[:4] == [first, f"{first} (fio)", second, f"{second} (fio)"]
    assert len(names) == len(both.cells)


def test_a_comparison_tells_the_class_and_what_is_compared() -> None:
    """Times of the sync in the flush ladder, and the one plausibility that all have."""
    out = io.StringIO()
    comparison = compare([("a", simulate(Device())), ("b", simulate(Device(), seed=2))])
    terminal_tables.show_comparison(comparison, Console(file=out, width=120))
    assert max(map(len, out.getvalue().splitlines())) <= 120
    assert "plausibility of a, b: flush does no media work" in out.getvalue()
    lines = [line.split() for line in out.getvalue().splitlines() if "-per1024-" in line]
    assert lines[0][2] == "µs" and lines[0][5] == "µs"


@pytest.mark.slow
def test_missing_rounds_are_dashes_and_said() -> None:
    """A cell without rounds has dashes, and below it why."""
    result = simulate(Device())
    first = replace(result.cells[0], rounds=(), note="the target has no file system")
    order = tuple(index for index in result.order if index != 0)
    text = _shown(replace(result, cells=(first, *result.cells[1:]), order=order), 80)
    assert "    the target has no file system" in text


@pytest.mark.slow
def test_a_hostile_name_moves_no_cursor() -> None:
    """Control characters of a result file reach no terminal."""
    evil = "\x1b[2J\x07model\r\u202e"
    hostile = facts(drives=(drive(model=evil),), path=f"/srv/{evil}")
    result = simulate(Device(), facts=hostile)
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(_shown(result, 80))
    out = io.StringIO()
    comparison = compare([(evil, result), ("b", simulate(Device(), seed=2))])
    terminal_tables.show_comparison(comparison, Console(file=out, width=80))
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(out.getvalue())


def test_refusals_stand_alone() -> None:
    """Results without a cell in common have neither answer nor table, and one sentence."""
    out = io.StringIO()
    other = make_cell("commit", "", jobs=3)
    comparison = compare([("a", simulate(Device())), ("b", simulate(Device(), cells=[other]))])
    terminal_tables.show_comparison(comparison, Console(file=out, width=80))
    assert out.getvalue().startswith("not comparable: no cell was measured in all results")
    assert _LONG not in out.getvalue()


def test_sparks_show_what_falls() -> None:
    """Bars begin at 0, so that half the rate is half as high."""
    assert small_charts.spark([8, 8, 4, 4], bars=4) == "██▅▅"
    assert small_charts.spark([]) == ""
    assert small_charts.spark([0, 0]) == ""


def test_labels_are_what_cells_differ_in() -> None:
    """Words that all names have are left out; what has no other word is called by the word for that."""
    assert figures.distinct(["4k-a-x", "4k-b-x"], "alone") == ("a", "b")
    assert figures.distinct(["4k-a", "4k-a-shared"], "alone") == ("alone", "shared")
    assert figures.distinct(["4k-a"], "alone") == ("alone",)
    assert figures.distinct([], "alone") == ()


def test_what_was_held_for_long_is_told_before_the_verdict() -> None:
    """With the rate, for how long, and whether it lasted."""
    text = " ".join(_shown(simulate(Device(), cells=(HEADLINE, *sustained()[-4:-2])), 160).split())
    held, _, verdict = text.partition("plausibility: ")
    name = "64k-random-fdatasync-16jobs-sustained-overwritten"
    assert re.search(
        rf"sustained load: {name}: [\d,.]+ per second, [\d,.]+ MB/s, over [\d,]+ s, too short to say: ", held
    )
    assert "sustained load" not in verdict
