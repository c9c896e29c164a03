"""`runs` at a terminal: what it prints fits the width."""

from __future__ import annotations

import io

import pytest

from durability_client import queries
from durability_lab.support.local_server import local_server


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
