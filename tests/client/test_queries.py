"""`runs` at a terminal: what it prints fits the width."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from durability_client import queries
from durability_lab.support.local_server import local_server
from tests import sample_facts
from tests.client.bench.test_cut_verdicts import Cut


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_the_line_below_the_drives_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is broken between words at 80 columns; elsewhere it is one line, as programs expect."""
    monkeypatch.setenv("COLUMNS", "80")
    shown, piped = Terminal(), io.StringIO()
    async with local_server() as lab:
        for out in (shown, piped):
            await queries.runs(lab.endpoint, queries.ChosenRuns(limit=1), each=False, json=False, out=out)
    assert max(map(len, shown.getvalue().splitlines())) <= 80
    assert piped.getvalue().splitlines()[-1].endswith("`durability runs --all` lists the runs.")
    assert shown.getvalue().split() == piped.getvalue().split()


@pytest.mark.parametrize(
    ("cut_class", "at_most"), [("os", "5.0 % (os)"), ("vm", "5.0 % (vm)"), ("power", "5.0 %")]
)
async def test_a_bound_of_weaker_cuts_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_class: str, at_most: str
) -> None:
    """59 reboots do not look as 59 power cuts; the row fits 80 columns, however long the names are."""
    monkeypatch.setenv("COLUMNS", "80")
    drive, shown = sample_facts.drive(model="M" * 40, serial="S" * 40), Terminal()
    facts = replace(sample_facts.facts(), drives=(drive,))
    boots = [replace(facts, host=replace(facts.host, boot_id=f"boot-{n}")) for n in range(59)]
    cut = Cut(tmp_path)
    cut.classes = dict.fromkeys(range(1, 60), cut_class)
    try:
        endpoint = await cut.begin([(one, "durable") for one in boots])
        await queries.runs(endpoint, queries.ChosenRuns(limit=1), each=False, json=False, out=shown)
    finally:
        await cut.end()
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(lines[1].split()).endswith(f" 59 59 {at_most} durable")
