"""The page as a document: whole, escaped, and with what it must say."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from durability.bench.catalogue import HEADLINE, LADDER, PACED, PROFILES, STANDARD, sustained
from durability.bench.cells import make_cell
from durability.bench.compare import compare
from durability.bench.decision.bottom_line import bottom_line, megabytes
from durability.bench.decision.proof import Proof
from durability.bench.measurement import Idle
from durability.bench.plausibility import plausibility
from durability.bench.result import Result, decode
from durability_client.bench.report import charts, html_page
from tests.core.bench.results import Device, drive, facts, latencies, simulate, throttled
from tests.places import DOCS

EVIL = '<script>document.title = "taken"</script>"><img src=x onerror=alert(1)>'
NAMES = ("result", "partial", "alike", "classes", "refused")
HONEST = Device(dirty_ns=3e6, dirty_bytes_per_s=4e8)
_VOID = {"meta", "br", "line", "rect", "circle", "polyline", "polygon", "path"}
_LOADING = {"src", "href", "srcset", "data", "action", "poster", "background"}


class _Reader(HTMLParser):
    """Notes elements, attributes that could load something, and elements that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.loads: list[str] = []
        self.unclosed: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.loads += [f"{name}={value}" for name, value in attributes if name in _LOADING]
        self.loads += [f"{name}={value}" for name, value in attributes if name.startswith("on")]
        if tag not in _VOID:
            self.unclosed.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed, f"</{tag}> closes nothing"
        assert self.unclosed.pop() == tag


def _read(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader


OTHER = facts(drives=(drive(serial="S4X-0002"),))  # of another drive of the same model


@cache
def pages() -> dict[str, str]:
    """A page of each sort, with hostile words in it."""
    where = facts(path=f"/srv/{EVIL}", drives=(drive(model=EVIL),))
    hostile = simulate(HONEST, cells=(*STANDARD, *sustained()[-4:-2]), facts=where)
    liar = simulate(Device(), seed=2, cells=STANDARD)
    partial = replace(liar, complete=False, stopped="interrupted (Ctrl-C)")
    other = simulate(Device(write_ns=40_000), cells=STANDARD, seed=3, facts=OTHER)
    pairs = {"alike": [("a", liar), (EVIL, other)]}
    pairs["classes"] = [("a", hostile), ("b", liar)]
    pairs["refused"] = [("a", hostile), (EVIL, simulate(Device(), cells=[make_cell("commit", "", jobs=3)]))]
    comparisons = {
        name: html_page.comparison_page(compare(pair), [result for _, result in pair])
        for name, pair in pairs.items()
    }
    return {
        "result": html_page.result_page(hostile),
        "partial": html_page.result_page(partial),
        **comparisons,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_whole_and_loads_nothing(name: str) -> None:
    """Elements nest, nothing is fetched, no script is there, and the browser is told to forbid it too."""
    reader = _read(pages()[name])
    assert reader.unclosed == []
    assert not {"script", "img", "link", "iframe", "object", "form", "base"} & set(reader.elements)
    assert [one for one in reader.loads if not one.startswith("href=#")] == []
    assert "default-src 'none'" in pages()[name]
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", pages()[name])
    assert '<html lang="en">' in pages()[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_picture_is_described(name: str) -> None:
    """Each SVG is well-formed, is an image to a screen reader, and has a title and a description."""
    pictures = re.findall(r"<svg.*?</svg>", pages()[name], re.DOTALL)
    assert bool(pictures) == (name != "refused")
    for text in pictures:
        picture = ElementTree.fromstring(text)
        assert picture.get("role") == "img"
        texts = [picture.findtext(f"{{http://www.w3.org/2000/svg}}{part}") for part in ("title", "desc")]
        assert all(texts), text[:200]
        assert "nan" not in text.partition("</desc>")[2]


@pytest.mark.slow
def test_a_page_opens_with_the_bottom_line() -> None:
    """Tiles with both speeds, steady and honest, the next command and the published drives come before all
    prose on W, F0 and C."""
    result = simulate(Device(), cells=STANDARD)
    text, line = html_page.result_page(result), bottom_line(result)
    assert line.one is not None and line.many is not None
    head = text[: text.index('<h2 id="headline"')]
    for words in (line.steady_reason, line.honesty_reason, line.standing, "Among published drives"):
        assert words in head
    assert "The target commits at " in head
    for speed in (line.one, line.many):
        assert f"{speed.rate:,.0f} commits/s" in head and megabytes(speed.bytes_per_s) in head
    assert "(F0)" not in head and "(F0)" in text
    assert text.index('<h2 id="bottom"') < text.index('<h2 id="cells"') < text.index('<h2 id="verdict"')


@pytest.mark.slow
def test_a_page_says_the_verdict_and_what_to_type() -> None:
    """Headline, what was seen, what only a cut can show, the commands and each cell are on the page."""
    result = simulate(Device(), cells=STANDARD)
    text, verdict = html_page.result_page(result), plausibility(result)
    assert verdict.headline[1:] in text
    assert verdict.only_a_cut[1:] in text
    assert all(f"<code>{command.replace(chr(39), '&#39;')}</code>" in text for command in verdict.commands)
    assert all(one.cell.name in text for one in result.cells)
    assert f"drawn by seed {result.seed}" in text
    titles = (
        "Latency of a commit",
        "The sync alone",
        "Block size",
        "Concurrency",
        "Group commit",
        "Flush ladder",
    )
    assert [title for title in titles if f"<h3>{title}</h3>" not in text] == []


@pytest.mark.slow
def test_a_page_has_the_controls_and_what_was_written() -> None:
    """W, F0, C and each step of the ladder have a median, and the facts the bytes of the rounds."""
    text = html_page.result_page(simulate(Device(), cells=STANDARD))
    for symbol in ("W", "F0", "C", "F(64 KiB)", "F(64 MiB)"):
        assert re.search(
            rf">{re.escape(symbol)}: a [^<]+</th><td>[\d.]+ µs</td><td>[\d.]+ µs.[\d.]+ µs<", text
        ), symbol
    assert re.search(r">written</th><td>[\d.]+ GiB in the rounds, [\d.]+ times the size of its drive<", text)
    assert "Controls and flush ladder" not in html_page.result_page(simulate(Device(), cells=STANDARD[:1]))
    row = text[text.index('<span class="name">4k-random-fdatasync-per32-') :].partition("</tr>")[0]
    assert re.search(r"<small>[\d,]+ writes per second \(", row)


def test_a_mix_has_its_reads() -> None:
    """Below the cell, with the percentiles that the sample supports."""
    result = simulate(Device(), cells=(make_cell("mix", "", workload="mix", read_percent=60),))
    rounds = tuple(
        replace(one, reads=400, read_ns=latencies([70_000] * 400)) for one in result.cells[0].rounds
    )
    text = html_page.result_page(replace(result, cells=(replace(result.cells[0], rounds=rounds),)))
    found = re.findall(r"<small>reads: (p50 [^<]+)</small>", text)
    assert [one.split(", ")[-1] for one in found] == ["max 70 µs"]


@pytest.mark.slow
def test_only_what_was_held_for_long_is_an_alarm() -> None:
    """Rounds that scatter have the word and by how much, in no colour; the reason where the pointer rests,
    and below the table, for paper and for fingers."""
    result = simulate(Device(noise=0.3), cells=STANDARD)
    text = html_page.result_page(result)
    scattered = re.findall(r'<span title="(?:rounds differ|the rate)[^"]*">NOT STEADY [+-]?\d+%</span>', text)
    assert scattered and '<span class="no" title=' not in text
    below = re.findall(r"</span> is NOT STEADY: (?:rounds differ|the rate)", text)
    assert len(below) == len(scattered)
    text = html_page.result_page(throttled(sustained()[-4]))
    assert re.search(r'<span class="no" title="[^"]*third[^"]*">NOT STEADY</span>', text)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_words_in_the_colour_of_a_line_can_be_read(scheme: int) -> None:
    """Each has a contrast of 4.5 to the page at least, as WCAG asks."""
    style = (Path(html_page.__file__).parent / "templates/style.css").read_text()
    colours = dict(
        re.findall(r"(--[\w-]+): ([^;]+);", re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme])
    )
    fills = re.findall(r"svg text\.s\d \{ fill: var\((--[\w-]+)\); \}", style)
    assert len(fills) == 6
    for name in fills:
        value = colours[name]
        colour = colours[value[4:-1]] if value.startswith("var(") else value
        lighter, darker = sorted((_luminance(colour), _luminance(colours["--paper"])), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (name, colour)


def _luminance(colour: str) -> float:
    """WCAG's relative luminance of `#rrggbb`."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_partial_results_are_marked() -> None:
    """A page of rounds that are not all there says so at its head, and why."""
    assert "Partial result" in pages()["partial"]
    assert "interrupted (Ctrl-C)" in pages()["partial"]
    assert "Partial result" not in pages()["result"]


def test_unlike_results_have_refusals_and_no_figures() -> None:
    """A comparison that is refused says why, and shows neither ratios nor pictures."""
    assert "These results are not comparable" in pages()["refused"]
    assert "no cell was measured in all results" in pages()["refused"]
    assert 'id="ratios"' not in pages()["refused"] and 'id="answer"' not in pages()["refused"]


def test_a_comparison_opens_with_the_answer_and_one_caveat() -> None:
    """The page starts with the answer, then the ratios and one picture of all results, plausible or not. The
    caveat appears once."""
    for name in ("alike", "classes"):
        text = pages()[name]
        assert "Do not choose yet" in text[: text.index('id="differences"')]
        assert text.count("Ratios are not a ranking") == 1 and text.count("no known power cut") == 2
        assert 'class="dots"' in text and "not ranked" not in text
        assert text.index('id="answer"') < text.index('id="ratios"') < text.index('id="plausibility"')
    assert "4k-random-fdatasync-overwritten (a)" not in pages()["classes"]


def test_a_ratio_of_a_disk_to_an_ssd_is_not_zero() -> None:
    """It has the digits that the tables of the terminal have."""
    one = simulate(Device(noise=0.0), cells=(HEADLINE,))
    rounds = tuple(replace(each, seconds=each.seconds * 430) for each in one.cells[0].rounds)
    other = replace(one, cells=(replace(one.cells[0], rounds=rounds),))
    page = html_page.comparison_page(compare([("a", one), ("b", other)]), [one, other])
    assert "0.00233" in page and "0.00 " not in page


@pytest.mark.slow
def test_a_proof_has_the_colour_of_its_word() -> None:
    """A tile says proven in green, lost in red, and its answer names the drive to take."""
    results = [
        simulate(Device(write_ns=ns), seed=3, cells=STANDARD, facts=of)
        for ns, of in ((20_000.0, facts()), (40_000.0, OTHER))
    ]
    good = Proof(cuts=59, losses=0, bound=0.0495, cut_class="power", source="campaign x", lost_in="")
    bad = replace(good, losses=1, bound=None, lost_in="cycle 3 of campaign x")
    found = compare([("a", results[0]), ("b", results[1])], (good, bad))
    text = html_page.comparison_page(found, results)
    assert '<b class="yes">proven in 59 cuts</b>' in text
    assert '<b class="no">lost data in cycle 3 of campaign x</b>' in text
    assert "Do not take b" in text and "Take a: it is proven in 59 cuts." in text


@pytest.mark.slow
def test_a_comparison_has_times_where_rates_say_nothing() -> None:
    """In the comparison page, the flush ladder shows sync times. A paced cell shows both latencies and no
    dot."""
    results = [simulate(Device(write_ns=ns), seed=3, cells=STANDARD) for ns in (20_000.0, 40_000.0)]
    text = html_page.comparison_page(compare([("a", results[0]), ("b", results[1])]), results)
    rows = {
        name: text[text.index(f'<span class="name">{name}<') :].partition("</tr>")[0]
        for name in (LADDER[-1].name, PACED.name, HEADLINE.name)
    }
    assert rows[LADDER[-1].name].count("µs") >= 2 and 'class="mark' in rows[LADDER[-1].name]
    assert "the rate is the pace" in rows[PACED.name] and rows[PACED.name].count("p99") >= 2
    assert 'class="mark' not in rows[PACED.name]
    assert 'class="mark' in rows[HEADLINE.name]


def test_nothing_measured_makes_a_page_all_the_same() -> None:
    """A result without a single round has a page, and so has one of two cells."""
    result = simulate(Device(), rounds=0)
    assert "Nothing was measured" in html_page.result_page(result)
    assert "Headline" in html_page.result_page(simulate(Device(), cells=STANDARD[-2:]))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_has_a_page(name: str) -> None:
    """A profile's cells have a picture of their latencies, though they are not the standard ones."""
    result = simulate(Device(), cells=PROFILES[name], profile=name)
    assert "Latency of a commit" in html_page.result_page(result)


@pytest.mark.parametrize(
    ("names", "moments"),
    [
        (("sda", "sdb"), ("before", "before")),
        (("sda", "sdb", "sda", "sdb"), ("before", "before", "after", "after")),
    ],
)
def test_a_drive_was_left_alone_after_only_if_it_was_before(
    names: tuple[str, ...], moments: tuple[str, ...]
) -> None:
    """A result that was interrupted has no second look at any of its drives."""
    idle = tuple(Idle(name=name, seconds=2.0, flushes=0, writes=0, write_kib=0, reads=0) for name in names)
    text = html_page.result_page(replace(simulate(Device(), cells=STANDARD[:1]), idle=idle))
    assert tuple(re.findall(r'<th scope="row">(sd.), (\w+)</th>', text)) == tuple(
        zip(names, moments, strict=True)
    )


def test_a_curve_ends_where_its_sample_does() -> None:
    """2,000 samples: marks at p50, p95 and p99, and a faint line from where fewer than 10 are beyond."""
    figure = next(charts.latency_figures(simulate(Device(), cells=STANDARD[:1])))
    assert figure.svg.count('class="mark s0"') == 3
    assert figure.svg.count('class="faint s0"') == 1
    assert "p99.9" not in figure.svg


def test_the_link_that_is_assumed_is_said() -> None:
    """The ladder's line of the link has its bandwidth, with a question mark where it is not known."""
    known: Result = simulate(Device())
    (ladder,) = charts.ladder_figures(known)
    assert "link, 0.6 GB/s<" in ladder.svg
    (unknown,) = charts.ladder_figures(replace(known, media=()))
    assert "link, 16 GB/s?<" in unknown.svg


def test_what_was_held_for_long_has_its_place() -> None:
    """Before the pictures, with the rate and whether it lasted; nowhere in a result without such a load."""
    held = pages()["result"]
    assert held.index('id="headline"') < held.index('id="held"') < held.index('id="pictures"')
    assert re.search(r"<figcaption>[\d,.]+ per second, [\d,.]+ MB/s, over [\d,]+ s, too short to say: ", held)
    assert held.count("Rate of 4k-random-fdatasync-sustained-overwritten") == 1
    assert 'href="#held"' in held
    assert 'id="held"' not in pages()["partial"]


@pytest.mark.slow
def test_the_example_of_the_docs_can_be_shown() -> None:
    """docs/examples has the result of an acceptance run, whole, and its page says what it found."""
    example = decode((DOCS / "examples/sustained.json").read_bytes())
    assert (example.mode, example.complete, example.serials) == ("accept", True, "hashed")
    text = html_page.result_page(example)
    assert _read(text).unclosed == []
    assert "Flush does no media work" in text and 'id="held"' in text
