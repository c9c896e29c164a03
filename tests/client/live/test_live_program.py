"""What the live image's program makes of sticks, and of a server that is away: on files and a real server."""

from __future__ import annotations

import asyncio
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from durability.errors import PeerError, RefusedError, SetupError, UsageError
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
from tests.joined import credential_of_nobody
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
OF_THIS_BOOT = "b" * 32  # the number that the boot made up
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


def test_the_credential_of_this_machine_is_left_alone(tmp_path: Path) -> None:
    """Tests use a credential path of their own, even as root."""
    assert credential_path().is_relative_to(tmp_path)


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
    places = f"{tmp_path}:{PROGRAM_PLACES}"
    monkeypatch.setattr("durability_client.system.programs.PROGRAM_PLACES", places)
    (tmp_path / "machine-id").write_text(f"{OF_THIS_BOOT}\n")
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
    """The first stick's address is applied once, beside the join code of the kernel's command line. A failure
    is shown and tried again."""
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


async def test_a_machine_that_was_revoked_takes_another_code(
    lab: Lab, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the code of the kernel's command line it cannot join again, so the stick's is tried."""
    running = await lab.start(f"sqlite:///{boot}/store.sqlite")
    server = format_address(*running.address)
    first, fresh = [(await invited(lab, running)).split()[-1] for _ in range(2)]
    live = Live(MACHINE, from_kernel(f"durability.join={server},{first}"))
    plug(monkeypatch)
    lost = await joined(live)
    operator = await lab.connect(running.address, "operate", local=True)
    await operator.ask(messages.Revoke(client=lost.client), messages.Revoked)
    plug(monkeypatch, made_stick(boot / "1", f"join = {server} {fresh}\n"))
    with pytest.raises(RefusedError, match="was revoked at"):
        await joined(live)
    assert (await joined(live)).client != lost.client


async def test_a_code_that_joins_once_makes_way(
    lab: Lab, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses it, because the machine could not join by it after its next boot."""
    running = await lab.start(f"sqlite:///{boot}/store.sqlite")
    server = format_address(*running.address)
    plug(monkeypatch)
    live = Live(MACHINE, from_kernel(f"durability.join={server},{(await invited(lab, running)).split()[-1]}"))
    type_line(live, f"{server} {(await running.server.invite()).line.split()[-1]}")
    with pytest.raises(RefusedError, match="--machines N"):
        await joined(live)
    assert (await joined(live)).name == MACHINE.name


def type_line(live: Live, line: str) -> None:
    """Somebody types this at a console."""
    live._typed.put_nowait(line)


async def next_server(live: Live) -> str:
    """Which server the machine would join now."""
    request = await live._join_request()
    return request.server if request is not None else ""


async def test_what_was_typed_is_tried_again(lab: Lab, boot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network, or the server, may come later. Another line takes its place, and a mistake leaves none."""
    running = await lab.start(f"sqlite:///{boot}/store.sqlite")
    server, code = format_address(*running.address), (await invited(lab, running)).split()[-1]
    plug(monkeypatch)
    live = Live(MACHINE, from_kernel(f"durability.join=192.0.2.9:7420,{CODE}"))
    assert await next_server(live) == "192.0.2.9:7420"
    type_line(live, f"127.0.0.1:1 {code}")
    with pytest.raises(PeerError):
        await joined(live)
    assert [await next_server(live) for _ in range(2)] == ["127.0.0.1:1"] * 2
    type_line(live, f"{server} {code}")
    assert [await next_server(live) for _ in range(2)] == [server] * 2
    type_line(live, server)
    with pytest.raises(UsageError):
        await live._join_request()
    assert await next_server(live) == "192.0.2.9:7420"


async def test_a_typed_code_that_is_over_is_tried_once(
    lab: Lab, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the kernel's command line has its turn."""
    running = await lab.start(f"sqlite:///{boot}/store.sqlite")
    server = format_address(*running.address)
    used, fresh = [(await invited(lab, running)).split()[-1] for _ in range(2)]
    plug(monkeypatch)
    await joined(Live(replace(MACHINE, key="other"), from_kernel(f"durability.join={server},{used}")))
    live = Live(MACHINE, from_kernel(f"durability.join={server},{fresh}"))
    type_line(live, f"{server} {used}")
    with pytest.raises(RefusedError, match="1 machines have joined"):
        await joined(live)
    await joined(live)


@pytest.mark.parametrize("mistake", [f"join=192.0.2.7:7420,{CODE[:-1]}", "jion=192.0.2.7:7420", 'name="a'])
async def test_a_mistake_in_the_kernels_line_leads_to_no_other_server(
    mistake: str, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a mistake in the kernel's command line, a stick's server is ignored and the correct words still
    count. The console shows the mistake, and a line typed there joins."""
    plug(monkeypatch, made_stick(boot / "1", f"join = 192.0.2.1:7420 {CODE}\nname = rack-4\n"))
    kernel = from_kernel(f"durability.machine=shelf-3 durability.name=rack-3 durability.{mistake}")
    live = Live(MACHINE, kernel)
    assert await live._join_request() is None
    (shown,) = live._view().troubles
    assert "only a line typed here joins" in shown and f"durability.{mistake}"[:15] in shown
    type_line(live, f"192.0.2.9:7420 {CODE}")
    request = await live._join_request()
    assert request is not None and (request.server, request.name) == ("192.0.2.9:7420", "rack-3")
    assert live._machine.key == this_machine(given_key="shelf-3").key


@pytest.mark.parametrize(
    ("way", "said", "shown"),
    [
        (
            "kernel",
            f'durability.machine="shelf 3 durability.join=a:1,{CODE}',
            '="shelf 3 durability.join=a:1,',
        ),
        ("kernel", f"durability.joni=192.0.2.7:7420,{CODE}", "'durability.joni=192.0.2.7:7420,"),
        ("kernel", f"durability.join=,{CODE}", "expected HOST:PORT and a code"),
        ("stick", f"jion = 192.0.2.7:7420 {CODE}", "line 1, 'jion = 192.0.2.7:7420 "),
        ("stick", f"join: 192.0.2.7:7420 {CODE.lower()}", "line 1, 'join: 192.0.2.7:7420 "),
        ("stick", f"sudo durability join a:1 {CODE}", "line 1, 'sudo durability join a:1"),
        ("console", CODE.replace("-", ""), "expected HOST:PORT and a code"),
        ("console", f"{CODE}:x {CODE}", "is not an address"),
    ],
)
async def test_no_mistake_shows_a_code(
    way: str, said: str, shown: str, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message about a mistake never shows a join code, since anyone may read the screen."""
    plug(monkeypatch, *([made_stick(boot / "1", f"{said}\n")] if way == "stick" else []))
    live = Live(MACHINE, from_kernel(said if way == "kernel" else ""))
    if way == "console":
        type_line(live, said)
    await live._attempt()
    (trouble,) = live._view().troubles
    assert shown in trouble and "(code)" in trouble
    assert not any(group in trouble.upper() for group in CODE.split("-"))


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


async def test_a_machine_that_nothing_tells_from_others_does_not_join(
    lab: Lab, shared_board: Path, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them would be one client. The number of this boot stays, until a card comes late."""
    running = await lab.start(f"sqlite:///{boot}/store.sqlite")
    server, code = format_address(*running.address), (await invited(lab, running)).split()[-1]
    plug(monkeypatch)
    program(boot / "udevadm", "true")
    for name, value in (("_CARDS_S", 0.1), ("_SETTLED_S", 0.02)):
        monkeypatch.setattr(live_command, name, value)
    address = shared_board / "class/net/eth0/addr_assign_type"
    address.write_text("1\n")  # the kernel made its address up
    nobody = this_machine(sys=shared_board)
    live = Live(nobody, from_kernel(f"durability.join={server},{code}"), sys=shared_board)
    for _ in range(2):
        with pytest.raises(SetupError, match="nothing tells this machine from others: set `machine = TEXT`"):
            await joined(live)
    assert (nobody.key, nobody.name) == ("", "live")
    assert (boot / "machine-id").read_text().strip() == OF_THIS_BOOT
    address.write_text("0\n")
    assert (await joined(live)).servers == (server,)
    expected = this_machine(given_key="card 52:54:00:00:00:09").id
    assert (boot / "machine-id").read_text().strip() == expected


async def test_the_consoles_do_not_wait_for_cards(
    shared_board: Path, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are opened first, and say what the machine waits for."""
    plug(monkeypatch)
    program(boot / "udevadm", f"until [ -e {boot}/settled ]; do sleep 0.05; done")
    monkeypatch.setattr(live_command, "_CARDS_S", 0.1)
    ours, its = pty.openpty()
    monkeypatch.setattr(live_command, "names", lambda: [os.ttyname(its).removeprefix("/dev/")])
    live = Live(this_machine(sys=boot / "none"), JoinRequest(), sys=shared_board)
    running = asyncio.create_task(live.run())
    try:
        said = await asyncio.to_thread(heard, ours, "waiting for network cards")
        assert "Machine  a machine without a name" in said
        (boot / "settled").touch()
        await waiting.until(lambda: bool(live._machine.key))
    finally:
        (boot / "settled").touch()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        os.close(ours)
        os.close(its)


def heard(descriptor: int, words: str) -> str:
    """What a terminal says, up to these words."""
    said = ""
    while words not in said:
        said += os.read(descriptor, 65536).decode()
    return said


async def test_the_agent_is_started_until_systemd_does(boot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While systemd is busy or reloads, the start of the agent is repeated. The console says why the agent
    does not run yet."""
    credential_of_nobody(credential_path())
    count = f'echo "$*" >>{boot}/told; [ $(wc -l <{boot}/told) = 3 ] || {{ echo later >&2; exit 1; }}'
    program(boot / "systemctl", count)
    monkeypatch.setattr("socket.sethostname", lambda _: None)
    troubles: list[str] = []
    live = Live(MACHINE, JoinRequest())
    starting = asyncio.create_task(live._join())
    while not starting.done():
        troubles += live._view().troubles
        await asyncio.sleep(0)
    await starting
    assert (boot / "told").read_text() == f"start --no-block {live_command.AGENT}\n" * 3
    assert set(troubles) == {f"systemctl start {live_command.AGENT}: later"} and live._view().troubles == []


_WITHOUT_DESCRIPTORS = """
import asyncio, resource, sys
from pathlib import Path
from durability.errors import SetupError
from durability_client.live import live_command

live_command._MARK = live_command._COMMAND_LINE = Path("/dev/null")
live_command._LOOK_S = 0.01
opened = []
live_command.names = lambda: opened.append(open("/dev/null")) or ["null"]  # whatever keeps them
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    asyncio.run(live_command.live())
except SetupError as error:
    opened.clear()
    sys.exit(str(error))
"""


@pytest.mark.slow
def test_a_program_without_descriptors_ends(boot: Path) -> None:
    """A live program without free file descriptors ends, so that systemd starts it again. Otherwise it could
    neither join nor show anything until the next boot."""
    if os.geteuid() != 0:
        pytest.skip("only root runs the live image's program")
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{_WITHOUT_DESCRIPTORS}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, cwd=boot)
    assert done.returncode == 1, done.stderr
    assert "must be started again: [Errno 24] Too many open files: '/dev/null'" in done.stderr


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
