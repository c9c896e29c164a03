"""What the live image's program makes of sticks, and of a server that is away: on files and a real server."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from durability.errors import RefusedError
from durability.formats.packing import Value
from durability.program_places import PROGRAM_PLACES
from durability.protocol import messages
from durability.protocol.join_code import JoinCode
from durability.protocol.local_address import socket_name
from durability.units import format_address
from durability_client.link.credential import Credential, credential_path, load_credential
from durability_client.link.endpoint import Endpoint
from durability_client.live import live_command, stick
from durability_client.live.join_request import JoinRequest, from_kernel
from durability_client.live.live_command import Live
from durability_client.live.this_machine import ThisMachine, this_machine
from tests import waiting
from tests.server.access.test_machines_that_join_again import invited
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


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory with what a boot of the live image writes, and the programs that it asks first. Nothing
    is waited for that does not happen."""
    if shutil.which("mformat") is None:
        pytest.skip("mtools is not installed")
    monkeypatch.setenv("DURABILITY_CREDENTIAL", str(tmp_path / "credential.json"))
    places = f"{tmp_path}:{PROGRAM_PLACES}"
    monkeypatch.setattr("durability_client.system.programs.PROGRAM_PLACES", places)
    monkeypatch.setattr(live_command, "_MACHINE_ID", tmp_path / "machine-id")
    monkeypatch.setattr(live_command, "NETWORK", tmp_path / "run/join.network")
    for name in ("_LOOK_S", "_JOIN_S"):
        monkeypatch.setattr(live_command, name, 0.01)
    return tmp_path


def plug(monkeypatch: pytest.MonkeyPatch, *sticks: Path) -> None:
    """These are the sticks from now on."""
    monkeypatch.setattr(stick, "find", lambda: list(sticks))


def program(path: Path, script: str) -> None:
    """A program of the system that does this."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


async def joined(live: Live) -> Credential:
    """As whom the machine joins, by what it finds next."""
    request = await live._join_request()
    assert request is not None
    await live._try(request)
    credential = load_credential(credential_path())
    assert credential is not None
    credential_path().unlink()  # with the next boot
    return credential


@pytest.mark.parametrize("kernel", ["", "durability.machine=shelf-9"])
async def test_the_text_of_a_stick_is_the_machine(
    kernel: str, lab: Lab, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other hardware with the same text is the same client, and has the same number, which it has before the
    agent starts. What the kernel's command line says comes first."""
    running = await lab.start(f"sqlite:///{boot}/store.sqlite")
    server, line = format_address(*running.address), await invited(lab, running, machines=2)
    code = line.split()[-1]
    plug(monkeypatch, made_stick(boot / "1", f"join = {server} {code}\nmachine = shelf 3\n"))
    numbers = []
    clients = []
    for machine in (MACHINE, replace(MACHINE, key="other", id="o" * 32)):
        clients.append((await joined(Live(machine, from_kernel(kernel)))).client)
        numbers.append((boot / "machine-id").read_text().strip())
    expected = this_machine(given_key="shelf-9" if kernel else "shelf 3").id
    assert clients[0] == clients[1] and numbers == [expected] * 2
    plug(monkeypatch, made_stick(boot / "2", f"join = {server} {code}\nname = rack-3\n"))
    by_itself = await joined(Live(MACHINE, JoinRequest()))
    assert by_itself.client != clients[0] and by_itself.name == "rack-3"


async def test_sticks_are_read_beside_the_kernels_command_line(
    boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their address is applied, and once: of two, that of the first. A failure is told, and tried again."""
    program(
        boot / "networkctl", f'echo "$@" >>{boot}/told; [ -e {boot}/works ] || {{ echo no >&2; exit 1; }}'
    )
    first = made_stick(boot / "1", "address = 192.0.2.20/24\n")
    second = made_stick(boot / "2", f"join = 192.0.2.1:7420 {CODE}\naddress = 192.0.2.21/24\nname = rack-3\n")
    plug(monkeypatch, first, second)
    live = Live(MACHINE, from_kernel(f"durability.join=192.0.2.9:7420,{CODE}"))
    for number in range(4):
        if number == 2:
            (boot / "works").touch()
        request = await live._join_request()
        assert request is not None and (request.server, request.name) == ("192.0.2.9:7420", "rack-3")
        assert live._view().troubles == ([] if number >= 2 else ["networkctl reload: no"])
    assert (boot / "told").read_text().splitlines() == ["reload"] * 3
    assert "Address=192.0.2.20/24\n" in live_command.NETWORK.read_text()


async def test_a_stick_has_a_fresh_code(lab: Lab, boot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of the kernel's command line has joined its machine, so the stick's is tried; not one of
    another server. When all were refused, the first has its turn again."""
    running = await lab.start(f"sqlite:///{boot}/store.sqlite")
    server = format_address(*running.address)
    used, fresh = [(await invited(lab, running)).split()[-1] for _ in range(2)]
    await joined(Live(MACHINE, from_kernel(f"durability.join={server},{used}")))
    elsewhere = made_stick(boot / "1", f"join = 192.0.2.1:7420 {CODE}\n")
    plug(monkeypatch, elsewhere)
    live = Live(replace(MACHINE, key="other"), from_kernel(f"durability.join={server},{used}"))
    for _ in range(2):
        with pytest.raises(RefusedError, match="1 machines have joined"):
            await joined(live)
    plug(monkeypatch, elsewhere, made_stick(boot / "2", f"join = {server} {fresh}\n"))
    assert (await joined(live)).servers == (server,)


@pytest.fixture
def shared_board(boot: Path) -> Path:
    """A tree as /sys of a board with a UUID that others have, and one card whose driver is there."""
    (boot / "sys/class/dmi/id").mkdir(parents=True)
    (boot / "sys/class/dmi/id/product_uuid").write_text("03000200-0400-0500-0006-000700080009\n")
    plug_card(boot / "sys", "eth0", "52:54:00:00:00:09")
    return boot / "sys"


def plug_card(sys: Path, name: str, address: str) -> None:
    """A network card on the board has its driver."""
    (sys / "class/net" / name / "device").mkdir(parents=True)
    (sys / "class/net" / name / "address").write_text(f"{address}\n")


async def test_cards_that_come_late_are_waited_for(
    shared_board: Path, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lowest number is the machine, whichever driver is first, also if it comes after udev is done."""
    monkeypatch.setattr(live_command, "_SETTLED_S", 1.5)
    program(boot / "udevadm", f"echo $@ >>{boot}/told")
    finding = asyncio.create_task(live_command.identified("", sys=shared_board))
    await waiting.until((boot / "told").exists)
    asyncio.get_running_loop().call_later(0.2, plug_card, shared_board, "eth1", "52:54:00:00:00:02")
    found = await finding
    assert (boot / "told").read_text() == "settle\n"
    assert found.key == this_machine(given_key="card 52:54:00:00:00:02").key


@pytest.mark.parametrize("known_by", ["uuid", "text", "nothing"])
async def test_only_cards_are_waited_for_and_not_for_ever(
    known_by: str, shared_board: Path, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is known otherwise does not ask udev. One without any card goes on after a while."""
    program(boot / "udevadm", f"touch {boot}/told")
    shutil.rmtree(shared_board / "class/net")
    if known_by == "uuid":
        uuid = "4c4c4544-0042-3510-8054-b7c04f4e3332\n"
        (shared_board / "class/dmi/id/product_uuid").write_text(uuid)
    monkeypatch.setattr(live_command, "_CARDS_S", 0.1)
    await live_command.identified("shelf 3" if known_by == "text" else "", sys=shared_board)
    assert (boot / "told").exists() == (known_by == "nothing")


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
