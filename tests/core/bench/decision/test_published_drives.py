"""Published kinds of drives: which of them commit at a rate, and that the page of sources has each range."""

from __future__ import annotations

import re

import pytest

from durability.bench.decision.published_drives import KINDS, kinds_at, standing
from tests.places import DOCS


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (20, "commits slower than every published kind; the slowest are hard disks (80 to 240/s)"),
        (120, "commits at the rate of hard disks (80 to 240/s)"),
        (270, "commits at a rate between hard disks (80 to 240/s) and consumer SSDs (300 to 1,400/s)"),
        (800, "commits at the rate of consumer SSDs (300 to 1,400/s) and of cloud volumes (700 to 1,100/s)"),
        (7000, "commits at the rate of datacenter SSDs (2,000 to 40,000/s)"),
        (1417, "commits at the rate of consumer SSDs (300 to 1,400/s)"),
        (40_473, "commits at the rate of datacenter SSDs (2,000 to 40,000/s)"),
        (
            1460,
            "commits at a rate between consumer SSDs (300 to 1,400/s) and datacenter SSDs (2,000 to"
            " 40,000/s)",
        ),
    ],
)
def test_a_rate_stands_among_kinds(rate: float, words: str) -> None:
    """Within a range, between two, or beyond all: the sentence gives the ranges, and calls no drive one."""
    assert standing(rate) == words


def test_what_is_faster_than_all_is_said() -> None:
    """Beyond every range no kind is named as fitting."""
    assert kinds_at(90_000) == () and standing(90_000).startswith("commits faster than every published kind")


def test_ranges_are_those_of_the_page_of_sources() -> None:
    """The page has each kind with its range, and each published drive lies within that of its kind."""
    page = (DOCS / "explanation/published-drives.md").read_text()
    for kind in KINDS:
        assert f"| {kind.name} | {kind.low:,.0f} to {kind.high:,.0f} |" in page
        word = kind.name if kind.name in {"cloud volume", "hard disk"} else kind.name.split()[0]
        figures = re.findall(rf"\| {word} \| ([\d,]+) \|", page)
        assert figures, kind.name
        rates = [float(one.replace(",", "")) for one in figures]
        assert [rate for rate in rates if kind not in kinds_at(rate)] == [], kind.name


def test_an_end_of_a_range_without_its_source_is_marked() -> None:
    """A reader of the range sees that its ends rest on pages that were not kept."""
    page = (DOCS / "explanation/published-drives.md").read_text()
    unkept = [
        float(figure.replace(",", ""))
        for figure in re.findall(r"\| ([\d,]+) \| [^|]+ \| page not kept \|", page)
    ]
    assert unkept
    for kind in KINDS:
        (origin,) = re.findall(rf"\| {kind.name} \| [\d,]+ to [\d,]+ \| ([^|]+) \|", page)
        ends = [end for end in (kind.low, kind.high) if any(abs(one - end) <= 0.05 * end for one in unkept)]
        assert all(f"{end:,.0f}" in origin for end in ends) and ("not kept" in origin) == bool(ends)


def test_labels_fit_their_column() -> None:
    """Short names have at most 14 characters."""
    assert max(len(kind.short) for kind in KINDS) <= 14
