"""`runs` on a terminal of 80 columns, with the longest names: the verdict is whole, whatever else is cut."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from durability.protocol import messages
from durability.protocol.local_address import socket_name
from durability_client import queries
from durability_client.link.endpoint import Endpoint
from tests.server.conftest import FACTS, Lab, Member

MODEL, SERIAL = "Samsung SSD 990 PRO with Heatsink 4TB", "S7KHNJ0WC01234567890"
HOST = "storage-node-17.rack-b.example"
OPEN: dict[str, Any] = {
    "verdict": "inconclusive",
    "cut": {"class": "power", "proof": ["unsafe shutdowns: 3 to 4"]},
    "at_risk": {"ms1": 1, "ms10": 2, "ms100": 3, "ms1000": 5},
    "reasons": [{"code": "control-intact", "text": "the control arm lost nothing"}],
    "findings": {},
    "examples": [],
    "strength": {"cuts": 0, "losses": 0, "bound": None},
}


class Terminal(io.StringIO):
    """Stdout that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("claims", [1, 2])
async def test_long_names_leave_the_verdict_whole(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, claims: int
) -> None:
    """Model, serial and host are cut until each line fits. With two clients of one drive, the column `client`
    takes its room from them, too."""
    monkeypatch.setenv("COLUMNS", "80")
    running = await lab.start(sqlite_url)
    drive = replace(FACTS.drives[0], model=MODEL, serial=SERIAL)
    facts = lab.facts(drives=(drive,), host=replace(FACTS.host, hostname=HOST))
    members: list[Member | None] = [None]
    if claims == 2:
        invited = await running.server.invite()
        members.append(await lab.join(running.address, invited.line, name="storage-node-18.rack-c.example"))
    for run, member in enumerate(members, 1):
        client = await lab.connect(running.address, member=member)
        await client.begin(lab.plan(run=run), facts)
        await client.acknowledge(30, 40)
        await client.close()
        judge = await lab.connect(running.address, "verify", member=member)
        await judge.fetch(run, facts, end=True)
        await judge.ask(messages.GiveVerdict(run=run, document=OPEN), messages.Stored)
    out = Terminal()
    endpoint = Endpoint(local=lab.directory / socket_name(running.address[1]))
    await queries.runs(endpoint, queries.ChosenRuns(limit=100), each=False, json=False, out=out)
    heading, *lines = out.getvalue().splitlines()
    assert heading.split()[-1] == ("client" if claims == 2 else "verdict")
    rows = lines[:claims]
    for row in rows:
        assert row.startswith("Samsung") and "\u2026" in row and " inconclusive" in row
        assert SERIAL[:7] in row and HOST[:7] in row
    assert max(map(cell_len, [heading, *lines])) <= 80
