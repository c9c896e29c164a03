"""The live page in a real browser: as new as the store, asked of nobody else, readable on a phone and in the
dark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from durability.protocol import messages
from durability.units import format_run
from tests import chromium
from tests.server.conftest import Lab
from tests.server.web.conftest import Show
from tests.server.web.test_live_values import HTML, statistics_after

pytestmark = pytest.mark.slow

_PHONE = 400


async def _look(look: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """A look through the browser, while the server works on."""
    return await asyncio.to_thread(look, *arguments, **options)


async def _shows(browser: chromium.Browser, text: str) -> None:
    async with asyncio.timeout(60):
        while True:
            if text in await _look(browser.evaluate, "document.body.innerText"):
                return
            await asyncio.sleep(0.1)


async def test_pages_in_a_browser(
    lab: Lab, sqlite_url: str, show_page: Show, browser: chromium.Browser
) -> None:
    """The first page and a run's follow the run without being loaded again, fit a phone, are dark in the
    dark, ask nobody but the server, and have nothing to complain of."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(run=6), lab.facts(serial="S6"), label=HTML)
    acked = 0
    for path in ("", f"runs/{format_run(6)}"):
        for width, dark in ((_PHONE, False), (1280, True)):
            await _look(browser.open, page.url + path, width=width, dark=dark)
            acked += 1
            await client.acknowledge(acked, 1000 - 500)
            client.say(messages.Progress(statistics=statistics_after(float(acked), *[100] * acked)))
            await _shows(browser, f"{acked + 500:,}")
            assert await _look(browser.evaluate, "document.documentElement.scrollWidth") == width
            assert await _look(browser.evaluate, "document.title") != "taken"
            lightness = "parseInt(getComputedStyle(document.body).backgroundColor.slice(4))"
            assert (await _look(browser.evaluate, lightness) < 60) == dark
            assert browser.complaints == []
            assert all(url.startswith(page.url) for url in browser.requests)
    await page.page.close()
    await _shows(browser, "Not connected since")
