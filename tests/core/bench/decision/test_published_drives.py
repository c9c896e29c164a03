"""Published kinds of drives: which of them commit at a rate, and that the page of sources has each range."""

from __future__ import annotations

import re

import pytest

from durability.bench.decision.published_drives import KINDS, kinds_at, standing
from tests.places import DOCS


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (20, "slower than every published kind; the slowest is a hard disk (80 to 240 commits/s)"),
        (120, "like a hard disk (80 to 240 commits/s)"),
        (270, "between a hard disk (80 to 240 commits/s) and a consumer SSD (300 to 1,400 commits/s)"),
        (800, "like a consumer SSD (300 to 1,400 commits/s) or like a cloud volume (700 to 1,100 commits/s)"),
        (7000, "like a datacenter SSD with power-loss protection (2,000 to 40,000 commits/s)"),
    ],
)
def test_a_rate_stands_among_kinds(rate: float, words: str) -> None:
    """Within a range, between two, or beyond all: the sentence gives the ranges."""
    assert standing(rate) == words


def test_what_is_faster_than_all_is_said() -> None:
    """Beyond every range no kind is named as fitting."""
    assert kinds_at(90_000) == () and standing(90_000).startswith("faster than every published kind")


def test_ranges_are_those_of_the_page_of_sources() -> None:
    """The page has each kind with its range, and the figures lie within the range of their kind."""
    page = (DOCS / "explanation/published-drives.md").read_text()
    for kind in KINDS:
        assert f"| {kind.name} | {kind.low:,.0f} to {kind.high:,.0f} |" in page
        word = kind.name if kind.name in {"cloud volume", "hard disk"} else kind.name.split()[0]
        figures = re.findall(rf"\| {word} \| ([\d,]+) \|", page)
        assert figures, kind.name
        rates = [float(one.replace(",", "")) for one in figures]
        assert kind.low <= min(rates) * 1.05 and max(rates) <= kind.high * 1.05, kind.name


def test_labels_fit_their_column() -> None:
    """Short names have at most 14 characters."""
    assert max(len(kind.short) for kind in KINDS) <= 14
