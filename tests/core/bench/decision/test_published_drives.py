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
        (270, "commits at a rate between hard disks (80 to 240/s) and consumer SSDs (380 to 1,500/s)"),
        (800, "commits at the rate of consumer SSDs (380 to 1,500/s) and of cloud volumes (710 to 1,100/s)"),
        (7000, "commits at the rate of datacenter SSDs (1,600 to 34,000/s)"),
        (1475, "commits at the rate of consumer SSDs (380 to 1,500/s)"),
        (34_090, "commits at the rate of datacenter SSDs (1,600 to 34,000/s)"),
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


def test_every_figure_has_a_source() -> None:
    """Each row of a published drive links to the page that has its figure, and both ends of a range are such
    figures or have their own link."""
    page = (DOCS / "explanation/published-drives.md").read_text()
    table = page.split("| drive | kind |")[1].split("\n\n")[0].splitlines()[2:]
    assert len(table) > 10 and all(re.search(r"\]\[\w+\] \|$|\]\([^)]+\) \|$", row) for row in table)
    names = set(re.findall(r"\]\[(\w+)\]", page))
    assert names == set(re.findall(r"(?m)^\[(\w+)\]: https://", page))
    for kind in KINDS[1:]:  # a hard disk's range ends with what a platter allows
        of_kind = [row for row in table if f"| {kind.name.split()[0]}" in row]
        rates = [float(row.split("|")[3].replace(",", "")) for row in of_kind]
        assert {kind.low, kind.high} == {float(f"{end:.1e}") for end in (min(rates), max(rates))}, kind.name


def test_labels_fit_their_column() -> None:
    """Short names have at most 14 characters."""
    assert max(len(kind.short) for kind in KINDS) <= 14
