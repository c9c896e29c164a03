"""The terminal's tables: legible at 80 columns, roomy at more, and no way for a file to move the cursor."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from durability.bench.compare import compare
from durability.bench.result import Result
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
