"""What people see at the consoles of a live machine, on terminals of the kernel, and what they type."""

from __future__ import annotations

import asyncio
import os
import pty
import select
from collections.abc import Sequence
from pathlib import Path

import pytest

from durability_client.live import consoles, live_command, screen
from durability_client.live.consoles import Console
from durability_client.live.join_request import JoinRequest
from durability_client.live.live_command import Live
from durability_client.live.screen import View
from durability_client.live.this_machine import SeenDrive, ThisMachine
from tests.waiting import until

MACHINE = ThisMachine(
    key="k", id="i" * 32, name="live-EX123", description="Example Inc. Server 1, serial EX123"
)
DRIVE = SeenDrive(name="nvme0n1", model="Example \x1b[2JSSD", serial="S1", size_bytes=10**12, writes=0)


def view(*, joined: str = "", trouble: str = "", said: Sequence[str] = (), verdicts: int = 0) -> View:
    """What is shown of a machine with one drive."""
    rows = [
        {"verdict": "durable", "run": f"{number:016x}", "registered": "2026-11-23", "path": "/dev/nvme0n1"}
        for number in range(verdicts)
    ]
    return View(
        machine=MACHINE,
        drives=[DRIVE],
        network="eno1 192.0.2.7/24",
        joined=joined,
        troubles=[trouble] if trouble else [],
        said=said,
        verdicts=rows,
    )


@pytest.mark.parametrize(("width", "height"), [(80, 25), (60, 20), (200, 60)])
def test_a_page_fits_its_screen(width: int, height: int) -> None:
    """The screen always shows the machine and the typed line, and prints control characters as text."""
    said = [f"task {number}: run, a campaign with a long name, cycle {number}" for number in range(300)]
    page = screen.page(view(said=said, verdicts=5), width=width, height=height, typed="192.0")
    lines = page.split("\r\n")
    assert len(lines) == height and max(map(len, lines)) <= width
    assert lines[-1] == "> 192.0" and "\x1b" not in page
    assert any("Example Inc." in line for line in lines) and any("nvme0n1" in line for line in lines)
    assert any("cycle 299" in line or "task 299" in line for line in lines)


def test_a_trouble_is_shown_to_its_end() -> None:
    """It may say there what to do: a narrow screen has it on several lines, and not a page of them."""
    what_to_do = "this code joins once; for the live image: `durability clients invite --machines N`"
    lines = screen.head(view(trouble=what_to_do), width=60)
    at = lines.index("Server   not joined yet") + 1
    assert " ".join(line.strip() for line in lines[at : at + 2]) == what_to_do
    assert len(screen.head(view(trouble="why " * 1000), width=60)) < 15


def test_a_page_without_a_question() -> None:
    """Once it has joined, nothing is asked, and the verdicts are below the agent's words."""
    page = screen.page(
        view(joined="192.0.2.1:7420, as rack", said=["task 1: wait"], verdicts=1),
        width=80,
        height=25,
        typed=None,
    )
    assert "> " not in page and "Server   192.0.2.1:7420, as rack" in page
    assert page.index("task 1: wait") < page.index("durable")


def _until(descriptor: int, end: str) -> str:
    """What can be read there, up to and with `end`."""
    text = ""
    while end not in text:
        text += os.read(descriptor, 65536).decode()
    return text


async def test_a_serial_line_gets_what_is_new() -> None:
    """The head when it changes, each word of the agent once; what is typed is edited and echoed."""
    ours, its = pty.openpty()
    lines: asyncio.Queue[str] = asyncio.Queue()
    console = consoles.open_console(os.ttyname(its).removeprefix("/dev/"), lines.put_nowait)
    assert console is not None and not console.is_screen
    try:
        console.show(view(trouble="no address yet"), 0)
        first = _until(ours, "> ")
        assert "EX123" in first and "no address yet" in first and screen.HOW_TO_JOIN in first
        console.show(view(trouble="no address yet"), 0)
        os.write(ours, b"192.0.2.9\x7f1 CODE\r")
        assert await asyncio.wait_for(lines.get(), 60) == "192.0.2.1 CODE"
        assert _until(ours, "CODE").startswith("192.0.2.9\b \b1 CODE")
        console.asks = False
        for said in (["task 1: wait"], ["task 1: wait", "task 2: run"]):
            console.show(view(joined="192.0.2.1:7420, as rack", said=said), len(said))
        text = _until(ours, "task 2: run")
        assert text.count("task 1: wait") == 1 and text.count("task 2: run") == 1
        assert text.count("as rack") == 1 and "> " not in text
    finally:
        asyncio.get_running_loop().remove_reader(console.descriptor)
        for descriptor in (ours, its, console.descriptor):
            os.close(descriptor)


def test_a_console_that_takes_nothing_holds_nobody_up() -> None:
    """If no reader empties a serial console, its buffer fills and further output is dropped without
    blocking."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    console = Console(writing, is_screen=True, typed=print)
    try:
        for number in range(1000):
            console.show(view(said=[f"line {number}"]), number)
        assert not select.select([], [writing], [], 0)[1]  # it is full
    finally:
        os.close(reading)
        os.close(writing)


async def hang_up(console: Console, *descriptors: int) -> None:
    """Nobody is at the terminal any more, and the console has seen it."""
    for descriptor in descriptors:
        os.close(descriptor)
    await until(lambda: not console.is_open)


async def test_a_terminal_that_hangs_up_is_left_alone() -> None:
    """After a hang-up the terminal would stay readable without end, so it is closed and not read again.
    Output to it is dropped."""
    ours, its = pty.openpty()
    console = consoles.open_console(os.ttyname(its).removeprefix("/dev/"), print)
    assert console is not None and console.is_open
    descriptor = console.descriptor
    await hang_up(console, ours, its)
    assert not asyncio.get_running_loop().remove_reader(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    console.show(view(), 0)


async def test_what_is_no_terminal_is_closed(tmp_path: Path) -> None:
    """A serial line without a port opens, and cannot be used: it is tried again each second of the boot."""
    (tmp_path / "ttyS0").symlink_to("/dev/null")
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 - names are all that is wanted
    for _ in range(3):
        assert consoles.open_console("ttyS0", print, devices=tmp_path) is None
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


async def test_a_terminal_that_is_there_again_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal that was replaced is opened again: its input is read, and the whole screen is shown."""
    place = tmp_path / "console"
    monkeypatch.setattr(live_command, "names", lambda: [str(place)])
    live = Live(MACHINE, JoinRequest())
    assert live._open() == ()  # not there yet
    for line in (b"first", b"second"):
        ours, its = pty.openpty()
        place.unlink(missing_ok=True)
        place.symlink_to(os.ttyname(its))
        (console,) = live._open()
        assert live._open() == (console,)
        console.show(view(), 0)
        _until(ours, "> ")
        os.write(ours, line + b"\r")
        assert await asyncio.wait_for(live._typed.get(), 60) == line.decode()
        await hang_up(console, ours, its)


def test_the_network_of_the_file() -> None:
    """The join file's address and card become a systemd-networkd file, and only addresses of real cards are
    shown."""
    text = live_command.network_file(JoinRequest(address="192.0.2.7/24", gateway="192.0.2.1"))
    assert "Address=192.0.2.7/24\nGateway=192.0.2.1\n" in text and "DNS" not in text
    assert "MACAddress" not in text  # so it is for every wired card
    request = JoinRequest(address="192.0.2.7/24", card="02:00:5e:10:00:01")
    assert "\nMACAddress=02:00:5e:10:00:01\n\n[Network]\n" in live_command.network_file(request)
    shown = "lo UNKNOWN 127.0.0.1/8\neno1 UP 192.0.2.7/24 metric 1024 fe80::1/64\neno2 DOWN\n"
    assert live_command.addresses(shown) == ["eno1 192.0.2.7/24"]
