"""The live page in a real browser: as new as the store, asked of nobody else, readable on a phone and in the
dark."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durability.bench.catalogue import STANDARD
from durability.bench.kept_result import pack_body, summary_of
from durability.formats.documents import to_value
from durability.protocol import messages
from durability.units import format_run, parse_run
from tests import chromium
from tests.core.bench.results import Device, drive, facts, simulate
from tests.places import ROOT
from tests.server.campaigns.played_machine import Machine
from tests.server.campaigns.test_campaigns import begin, living, settings_of, until
from tests.server.conftest import Lab, Running
from tests.server.web.conftest import Show
from tests.server.web.test_live_values import HTML, LOSS, statistics_after

pytestmark = pytest.mark.slow

TEMPLATES = ROOT / "server/durability_server/web/templates"
LONG_MODEL = "Samsung SSD 990 PRO with Heatsink 4TB"
_PHONE = 400
_SHEETS_MAX = 3
_ALL = "document.querySelectorAll('#live a[href], #live .scroll')"
# The keyboard goes to the last of what it can reach; its number, from 1.
_HOLD = f"(() => {{ const all = [...{_ALL}]; all.at(-1).focus(); return all.length; }})()"
# The tiles whose text is wider than they are.
_TOO_WIDE = """
[...document.querySelectorAll(".tile")].filter((one) => one.scrollWidth > one.clientWidth)
  .map((one) => one.textContent)
"""
_LIGHTNESS = "parseInt(getComputedStyle(document.body).backgroundColor.slice(4))"
# Ticks all results and asks for their comparison; how many.
_TICK = """
(() => {
  const all = [...document.querySelectorAll("input[name=result]")];
  all.forEach((one) => one.click());
  document.querySelector("form button").click();
  return all.length;
})()
"""
# Streams that count themselves and are closed, timers that never end, and a page that is hidden by a call.
_STUBS = """
(() => {
  const pending = new Set();
  window.pending = pending;
  window.opened = 0;
  window.setTimeout = (what) => { pending.add(what); return what; };
  window.clearTimeout = (what) => pending.delete(what);
  window.EventSource = class {
    constructor() { window.opened += 1; window.last = this; this.readyState = 2; }
    close() {}
  };
  EventSource.CLOSED = 2;
  window.hear = (parts) => last.onmessage({ data: JSON.stringify(parts) });
  window.shown = (id) => document.getElementById(id).textContent.trim();
  Date.prototype.toLocaleTimeString = function () { return `<${this.getTime()}>`; };
  window.look = (hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  };
})()
"""


async def _look(look: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """A look through the browser, while the server works on."""
    return await asyncio.to_thread(look, *arguments, **options)


async def _shows(browser: chromium.Browser, text: str) -> None:
    async with asyncio.timeout(60):
        while True:
            if text in await _look(browser.evaluate, "document.body?.innerText ?? ''"):
                return
            await asyncio.sleep(0.1)


@pytest.mark.usefixtures("no_silence")
async def test_pages_in_a_browser(
    lab: Lab, sqlite_url: str, show_page: Show, browser: chromium.Browser
) -> None:
    """The first page and a run's page update without reload, fit a phone, have a dark mode, load nothing from
    other hosts, and log no errors."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(run=6), lab.facts(serial="S6"), label=HTML)
    acked = 0
    for path in ("", f"runs/{format_run(6)}"):
        for width, dark in ((_PHONE, False), (1280, True)):
            await _look(browser.open, page.url + path, width=width, dark=dark)
            acked += 1
            held = await _look(browser.evaluate, _HOLD)
            assert held
            await client.acknowledge(acked, 1000 - 500)
            client.say(messages.Progress(statistics=statistics_after(float(acked), *[100] * acked)))
            await _shows(browser, f"{acked + 500:,}")
            assert await _look(browser.evaluate, f"[...{_ALL}].indexOf(document.activeElement)") == held - 1
            assert await _look(browser.evaluate, "document.documentElement.scrollWidth") == width
            assert await _look(browser.evaluate, "document.title") != "taken"
            assert (await _look(browser.evaluate, _LIGHTNESS) < 60) == dark
            assert browser.complaints == []
            assert all(url.startswith(page.url) for url in browser.requests)
    await page.page.close()
    await _shows(browser, "Not connected since")


async def test_pages_on_paper(
    lab: Lab, sqlite_url: str, show_page: Show, browser: chromium.Browser, tmp_path: Path
) -> None:
    """Printed pages are white with any screen colours. No column or text is cut off, and each page takes few
    sheets."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    run = await _ended_campaign(lab, running, tmp_path)
    names = await _kept(lab, running)
    for path, wanted in (
        ("", "ended: "),
        ("campaigns/trial", "Newest cycles"),
        (f"runs/{run}", "Examples of findings"),
        ("results", "Compare the ticked ones"),
        (_comparison(names), LONG_MODEL),
    ):
        await _look(browser.open, page.url + path, dark=True)
        await _shows(browser, wanted)
        assert await _look(browser.put_on_paper, dark=True) == []
        background = await _look(browser.evaluate, "getComputedStyle(document.body).backgroundColor")
        assert background == "rgb(255, 255, 255)"
        name = re.split(r"[/?]", path)[0] or "overview"
        await _look(browser.screenshot, tmp_path / f"{name}.png")
        assert 1 <= await _look(browser.print_to, tmp_path / f"{name}.pdf") <= _SHEETS_MAX
    await page.page.close()


async def test_pages_of_campaigns_and_results_on_a_phone_and_in_the_dark(
    lab: Lab, sqlite_url: str, show_page: Show, browser: chromium.Browser, tmp_path: Path
) -> None:
    """The page of a campaign, the stored results, and what two ticked ones lead to: as wide as the window,
    dark in the dark, from this server alone, and without errors."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    await _ended_campaign(lab, running, tmp_path)
    await _kept(lab, running)
    for width, dark in ((_PHONE, False), (_PHONE, True), (1280, True)):
        for path, wanted in (
            ("campaigns/trial", "Newest cycles"),
            ("results", "Compare the ticked ones"),
            ("compare", " against "),
        ):
            if path == "compare":  # from the page of results, as people get there
                assert await _look(browser.evaluate, _TICK) == 2
            else:
                await _look(browser.open, page.url + path, width=width, dark=dark)
            await _shows(browser, wanted)
            assert await _look(browser.evaluate, "location.pathname") == f"/{path}"
            assert await _look(browser.evaluate, _TOO_WIDE) == []
            await _look(browser.screenshot, tmp_path / f"{path.replace('/', '-')}-{width}-{dark}.png")
            assert await _look(browser.evaluate, "document.documentElement.scrollWidth") == width
            assert (await _look(browser.evaluate, _LIGHTNESS) < 60) == dark
            assert browser.complaints == []
            assert all(url.startswith(page.url) for url in browser.requests)
    await page.page.close()


async def _ended_campaign(lab: Lab, running: Running, directory: Path) -> str:
    """A campaign of one cut that lost data, named trial. Its run, which has a verdict with examples."""
    power = directory / "power"
    power.write_text("on\n")
    settings = settings_of(power, cuts=1)
    tested = replace(settings.drives[0], name="S6Z1NJ0W123456K-0001")  # which is its serial, too
    machine = Machine(lab, running.address, power, host="storage-node-17", verdicts={tested.name: ["loss"]})
    async with living(machine):
        await begin(lab, running, replace(settings, drives=(tested,)))
        await until(lab, running, lambda state: state.state == "ended")
    run = machine.armed[-1]
    judge = await lab.connect(running.address, "verify")
    await judge.fetch(parse_run(run), lab.facts())
    await judge.ask(messages.GiveVerdict(run=parse_run(run), document=LOSS), messages.Stored)
    return run


async def _kept(lab: Lab, running: Running) -> list[str]:
    """Two stored results, of drives with long names. Their names in the store."""
    owner = await lab.connect(running.address, "verify")
    names = []
    for device, model in ((Device(), LONG_MODEL), (Device(dirty_ns=3_000_000.0), HTML)):
        where = facts(drives=(drive(model=model, serial=f"serial of {model[:8]}"),))
        result = simulate(device, cells=STANDARD, facts=where)
        keep = messages.KeepResult(summary=to_value(summary_of(result)), body=pack_body(result))
        names.append((await owner.ask(keep, messages.ResultKept)).result)
    return names


def _comparison(names: list[str]) -> str:
    return "compare?" + "&".join(f"result={name}" for name in names)


async def test_a_page_that_was_hidden_has_one_stream(
    lab: Lab, sqlite_url: str, show_page: Show, browser: chromium.Browser
) -> None:
    """A page whose stream was refused tries again, but not while it is hidden: shown again, it opens one. It
    waits for one thing at a time: for an event, or to try again."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    await _look(browser.open, page.url)
    await _look(browser.evaluate, _STUBS)
    steps = ("look(true)", "look(false)", "last.onerror()", "look(true)", "look(false)")
    counts = [await _look(browser.evaluate, f"{step}, [opened, pending.size]") for step in steps]
    assert counts == [[0, 0], [1, 1], [1, 1], [1, 0], [2, 1]]
    await page.page.close()


async def test_no_page_stays_old_without_a_word(
    lab: Lab, sqlite_url: str, show_page: Show, browser: chromium.Browser
) -> None:
    """While text is selected, the page holds changes back and says so. After half a minute without an event
    it says since when, and opens a new stream."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    await _look(browser.open, page.url)
    await _look(browser.evaluate, f"{_STUBS}; look(true); look(false)")
    await _look(browser.evaluate, "getSelection().selectAllChildren(document.getElementById('now'))")
    await _look(browser.evaluate, "hear({now: 'its power was cut'})")
    assert "Text is selected" in await _look(browser.evaluate, "shown('connection')")
    assert "cut" not in await _look(browser.evaluate, "shown('now')")
    await _look(browser.evaluate, "getSelection().removeAllRanges()")
    await _shows(browser, "its power was cut")
    assert await _look(browser.evaluate, "document.getElementById('connection').hidden")

    heard_ms = await _look(browser.evaluate, "hear({}), Date.now()")
    after_ms = await _look(browser.evaluate, "[...pending].at(-1)(), Date.now()")
    said = await _look(browser.evaluate, "shown('connection')")
    found = re.match(r"Not connected since <(\d+)>", said)
    assert found and int(found[1]) <= heard_ms <= after_ms, said
    assert await _look(browser.evaluate, "[opened, pending.size]") == [2, 1]
    await _look(browser.evaluate, "hear({})")
    assert await _look(browser.evaluate, "document.getElementById('connection').hidden")
    await page.page.close()


def test_every_live_page_can_tell_of_trouble() -> None:
    """Each live page has an element for connection trouble that updates of the other parts do not replace."""
    live = [text for file in TEMPLATES.glob("*.html") if 'id="live"' in (text := file.read_text())]
    assert len(live) == 3 and all('<div id="trouble"' in text for text in live)


def test_every_region_that_scrolls_has_a_name() -> None:
    """Each scrolling region takes the keyboard focus and has a label for screen readers."""
    pages = "".join(file.read_text() for file in TEMPLATES.glob("*.html"))
    regions = re.findall(r'<div class="scroll"[^>]*>', pages)
    assert len(regions) > 5
    for region in regions:
        assert re.search(r' tabindex="0" role="region" aria-label="[^"]+">$', region), region
