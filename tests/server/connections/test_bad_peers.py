"""Peers that break the rules, each beside an honest client that must not notice."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from durability import limits
from durability.errors import RefusedError
from durability.protocol import messages
from durability.protocol.frame import FrameDecoder, frame
from durability.protocol.messages import Failure, Hello, decode, encode
from durability.protocol.secure_stream import SecureStream, client_context
from durability_server.connections.client_connection import OUTPUT_BYTES_MAX
from durability_server.connections.listener import WAITING_MAX
from durability_server.server import raise_file_limit
from tests.waiting import DEADLINE_S

if TYPE_CHECKING:
    from tests.server.conftest import Client, Lab, Running


pytestmark = pytest.mark.usefixtures("no_silence")


@asynccontextmanager
async def honest_client(lab: Lab, running: Running) -> AsyncIterator[Client]:
    """A client that is given credit before the block and, undisturbed, after it."""
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(1, 1)
    yield client
    await client.acknowledge(2, 2)
    case = await lab.exported(running.address, plan.run, lambda case: True)
    assert (case.session_end, case.frontiers, case.tainted) == ("live", (2, 2), "")


async def _closed(lab: Lab, running: Running, connections: int) -> None:
    """Waits until the server has no more than so many connections."""
    asker = await lab.connect(running.address, "query")
    async with asyncio.timeout(DEADLINE_S):
        while running.server.connections > connections + 1:
            await asker.ask(messages.List(limit=1), messages.Listing)
    await asker.close()


async def _answer_to(lab: Lab, address: tuple[str, int], data: bytes) -> list[messages.Message]:
    """Sends `data` within TLS on a new connection; what came back before the server closed it."""
    reader, writer = await asyncio.open_connection(*address)
    stream = SecureStream.client_end(client_context(), fingerprint=lab.members[address].fingerprint)
    stream.send(data)
    received = b""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            writer.write(stream.outgoing())
            if not (some := await reader.read(1 << 16)):
                break
            received += stream.receive(some)
    writer.close()
    return [decode(body) for body in FrameDecoder(limits.FRAME_BYTES_MAX).feed(received)]


HELLO = Hello(versions=(3,), purpose="run", client="c", secret=bytes(32), software="test")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "protocol"),
        (b"\xff\xff\xff\xff", "protocol"),
        (bytes(4), "protocol"),
        (frame(b"\xc1" * 100), "protocol"),
        (frame(encode(messages.Ping(sent_ns=1))), "protocol"),
        (frame(encode(HELLO)) * 2, "protocol"),
        (frame(encode(replace(HELLO, versions=(7, 9)))), "version"),
        (frame(encode(HELLO)), "authentication"),
        (frame(encode(replace(HELLO, purpose="join", secret=bytes(10)))), "code-unknown"),
    ],
    ids=["http", "oversized", "empty", "garbage", "too-early", "twice", "version", "stranger", "code"],
)
async def test_nonsense_is_told_so_and_closed(
    lab: Lab, sqlite_url: str, caplog: pytest.LogCaptureFixture, data: bytes, code: str
) -> None:
    """A peer with invalid data, an unknown version or a wrong secret gets one Failure with the reason. The
    log gets one line."""
    running = await lab.start(sqlite_url)
    async with honest_client(lab, running):
        caplog.clear()
        *_, last = await _answer_to(lab, running.address, data)
        await _closed(lab, running, 1)
    assert isinstance(last, Failure)
    assert last.code == code
    lines = [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"]
    said = "Upgrade the server's machine" if code == "version" else code
    assert len([line for line in lines if said in line]) == 1


@pytest.mark.slow
async def test_a_large_frame_is_not_waited_for(lab: Lab, sqlite_url: str) -> None:
    """A stranger that announces more than a greeting's length is refused at the length, before the body."""
    running = await lab.start(sqlite_url)
    length = (limits.FRAME_BYTES_HELLO_MAX + 1).to_bytes(4, "big")
    (answer,) = await _answer_to(lab, running.address, length)
    assert isinstance(answer, Failure)
    assert str(limits.FRAME_BYTES_HELLO_MAX) in answer.text


def _strangers(address: tuple[str, int], count: int) -> list[socket.socket]:
    return [socket.create_connection(address) for _ in range(count)]


@pytest.mark.slow
async def test_silent_strangers_keep_nobody_out(lab: Lab, sqlite_url: str) -> None:
    """With every stranger's place taken by connections that say nothing, an honest client still gets in."""
    raise_file_limit()
    running = await lab.start(sqlite_url)
    async with honest_client(lab, running):
        idle = await asyncio.to_thread(_strangers, running.address, WAITING_MAX + 100)
        asker = await lab.connect(running.address, "query")
        await asker.ask(messages.List(limit=1), messages.Listing)
        assert running.server.connections <= 3
        for connection in idle:
            connection.close()


@pytest.mark.slow
async def test_a_peer_that_does_not_read_is_dropped(
    lab: Lab, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that makes the server answer and never reads is dropped before the answers fill its memory."""
    running = await lab.start(sqlite_url)
    async with honest_client(lab, running):
        deaf = await lab.connect(running.address, "query", local=True)
        deaf.pause()
        pings = frame(encode(messages.Ping(sent_ns=1))) * 1000
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(
                4 * DEADLINE_S
            ):  # the kernel's buffers are filled first: some megabytes
                while True:
                    deaf.writer.write(pings)
                    await deaf.writer.drain()
        await _closed(lab, running, 1)
    (unread,) = re.findall(r"leaves (\d+) bytes unread", caplog.text)
    assert OUTPUT_BYTES_MAX < int(unread) < 2 * OUTPUT_BYTES_MAX


@pytest.mark.slow
async def test_a_broken_frame_of_a_known_client_ends_only_its_own_run(lab: Lab, sqlite_url: str) -> None:
    """A client that turns to garbage is closed, its run recorded as reset here; its neighbour goes on."""
    running = await lab.start(sqlite_url)
    async with honest_client(lab, running):
        plan = lab.plan(run=5)
        broken = await lab.connect(running.address)
        await broken.begin(plan, lab.facts(serial="S5"))
        await broken.acknowledge(3, 3)
        broken.say_bytes(frame(b"\xc1garbage"))
        error = await broken.ended()
        assert isinstance(error, RefusedError)
        assert error.code == "protocol"
        case = await lab.exported(running.address, plan.run, lambda case: True)
        assert (case.session_end, case.frontiers) == ("rst", (3, 3))
