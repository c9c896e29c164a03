"""An output that takes nothing keeps no client waiting: a terminal after Ctrl-S, a pager that was stopped."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pytest

from durability.protocol import messages
from durability.units import format_run, parse_address
from durability_server import line_writer
from durability_server.line_writer import QUEUED_BYTES_MAX, LineWriter
from tests.waiting import DEADLINE_S

if TYPE_CHECKING:
    from tests.server.conftest import Lab

COMMAND = str(Path(sys.executable).with_name("durability"))


class Pipe:
    """A pipe, of which `out` is the end of a program that writes."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        self.out: TextIO = os.fdopen(writer, "w", encoding="ascii", errors="backslashreplace")

    def fill(self) -> None:
        """Leaves no room."""
        fill(self.out.fileno())

    def read(self, count: int) -> list[str]:
        """The next `count` lines, without what `fill` wrote."""
        text = b""
        while text.lstrip(b".").count(b"\n") < count:
            text += os.read(self._reader, 1 << 20)
        return text.lstrip(b".").decode().splitlines()

    def stop_reading(self) -> None:
        """The reader goes."""
        os.close(self._reader)


def fill(descriptor: int) -> None:
    """Fills the pipe whose end for writing this is; it is opened anew, so that it stays blocking."""
    end = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
    for size in (4096, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(end, b"." * size)
    os.close(end)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe."""
    pipe = Pipe()
    yield pipe
    pipe.out.close()


def _writer(pipe: Pipe) -> LineWriter:
    return LineWriter(pipe.out, left_out=lambda count: f"{count} were left out")


def test_what_does_not_fit_is_counted(pipe: Pipe) -> None:
    """Writing never waits for a full output. Once the output takes lines again, the kept lines come in order,
    followed by the number of dropped ones."""
    pipe.fill()
    writer = _writer(pipe)
    text = "x" * 1000
    count = 2 * QUEUED_BYTES_MAX // len(text)
    for number in range(count):
        writer.write(f"{number} {text}")
    kept = [str(number) for number in range(count)]
    found = [line.split()[0] for line in pipe.read(QUEUED_BYTES_MAX // 1010)]
    while len(found) < count and found[-1] == kept[len(found) - 1]:
        found += [line.split()[0] for line in pipe.read(1)]
    assert found[:-1] == kept[: len(found) - 1]
    assert int(found[-1]) == count - len(found) + 1
    writer.write("last")
    assert pipe.read(1) == ["last"]


def test_an_output_that_is_not_blocking_loses_nothing(pipe: Pipe) -> None:
    """Another program may have made the terminal so; what is full is waited for."""
    os.set_blocking(pipe.out.fileno(), False)
    pipe.fill()
    writer = _writer(pipe)
    writer.write("first \N{EM DASH}")
    writer.write("second")
    assert pipe.read(2) == ["first \\u2014", "second"]


def test_an_end_waits_for_what_can_be_written(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A final flush waits for a slow reader for a limited time, and does not fail if the reader has gone."""
    writer = _writer(pipe)
    writer.write("first")
    writer.flush()
    assert pipe.read(1) == ["first"]
    pipe.fill()
    writer.write("second")
    monkeypatch.setattr(line_writer, "END_S", 0.01)
    writer.flush()
    monkeypatch.undo()
    pipe.stop_reading()
    writer.write("third")
    writer.flush()
    assert not writer._queued


@pytest.mark.slow
async def test_clients_get_answers_while_nobody_takes_the_output(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the server's output is full, its clients join, run and get grants. All lines appear once the
    output is read again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(lab.directory.parent))
    command = [COMMAND, "serve", "--listen", "127.0.0.1:0", "--store", sqlite_url]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, limit=1 << 20
    )
    assert process.stdout is not None
    transport = process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
    async with ended(process), asyncio.timeout(DEADLINE_S):
        while not (said := await process.stdout.readline()).startswith(b"Listening on "):
            assert said, "the server ended"
        address = parse_address(said.decode().split()[-1].rstrip("."))
        await process.stdout.readline()
        transport.pause_reading()
        fill_of(process.pid)

        operator = await lab.connect(address, "operate", local=True)
        line = (await operator.ask(messages.Invite(role="client", name="b7"), messages.Invited)).line
        lab.members[address] = await lab.join(address, line)  # an event
        plan = lab.plan()
        client = await lab.connect(address)
        await client.begin(plan, lab.facts())
        await client.acknowledge(3, 4)
        again = await lab.connect(address)
        await again.resume(plan.run)  # an event, and a line of the log
        await again.acknowledge(5, 6)
        await again.ask(messages.Stop(frontiers=(5, 6), control=0, statistics={}), messages.Stopped)

        transport.resume_reading()
        process.send_signal(signal.SIGTERM)
        rest = (await process.stdout.read()).decode().lstrip(".")
        assert await process.wait() == 0
    named = format_run(plan.run)
    wanted = ("b7  joined as client", f"run {named} armed", f"run {named} back", f"run {named} stopped")
    assert [bool(re.search(f"^[^\n]*{words}", rest, re.MULTILINE)) for words in wanted] == [True] * 4
    assert "INFO stopped" in rest


@pytest.mark.slow
async def test_a_server_that_can_say_nothing_can_be_ended(lab: Lab, pipe: Pipe) -> None:
    """A server whose stdout is full from the start accepts clients, and ends after a limited wait for the
    output."""
    pipe.fill()
    command = [COMMAND, "serve", "--listen", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "XDG_STATE_HOME": str(lab.directory.parent)},
        stdout=pipe.out,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    async with ended(process), asyncio.timeout(DEADLINE_S):
        while not (found := re.search(rb"listening on (\S+),", said := await process.stderr.readline())):
            assert said, "the server ended"
        address = parse_address(found[1].decode())
        operator = await lab.connect(address, "operate", local=True)
        line = (await operator.ask(messages.Invite(role="client", name="b7"), messages.Invited)).line
        await lab.join(address, line)
        process.send_signal(signal.SIGTERM)
        assert b"INFO stopped" in await process.stderr.read()
        assert await process.wait() == 0


@asynccontextmanager
async def ended(process: asyncio.subprocess.Process) -> AsyncIterator[None]:
    """The process is over after the block."""
    try:
        yield
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def fill_of(process: int) -> None:
    """Fills the pipe that is the stdout of this process."""
    end = os.open(f"/proc/{process}/fd/1", os.O_WRONLY)
    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 4096)
    fill(end)
    os.close(end)
