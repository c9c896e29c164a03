"""What `serve` tells the person beside it, and its service manager."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from durability.errors import RefusedError
from durability.formats.packing import Value
from durability.protocol import messages
from durability.units import format_run
from durability_cli import service_manager
from durability_server import log_lines
from durability_server.announcements import Announcer, HeldBack
from durability_server.runs import requests
from durability_server.server import Server
from durability_server.store.client_store import fit_name
from tests.waiting import DEADLINE_S

if TYPE_CHECKING:
    from tests.server.conftest import Lab

COMMAND = str(Path(sys.executable).with_name("durability"))


def test_nothing_is_told_before_the_first_line() -> None:
    """Events of the start are kept in their order; later ones are told at once."""
    told: list[str] = []
    held_back = HeldBack(lambda who, what: told.append(f"{who}: {what}"))
    held_back("b7", "back")
    held_back("b8", "back")
    assert not told
    held_back.release()
    held_back("b7", "stopped")
    assert told == ["b7: back", "b8: back", "b7: stopped"]


@pytest.mark.slow
async def test_each_event_is_a_line(lab: Lab, sqlite_url: str) -> None:
    """Joined, connected, armed, lost with what to type, back, stopped, and the verdict, in their order."""
    told: list[str] = []
    server = Server(store_url=sqlite_url, announce=lambda who, what: told.append(f"{who}: {what}"))
    address = await server.start("127.0.0.1", 0, directory=lab.directory)
    lab.members[address] = await lab.join(address, (await server.invite()).line, name="b7")
    plan = lab.plan()
    client = await lab.connect(address)
    await client.begin(plan, lab.facts(path="/mnt/t", named="/mnt/my disk/t"))
    await client.acknowledge(3, 4)
    client.vanish()
    await lab.exported(address, plan.run, lambda case: case.session_end == "silence")
    again = await lab.connect(address)
    await again.resume(plan.run)
    await again.ask(messages.Stop(frontiers=(3, 4), control=0, statistics={}), messages.Stopped)
    await again.close()
    verifier = await lab.connect(address, "verify")
    await verifier.fetch(plan.run, lab.facts(), end=True)
    document: dict[str, Value] = {
        "verdict": "loss",
        "cut": {"class": "power"},
        "at_risk": {"ms1000": 1},
        "reasons": [],
    }
    await verifier.ask(messages.GiveVerdict(run=plan.run, document=document), messages.Stored)
    await server.stop()
    expected = (
        r"b7: joined as client",
        r".*: run 0123456789abcdef connected as b7 at 127.*, prefills /mnt/t on .*, 31 MiB, 2 writers",
        r".*: run \w+ armed: /mnt/t on .*, 31 MiB, 2 writers",
        r".*: run \w+ lost at \d\d:\d\d:\d\d after 7 acknowledgements: boot it and type"
        r" `durability verify '/mnt/my disk/t'`",
        r".*: run \w+ back, after 7 acknowledgements",
        r".*: run \w+ stopped cleanly after 7 acknowledgements: this run cannot become durable",
        r".*: run \w+ verdict: loss",
    )
    assert len(told) == len(expected), told
    for line, pattern in zip(told, expected, strict=True):
        assert re.fullmatch(pattern, line), line


@pytest.mark.slow
async def test_the_server_says_whose_run_it_is(lab: Lab, sqlite_url: str) -> None:
    """An announcement shows the client's own name before the host name, because a client may report any host
    name."""
    told: list[str] = []
    running = await lab.start(sqlite_url, announce=lambda who, _: told.append(who))
    client = await lab.connect(running.address)
    facts = lab.facts(path="/mnt/t")
    await client.register(lab.plan(), replace(facts, host=replace(facts.host, hostname="campaign nightly")))
    assert told == ["test", "test (campaign nightly)"]


@pytest.mark.parametrize("name", ["campaign nightly", "Serve", "store", "live  page"])
async def test_no_client_is_called_what_serve_tells_of_by_itself(
    lab: Lab, sqlite_url: str, name: str
) -> None:
    """A machine whose name looks like a campaign or the server is joined with the prefix "client". `fit_name`
    refuses such a name from a person."""
    told: list[str] = []
    running = await lab.start(sqlite_url, announce=lambda who, _: told.append(who))
    await lab.join(running.address, (await running.server.invite()).line, name=name)
    assert told[-1] == f"client {' '.join(name.split())}"
    with pytest.raises(RefusedError, match="cannot be called") as refusal:
        fit_name(name)
    assert refusal.value.code == "bad-request"


@pytest.mark.slow
async def test_a_client_in_its_prefill_is_told_of(lab: Lab, sqlite_url: str) -> None:
    """A client in its prefill, which may last for minutes, is announced. If its machine fails then, no verify
    is suggested."""
    told: list[str] = []
    running = await lab.start(sqlite_url, announce=lambda _, what: told.append(what))
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.register(plan, lab.facts(path="/mnt/t"))
    client.pause()
    await lab.exported(running.address, plan.run, lambda case: case.session_end == "silence")
    again = await lab.connect(running.address)
    await again.resume(plan.run)
    await again.close()
    await lab.exported(running.address, plan.run, lambda case: case.session_end == "fin")
    expected = (
        r"joined as client",
        r"run \w+ connected as test at .*, prefills /mnt/t on .*",
        r"run \w+ lost at \d\d:\d\d:\d\d in its prefill: nothing was acknowledged",
        r"run \w+ back, in its prefill",
        r"run \w+ connection closed in its prefill: .*",
    )
    assert len(told) == len(expected), told
    for line, pattern in zip(told, expected, strict=True):
        assert re.fullmatch(pattern, line), line


@pytest.mark.slow
async def test_a_client_that_is_heard_again_is_told_of(lab: Lab, sqlite_url: str) -> None:
    """A network that hung for a while: the last word is not that the machine is to be booted."""
    told: list[str] = []
    running = await lab.start(sqlite_url, announce=lambda _, what: told.append(what))
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(3, 4)
    for _ in range(2):
        client.pause()
        await lab.exported(running.address, plan.run, lambda case: case.session_end == "silence")
        client.go_on()
        await lab.exported(running.address, plan.run, lambda case: case.session_end == "live")
    words = [word for what in told for word in ("lost at", "back, after 7") if word in what]
    assert set(words[::2]) == {"lost at"} and set(words[1::2]) == {"back, after 7"} and len(words) > 3, told


@pytest.mark.slow
@pytest.mark.usefixtures("no_silence")
async def test_a_client_that_comes_back_all_the_time_hides_no_other(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limited number of events of one client is announced and the rest are counted. Events of other clients
    are announced as usual."""
    monkeypatch.setattr(requests, "EVENTS_AT_ONCE", 5)
    told: list[str] = []
    server = Server(store_url=sqlite_url, announce=lambda who, what: told.append(f"{who}: {what}"))
    address = await server.start("127.0.0.1", 0, directory=lab.directory)
    noisy = await lab.join(address, (await server.invite()).line, name="noisy")
    quiet = await lab.join(address, (await server.invite()).line, name="quiet")
    plan = lab.plan()
    first = await lab.connect(address, member=noisy)
    await first.begin(plan, lab.facts())
    for _ in range(12):
        again = await lab.connect(address, member=noisy)
        await again.resume(plan.run)
    before = len(told)
    other = lab.plan(run=plan.run + 1)
    client = await lab.connect(address, member=quiet)
    await client.begin(other, lab.facts(serial="S2", uuid="uuid-2"))
    assert sum(format_run(plan.run) in line for line in told) == 5
    assert len(told) == before + 2  # connected and armed
    monkeypatch.setattr(log_lines, "_INTERVAL_S", -1.0)
    last = await lab.connect(address, member=noisy)
    await last.resume(plan.run)
    assert re.search(r"\(\d+ events before this one were left out\)$", told[-1])
    await server.stop()


def test_a_line_is_plain_and_its_reader_may_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer's text cannot forge a line, lines for the journal have a priority, and a closed stdout stops
    nothing. With --quiet, events are not printed."""
    reader, writer = os.pipe()
    with os.fdopen(reader, encoding="utf-8") as lines, os.fdopen(writer, "w", encoding="utf-8") as out:
        Announcer(out)("shelf\x1b[2J", "armed\nverdict: durable")
        assert re.fullmatch(r"\d\d:\d\d:\d\d  shelf\\x1b\[2J  armed\\nverdict: durable\n", lines.readline())
        status = os.fstat(writer)
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        Announcer(out)("shelf", "joined")
        assert lines.readline().startswith("<5>")
        quiet = Announcer(out, is_quiet=True)
        quiet("shelf", "joined")
        quiet.say("Listening.")
        assert lines.readline() == "<6>Listening.\n"
        lines.close()
        left = Announcer(out)
        left("shelf", "joined")
        left.flush()


@pytest.mark.slow
async def test_a_service_manager_hears_that_it_lives(tmp_path: Path) -> None:
    """READY=1 once it listens, WATCHDOG=1 within half of the time that it is given, STOPPING=1 at its end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        own = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        process = await asyncio.create_subprocess_exec(
            *(COMMAND, "serve", "--listen", "127.0.0.1:0", "--quiet"),
            env={**os.environ, **own, "XDG_STATE_HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DEADLINE_S):
            heard = [await loop.sock_recv(manager, 100) for _ in range(3)]
            process.send_signal(signal.SIGTERM)
            while heard[-1] != b"STOPPING=1":
                heard.append(await loop.sock_recv(manager, 100))
            said, _ = await process.communicate()
    assert process.returncode == 0
    assert re.fullmatch(rb"Listening on \S+\.\nTo join a machine [^\n]*\n", said), said
    assert heard[:3] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]


async def test_a_service_manager_hears_nothing_of_a_server_that_does_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WATCHDOG=1 stops while the program itself says that it does not work, and comes again after that."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    looks: list[bool] = []
    enough = asyncio.Event()

    def works() -> bool:
        looks.append(len(looks) in (0, 3))
        if len(looks) == 5:
            enough.set()
        return looks[-1]

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        async with asyncio.timeout(DEADLINE_S), service_manager.informed(works):
            await enough.wait()
        heard = [manager.recv(100) for _ in range(4)]
        assert heard == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1", b"STOPPING=1"]
