"""The screen of a comparison: it fits 80 by 24, and opens with the answer."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from durability.bench.catalogue import HEADLINE, STANDARD
from durability.bench.compare import Comparison, compare
from durability.bench.decision.proof import Proof
from durability_client.bench.report.comparison_screen import show_comparison_screen
from durability_client.system.terminal import SCREEN_HEIGHT_MAX
from tests.core.bench.results import Device, classic_result, simulate

CONSUMER = simulate(Device(write_ns=25_000, dirty_ns=1.2e6, dirty_bytes_per_s=4e8), cells=STANDARD)
PROTECTED = simulate(Device(write_ns=60_000), cells=STANDARD, seed=4)
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
    assert row.split()[-4].endswith("?"), row


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
    """Of two results of the profile; the answer is still about commits."""
    first, second = classic_result(), classic_result(Device(write_ns=40_000, noise=0.0))
    lines = _shown(compare([("ssd1", first), ("ssd2", second)], (PROVEN, PROVEN)), 80)
    assert "SEQ1M Q8T1 read (fio)" in lines and len(lines) <= SCREEN_HEIGHT_MAX
    assert "commits" in lines[0]
