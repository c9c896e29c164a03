"""Pages of kept results say what the terminal does, also by giving no answer to a comparison."""

from __future__ import annotations

import html
from dataclasses import replace

import pytest

from durability.bench.catalogue import FSYNC, HEADLINE, HELD, STANDARD
from durability.bench.decision.block_size import best_sizes
from durability.bench.decision.bottom_line import bottom_line
from durability.bench.kept_result import pack_body, summary_of
from durability.bench.result import Result
from durability.bench.result_warnings import result_warnings
from durability.formats.documents import to_value
from durability.formats.facts import TargetWarning
from durability.protocol import messages
from tests.core.acceptance.samples import HONEST, accept_result
from tests.core.bench.results import Device, drive, facts, simulate
from tests.server.conftest import Lab
from tests.server.web.conftest import Show

pytestmark = pytest.mark.slow  # starts the process of a page


def _of(model: str, result: Result) -> Result:
    return replace(result, facts=facts(drives=(drive(model=model, serial=model),)))


async def test_the_page_gives_no_answer_that_the_terminal_does_not(
    lab: Lab, show_page: Show, sqlite_url: str
) -> None:
    """Without a cell in common there is a reason, and no answer and no caveat. A result that was broken off
    is to be measured again. What a held load did to a rate stands below the answer."""
    rates = {cell.name: rate for cell, rate in zip(HELD, (3000.0, 900.0), strict=False)}
    failed = "/srv: I/O error of the target: Input/output error"
    measured = {
        "Alone": simulate(Device(), cells=(HEADLINE,)),
        "Apart": simulate(Device(), cells=(FSYNC,)),
        "Broken": simulate(Device(write_ns=90_000), complete=False, stopped=failed),
        "Steady": accept_result(HONEST),
        "Falls": accept_result(Device(), rates=rates, falls_to=0.05),
    }
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    owner = await lab.connect(running.address, "verify")
    names = {}
    for model, result in measured.items():
        own = _of(model, result)
        keep = messages.KeepResult(summary=to_value(summary_of(own)), body=pack_body(own))
        names[model] = (await owner.ask(keep, messages.ResultKept)).result

    async def compared(*models: str) -> str:
        asked = "&".join(f"result={names[model]}" for model in models)
        return html.unescape((await page.get(f"/compare?{asked}")).text)

    text = await compared("Alone", "Apart")
    assert "Not comparable" in text and "no cell was measured in all results" in text
    assert "no known power cut" in text
    for words in ("Not compared", "Take", "choose", "Ratios are not a ranking"):
        assert words not in text, words
    text = await compared("Steady", "Broken")
    assert (
        f"the measurement of Broken was broken off by an I/O error ({failed}). Measure Broken again." in text
    )
    text = await compared("Steady", "Falls")
    assert "held for 30 s, Falls's rate fell to 5 %." in text
    assert "times as fast as Steady in short rounds, but Steady commits 13 times as fast as Falls" in text


async def test_a_result_has_a_page_with_what_the_screen_says(
    lab: Lab, show_page: Show, sqlite_url: str
) -> None:
    """The list leads to a page with the four lines, the best sizes and all warnings, also those about the
    target. An unknown result is not found."""
    said = TargetWarning(code="resync", text="md0 does a resync: <b>wait</b>")
    where = facts(drives=(drive(model="Model"),), warnings=(said,))
    measured = simulate(Device(), cells=STANDARD, complete=False, stopped="interrupted (Ctrl-C)")
    result = replace(measured, facts=where)
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    owner = await lab.connect(running.address, "verify")
    keep = messages.KeepResult(summary=to_value(summary_of(result)), body=pack_body(result))
    name = (await owner.ask(keep, messages.ResultKept)).result
    await page.text_with("/results", f'<a href="/results/{name}">')
    raw = (await page.get(f"/results/{name}")).text
    text = html.unescape(raw)
    for line in bottom_line(result).lines():
        label, _, words = line.partition(": ")
        assert f'<th scope="row">{label}</th><td>{words}</td>' in text
    sizes = [one.text for one in best_sizes(result)]
    warnings = [one.text for one in (*result_warnings(result), said)]
    assert sizes and len(warnings) > 1
    for one in (*sizes, *warnings):
        assert f"<li>{one}</li>" in text
    assert "<b>wait" not in raw and "<h1>Model</h1>" in raw
    other = "0" * len(name) if name.strip("0") else "1" * len(name)
    for missing in (other, "nothing", "..%2fpages"):
        assert (await page.get(f"/results/{missing}")).status_code == 404
