"""The screen of a comparison: it fits 80 by 24, and opens with the answer."""

from __future__ import annotations

import html
import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from durability.bench.catalogue import FSYNC, HEADLINE, HELD, STANDARD
from durability.bench.compare import Comparison, compare
from durability.bench.decision.proof import Proof
from durability.bench.figures import tiles
from durability_client.bench.report import html_page
from durability_client.bench.report.comparison_screen import show_comparison_screen
from durability_client.bench.report.terminal_tables import show_comparison
from durability_client.system.terminal import SCREEN_HEIGHT_MAX
from tests import sample_facts
from tests.core.acceptance.samples import HONEST, accept_result
from tests.core.bench.results import Device, classic_result, drive, facts, simulate

CONSUMER = simulate(Device(write_ns=25_000, dirty_ns=1.2e6, dirty_bytes_per_s=4e8), cells=STANDARD)
OTHER = facts(drives=(drive(serial="S4X-0002"),))
PROTECTED = simulate(Device(write_ns=60_000), cells=STANDARD, seed=4, facts=OTHER)
PROVEN = Proof(cuts=59, losses=0, bound=0.0495, cut_class="power", source="campaign x", lost_in="")
LOST = Proof(
    cuts=3, losses=1, bound=0.9, cut_class="power", source="campaign x", lost_in="cycle 3 of campaign x"
)


def _shown(comparison: Comparison, width: int) -> list[str]:
    out = io.StringIO()
    show_comparison_screen(comparison, Console(file=out, width=width))
    return out.getvalue().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("proofs", [(), (PROVEN, PROVEN), (PROVEN, None), (PROVEN, LOST)])
def test_a_screen_fits(proofs: tuple[Proof | None, ...], width: int) -> None:
    """At 80 and at 120 columns nothing is longer than a line, and there are at most 22 lines."""
    lines = _shown(compare([("ssd1", CONSUMER), ("ssd2", PROTECTED)], proofs), width)
    assert len(lines) <= SCREEN_HEIGHT_MAX and max(map(len, lines)) <= width
    assert lines[0].startswith("answer  ")


@pytest.mark.slow
def test_each_result_has_its_proof_and_ratio() -> None:
    """A row has the rate, MB/s, p99, the ratio to the first and what cuts said; bars stand below."""
    lines = _shown(compare([("ssd1", CONSUMER), ("ssd2", PROTECTED)], (PROVEN, LOST)), 80)
    rows = [line for line in lines if line.startswith("ssd")]
    assert rows[0].endswith("1  proven in 59 cuts")
    assert rows[1].endswith("lost data in cycle 3 of campaign x")
    assert any(line.startswith("  ssd2  ███") and "MB/s" in line for line in lines)
    assert lines[-1].startswith("Whole table (39 cells): add --full")


@pytest.mark.slow
def test_a_ratio_that_shows_no_difference_has_a_question_mark() -> None:
    """The interval of two runs on one drive includes 1."""
    found = compare([("a", PROTECTED), ("b", simulate(Device(write_ns=60_000), cells=STANDARD, seed=5))])
    (row,) = [line for line in _shown(found, 80) if line.startswith("b  ")]
    assert row.split()[-5].endswith("?"), row


@pytest.mark.slow
def test_other_conditions_stand_below_the_answer() -> None:
    """A rate of another machine may be that machine's: one line names all that was not alike, and is not
    there if nothing is."""
    host = replace(OTHER.host, hostname="cloud-1", kernel="Linux 5.4", virtualisation="kvm")
    other_file_system = sample_facts.file_system(type="btrfs", options="rw")
    where = replace(OTHER, host=host, file_system=other_file_system)
    elsewhere = replace(PROTECTED, facts=where, machine=replace(PROTECTED.machine, cpus=64))
    for width in (80, 120):
        lines = _shown(compare([("ssd1", CONSUMER), ("ssd2", elsewhere)], (PROVEN, PROVEN)), width)
        at = next(at for at, line in enumerate(lines) if line.startswith("but     "))
        said = " ".join(" ".join(lines[at : at + 2]).split())
        assert said.startswith(
            "but measured under different conditions: machine, kernel, virtualisation, processor, file system"
        )
        assert lines[at - 1].startswith(("answer  ", "        "))
        assert len(lines) <= SCREEN_HEIGHT_MAX and max(map(len, lines)) <= width
    alike = _shown(compare([("ssd1", CONSUMER), ("ssd2", PROTECTED)]), 80)
    assert not any("different conditions" in line for line in alike)


def test_what_a_held_load_did_stands_below_the_answer() -> None:
    """One line for a rate that fell, above the caveat, on the page too."""
    rates = {cell.name: rate for cell, rate in zip(HELD, (3000.0, 900.0), strict=False)}
    falls = replace(accept_result(Device(), rates=rates, falls_to=0.05), facts=OTHER)
    results = (accept_result(HONEST), falls)
    found = compare(list(zip(("ssd1", "ssd2"), results, strict=True)))
    page = html.unescape(html_page.comparison_page(found, results))
    assert "<p>held for 30 s, ssd2's rate fell to 5 %.</p>" in page
    for width in (80, 120):
        lines = _shown(found, width)
        at = lines.index("steady? held for 30 s, ssd2's rate fell to 5 %")
        assert lines[at + 1].startswith("caveat  ") and not lines[at - 1].startswith("caveat")
        assert len(lines) <= SCREEN_HEIGHT_MAX and max(map(len, lines)) <= width


def test_a_full_screen_leaves_out_the_cause_and_then_the_plausibilities() -> None:
    """The answer, whose rates fell, the caveat and each row stay: two labels that are long, two machines,
    rates that fell. The last line names what `--full` has beside the table."""
    host = replace(OTHER.host, hostname="cloud-1", kernel="Linux 5.4", virtualisation="kvm")
    where = replace(OTHER, host=host, file_system=sample_facts.file_system(type="btrfs", options="rw"))
    rates = {cell.name: rate for cell, rate in zip(HELD, (2200.0, 950.0), strict=False)}
    first = accept_result(HONEST, falls_to=0.8)
    second = accept_result(Device(), rates=rates, falls_to=0.2, facts=where, size_bytes=1 << 30)
    pair = [("samsung-990-pro-2tb-first", first), ("kioxia-cd8-3840-second", second)]
    few = replace(PROVEN, cuts=5, bound=0.45)
    open_cuts = replace(PROVEN, unanswered="6 cuts of campaign shelf-3-long-name with unknown outcome")
    short = [("samsung-990-pro", first), ("kioxia-cd8", second)]
    for labelled, proofs, left_out in (
        (short, (None, None), "cause"),
        (pair, (None, None), "cause, plausibilities"),
        (pair, (few, few), "cause, plausibilities"),
        (pair, (few, open_cuts), "cause, plausibilities"),
    ):
        lines = _shown(compare(labelled, proofs), 80)
        assert len(lines) <= SCREEN_HEIGHT_MAX and max(map(len, lines)) <= 80
        assert lines[-1].startswith(f"Whole table (25 cells), {left_out}: add --full")
        assert not any(line.startswith("cause") for line in lines)
        text = " ".join(" ".join(lines).split())
        assert "looks fast." in text and ("Their times alone show" in text) == (left_out == "cause")
        assert (
            sum(line.startswith(("samsung-990-pro-2tb-fir…  ", "kioxia-cd8-3840-second  ")) for line in lines)
            or labelled == short
        )
    alike = [pair[0], (pair[1][0], replace(second, facts=OTHER, size_bytes=first.size_bytes))]
    lines = _shown(compare(alike, (PROVEN, few)), 80)
    assert "  no loss in 5 cuts; 59 are needed" in lines, "the column is not cut while there is room"


def test_the_rates_that_decide_at_the_end_of_a_held_load_have_bars() -> None:
    """The mean of the load would show another drive ahead than the answer does."""
    rates = {cell.name: rate for cell, rate in zip(HELD, (9000.0, 900.0), strict=False)}
    falls = accept_result(HONEST, rates=rates, falls_to=1 / 60, facts=OTHER)
    lines = _shown(compare([("ssd1", accept_result(HONEST)), ("ssd2", falls)], (PROVEN, PROVEN)), 80)
    at = lines.index("1 writer, at the end of the held load")
    assert lines[at + 1].endswith(" 2,000/s, 8.19 MB/s") and lines[at + 2].endswith(" 150/s, 0.614 MB/s")
    assert lines[at + 1].count("█") > lines[at + 2].count("█")
    assert "(2,000 against 150 commits/s, 8.19 against 0.614 MB/s)" in " ".join(" ".join(lines).split())


WIDE = "三星固态硬盘九百九十专业版测试结果一二三四五六七八"


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120])
def test_a_name_of_wide_characters_fits(width: int) -> None:
    """Each takes two columns: no line is longer than the terminal, and the figures stand below each other."""
    lines = _shown(compare([(WIDE, CONSUMER), (f"{WIDE[::-1]}二", PROTECTED)], (PROVEN, LOST)), width)
    assert [line for line in lines if cell_len(line) > width] == []
    (head,) = (line for line in lines if line.endswith("ratio  cuts"))
    at = lines.index(head) + 1
    if width > 80:
        ends = zip(lines[at : at + 2], ("proven", "lost"), strict=True)
        assert [cell_len(line[: line.rindex(words)]) for line, words in ends] == [head.index("cuts")] * 2
    else:  # what has no room in its row is whole below it
        assert lines[at + 2 : at + 3] == ["  lost data in cycle 3 of campaign x"]
    bars = [cell_len(line[: line.index("█")]) for line in lines if "█" in line]
    assert bool(bars) == (width > 80) and len(set(bars)) <= 1


@pytest.mark.slow
def test_the_tables_have_room_for_a_name_of_wide_characters() -> None:
    """It is whole above its column, and no line is longer than the terminal."""
    out = io.StringIO()
    show_comparison(compare([(WIDE, CONSUMER), ("ssd2", PROTECTED)]), Console(file=out, width=80))
    lines = out.getvalue().splitlines()
    assert [line for line in lines if cell_len(line) > 80] == []
    (head,) = (line for line in lines if line.split()[-1:] == ["MB/s"])
    assert head.split() == [WIDE, "MB/s", "ssd2", "MB/s"]


def test_another_cell_that_decides_is_named() -> None:
    """Below the rates of the results, as on the screen of one of them, and on each tile of a page; the
    headline needs no name."""
    pair = [
        (label, simulate(Device(), cells=(FSYNC,), seed=seed, facts=of))
        for seed, (label, of) in enumerate((("a", facts()), ("b", OTHER)), 1)
    ]
    lines = _shown(compare(pair), 80)
    at = next(at for at, line in enumerate(lines) if line.startswith("b  "))
    assert lines[at + 1] == f"({FSYNC.name})"
    assert all(one.beside.endswith(f" ({FSYNC.name})") for one in tiles(compare(pair)))
    assert not any(line.startswith("(") for line in _shown(compare([("a", CONSUMER), ("b", PROTECTED)]), 80))


def test_two_results_of_one_drive_are_no_choice() -> None:
    """The screen says whose results they are, and advises on no drive."""
    faster = simulate(Device(write_ns=20_000), cells=(HEADLINE,), seed=2)
    slower = simulate(Device(write_ns=90_000), cells=(HEADLINE,), seed=3)
    text = " ".join(" ".join(_shown(compare([("before", slower), ("after", faster)]), 80)).split())
    assert text.startswith(
        "answer Both results are of one drive (serial S4X-0001 7): after commits 3 times as"
    )
    assert "Take" not in text and "choose" not in text and "a set-up that sends no flushes" in text


def test_the_caveat_is_said_once() -> None:
    """No row repeats what stands on top."""
    text = "\n".join(_shown(compare([("ssd1", CONSUMER), ("ssd2", PROTECTED)]), 120))
    assert text.count("Ratios are not a ranking") == 1 and text.count("ranked") == 0


@pytest.mark.slow
def test_three_results_and_refusals() -> None:
    """Each has its row; without a cell in common there is one sentence."""
    three = compare([("a", CONSUMER), ("b", PROTECTED), ("c", PROTECTED)])
    assert [line[0] for line in _shown(three, 80) if line[:3] in ("a  ", "b  ", "c  ")] == ["a", "b", "c"]
    none = compare([("a", CONSUMER), ("b", simulate(Device(), cells=[HEADLINE], rounds=0))])
    assert any("not comparable: no cell was measured in all results" in line for line in _shown(none, 80))


@pytest.mark.slow
def test_a_hostile_label_moves_no_cursor() -> None:
    """A file's name is plain text in every line."""
    label = "a\x1b[2J\r\u202e"
    text = "\n".join(_shown(compare([(label, CONSUMER), ("b", PROTECTED)]), 80))
    assert not {"\x1b", "\r", "\u202e"} & set(text)


def test_classic_rows_stand_by_their_labels() -> None:
    """In a comparison of two `classic` results, the rows have the profile's labels, and the answer is about
    commits."""
    first, second = classic_result(), classic_result(Device(write_ns=40_000, noise=0.0))
    lines = _shown(compare([("ssd1", first), ("ssd2", second)], (PROVEN, PROVEN)), 80)
    assert "SEQ1M Q8T1 read (fio)" in lines and len(lines) <= SCREEN_HEIGHT_MAX
    assert "commits" in lines[0]


@pytest.mark.parametrize("width", [80, 120])
def test_a_word_that_is_longer_than_a_line_is_broken(width: int) -> None:
    """The path in an error, or the options of a mount that cuts had."""
    why = f"Input/output error: '/srv/{'directory/' * 20}file'"
    options = ",".join(f"{one}=journal_async_commit" for one in ("data", "log", "sync", "journal"))
    of_others = replace(PROVEN, but=f"with {options}")
    partial = replace(CONSUMER, complete=False, stopped=why)
    lines = _shown(compare([("ssd1", partial), ("ssd2", PROTECTED)], (of_others, PROVEN)), width)
    assert max(map(cell_len, lines)) <= width
    assert "directory/" * 3 in " ".join(lines) and options in "".join(line.strip() for line in lines)
