"""The pages in a real browser: nothing asked for, nothing complained of, nothing wider than a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import chromium
from tests.client.bench.report.test_html_page import NAMES, pages

_PHONE = 400
_SHEETS_MAX = 12
# Pictures that have no extent, or text that reaches beyond its picture by more than other fonts explain.
_UNSEEN = """
[...document.querySelectorAll('svg')].filter(svg => {
  const box = svg.getBoundingClientRect();
  return !svg.closest('details') && (box.width < 8 || box.height < 8);
}).map(svg => svg.outerHTML.slice(0, 200))
"""
_CUT = """
[...document.querySelectorAll('svg text')].filter(text => {
  const svg = text.ownerSVGElement.getBoundingClientRect(), box = text.getBoundingClientRect();
  return box.right > svg.right + 4 || box.left < svg.left - 4 || box.bottom > svg.bottom + 4;
}).map(text => text.textContent)
"""


@pytest.mark.parametrize(
    ("name", "dark"), [*((name, False) for name in NAMES), ("result", True), ("alike", True)]
)
def test_a_page_in_a_browser(browser: chromium.Browser, tmp_path: Path, name: str, dark: bool) -> None:
    """It asks for nothing but itself, says nothing to the console, fits a phone, and shows every picture."""
    path = tmp_path / f"{name}.html"
    path.write_text(pages()[name], encoding="utf-8")
    for width in (_PHONE, 1280):
        browser.open(path, width=width, dark=dark)
        assert browser.requests == [path.as_uri()]
        assert browser.complaints == []
        assert browser.evaluate("document.documentElement.scrollWidth") == width
        assert browser.evaluate(_UNSEEN) == []
        assert browser.evaluate(_CUT) == []
        assert browser.evaluate("document.title") != "taken"
    lightness = browser.evaluate("parseInt(getComputedStyle(document.body).backgroundColor.slice(4))")
    assert (lightness < 60) == dark


@pytest.mark.parametrize("name", NAMES)
def test_a_page_on_paper(browser: chromium.Browser, tmp_path: Path, name: str) -> None:
    """The printed page is white, cuts off no column, text or picture, and needs few sheets."""
    path = tmp_path / f"{name}.html"
    path.write_text(pages()[name], encoding="utf-8")
    browser.open(path, dark=True)
    assert browser.put_on_paper(dark=True) == []
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate(_UNSEEN) == []
    assert browser.evaluate(_CUT) == []
    browser.screenshot(tmp_path / f"{name}.png")
    assert 1 <= browser.print_to(tmp_path / f"{name}.pdf") <= _SHEETS_MAX
