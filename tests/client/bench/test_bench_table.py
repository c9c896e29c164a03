"""The terminal's tables: legible at 80 columns, roomy at more, and no way for a file to move the cursor."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from durability.bench.catalogue import HEADLINE, accept
from durability.bench.compare import compare
from durability.bench.result import Result
from durability.bench.summary import summarise
from durability_client.bench import table, words
from tests.core.bench.results import Device, drive, facts, simulate

_LONG = "4k-random-fdatasync-overwritten"


def _shown(result: Result, width: int) -> str:
    out = io.StringIO()
    table.show_result(result, Console(file=out, width=width))
    return out.getvalue()


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


def test_figures_stand_under_their_headings() -> None:
    """A cell's line has its median, interval and percentiles; p99.9 of 2,000 samples is a dash."""
    result = simulate(Device(), seed=3)
    line = next(line for line in _shown(result, 160).splitlines() if line.startswith(f"  {_LONG}"))
    assert line.split()[0] == _LONG
    assert words.DASH in line.split()
    assert line.split()[-1] == "steady"


def test_a_narrow_terminal_has_two_tables_and_a_wide_one_has_one() -> None:
    """Each name stands twice where there is no room for all columns, and once where there is."""
    result = simulate(Device())
    for width, times in ((80, 2), (160, 2), (240, 1)):
        lines = [line for line in _shown(result, width).splitlines() if line.startswith(f"  {_LONG}")]
        assert len(lines) == times, width


def test_the_run_is_told_before_its_figures() -> None:
    """Where, on which drive, in which mode and of what size."""
    text = " ".join(_shown(simulate(Device(), profile="etcd"), 160).split("\n\n")[0].split())
    assert text == (
        "/srv/data base on sda (Model One): profile etcd, 256 MiB, seed 1, 2026-01-02T03:04:05+00:00"
    )
    assert "sda (Model One): standard, 256 MiB" in " ".join(_shown(simulate(Device()), 160).split())


def test_engines_stand_side_by_side() -> None:
    """fio's line of a cell is right below this tool's, not at the end of the group."""
    result = simulate(Device())
    fio = tuple(replace(one, engine="fio", engine_version="fio-3") for one in result.cells[:2])
    order = (*result.order, *(len(result.cells) + at for at, one in enumerate(fio) for _ in one.rounds))
    both = replace(result, cells=(*result.cells, *fio), order=order)
    names = [words.name_of(one) for one in words.side_by_side(map(summarise, both.cells))]
    first, second = (one.cell.name for one in fio)
    assert names[:4] == [first, f"{first} (fio)", second, f"{second} (fio)"]
    assert len(names) == len(both.cells)


def test_a_comparison_tells_the_class_and_what_is_compared() -> None:
    """Times of the sync in the flush ladder, and the one plausibility that all have."""
    out = io.StringIO()
    comparison = compare([("a", simulate(Device())), ("b", simulate(Device(), seed=2))])
    table.show_comparison(comparison, Console(file=out, width=80))
    assert max(map(len, out.getvalue().splitlines())) <= 80
    assert "plausibility of a, b: flush does no media work" in out.getvalue()
    lines = [line.split() for line in out.getvalue().splitlines() if "-per1024-" in line]
    assert lines[0][2] == "µs" and lines[0][4] == "µs"


def test_missing_rounds_are_dashes_and_said() -> None:
    """A cell without rounds has dashes, and below it why."""
    result = simulate(Device())
    first = replace(result.cells[0], rounds=(), note="the target has no file system")
    order = tuple(index for index in result.order if index != 0)
    text = _shown(replace(result, cells=(first, *result.cells[1:]), order=order), 80)
    assert "    the target has no file system" in text


def test_a_hostile_name_moves_no_cursor() -> None:
    """Control characters of a result file reach no terminal."""
    evil = "\x1b[2J\x07model\r\u202e"
    hostile = facts(drives=(drive(model=evil),), path=f"/srv/{evil}")
    result = simulate(Device(), facts=hostile)
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(_shown(result, 80))
    out = io.StringIO()
    comparison = compare([(evil, result), ("b", simulate(Device(), seed=2))])
    table.show_comparison(comparison, Console(file=out, width=80))
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(out.getvalue())


def test_refusals_stand_alone() -> None:
    """Unlike results have no table, and each reason is a sentence."""
    out = io.StringIO()
    comparison = compare([("a", simulate(Device())), ("b", simulate(Device(), mode="quick"))])
    table.show_comparison(comparison, Console(file=out, width=80))
    assert "cannot be compared: b is a quick run" in out.getvalue()
    assert _LONG not in out.getvalue()


def test_sparks_show_what_falls() -> None:
    """Bars begin at 0, so that half the rate is half as high."""
    assert words.spark([8, 8, 4, 4], bars=4) == "██▅▅"
    assert words.spark([]) == ""
    assert words.spark([0, 0]) == ""


def test_labels_are_what_cells_differ_in() -> None:
    """Words that all names have are left out; what has no other word is called by the word for that."""
    assert words.distinct(["4k-a-x", "4k-b-x"], "alone") == ("a", "b")
    assert words.distinct(["4k-a", "4k-a-shared"], "alone") == ("alone", "shared")
    assert words.distinct(["4k-a"], "alone") == ("alone",)
    assert words.distinct([], "alone") == ()


def test_what_was_held_for_long_is_told_before_the_verdict() -> None:
    """With the rate, for how long, and whether it lasted."""
    text = " ".join(_shown(simulate(Device(), cells=(HEADLINE, *accept()[-2:])), 160).split())
    held, _, verdict = text.partition("plausibility: ")
    name = "64k-random-fdatasync-16jobs-sustained-overwritten"
    assert re.search(rf"held for long: {name}: [\d,.]+ per second over [\d,]+ s, too short to say: ", held)
    assert "held for long" not in verdict
