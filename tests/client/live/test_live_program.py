"""What the live image's program makes of sticks, and of a server that is away: on files and a real server."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from durability.formats.packing import Value
from durability.protocol import messages
from durability.protocol.join_code import JoinCode
from durability.protocol.local_address import socket_name
from durability_client.link.endpoint import Endpoint
from durability_client.live import live_command, stick
from durability_client.live.join_request import JoinRequest
from durability_client.live.live_command import Live
from durability_client.live.this_machine import ThisMachine
from tests import waiting
from tests.server.conftest import Lab

CODE = str(JoinCode(secret=b"0123456789", fingerprint=b"abcdefghijklm"))
MACHINE = ThisMachine(key="k", id="i" * 32, name="live-1", description="a machine")
DURABLE: dict[str, Value] = {
    "verdict": "durable",
    "cut": {"class": "power"},
    "at_risk": {"ms1000": 5},
    "reasons": [],
}
DRIVES = 30  # of the machine, each with a run that has no verdict yet


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """Servers and clients in a directory of their own."""
    lab = Lab(tmp_path)
    yield lab
    await lab.close()


def made_stick(path: Path, text: str) -> Path:
    """A file that is a stick with the file that says how to join."""
    path.write_bytes(bytes(1440 << 10))
    subprocess.run(["mformat", "-i", path, "-f", "1440", "-v", stick.LABEL, "::"], check=True)
    content = path.with_suffix(".txt")
    content.write_text(text)
    subprocess.run(["mcopy", "-i", path, content, f"::{stick.NAME}"], check=True)
    return path


async def test_a_stick_that_cannot_be_read_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine joins as the next stick says, and its console names what is wrong with the first ones."""
    if shutil.which("mformat") is None:
        pytest.skip("mtools is not installed")
    mistaken = made_stick(tmp_path / "1", "server = b\n")
    empty = tmp_path / "2"
    empty.write_bytes(bytes(1440 << 10))
    good = made_stick(tmp_path / "3", f"join = 192.0.2.1:7420 {CODE}\n")
    monkeypatch.setattr(stick, "find", lambda: [mistaken, empty, good])
    live = Live(MACHINE, JoinRequest())
    request = await live._join_request()
    assert request is not None and request.server == "192.0.2.1:7420"
    assert [str(place) in line for place, line in zip((mistaken, empty), live._view().troubles, strict=True)]


async def test_a_verdict_is_asked_for_until_it_is_heard(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was away just when the agent said its last word; the newest runs, of all drives, are under
    way."""
    running = await lab.start(f"sqlite:///{tmp_path}/store.sqlite")
    for number in range(1, DRIVES + 2):
        client = await lab.connect(running.address)
        await client.begin(lab.plan(run=number), lab.facts(serial=f"S{number}", uuid=f"u{number}"))
        if number == 1:
            await client.close()
            verifier = await lab.connect(running.address, "verify")
            await verifier.fetch(number, lab.facts(), end=True)
            await verifier.ask(messages.GiveVerdict(run=number, document=DURABLE), messages.Stored)
    here = Endpoint(local=lab.directory / socket_name(running.address[1]))
    servers = [Endpoint(local=lab.directory / "nobody"), here]
    monkeypatch.setattr(live_command, "endpoint", lambda *_: servers.pop(0) if len(servers) > 1 else here)
    monkeypatch.setattr(live_command, "_ASK_S", 0.01)
    live = Live(MACHINE, JoinRequest())
    live._joined = "a server"
    asking = asyncio.create_task(live._ask())
    await waiting.until(lambda: bool(live._verdicts))
    assert [row["run"] for row in live._verdicts] == [f"{1:016x}"] and len(servers) == 1
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
