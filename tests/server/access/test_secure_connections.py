"""The server over TLS: how connections end, who gets in, and what a man in the middle achieves."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from durability import limits
from durability.errors import AuthenticationError, ProtocolError, RefusedError
from durability.protocol import messages
from durability.protocol.frame import FrameDecoder, frame
from durability.protocol.messages import Failure, decode
from durability_server.access.server_identity import new_identity
from durability_server.server import Server
from tests.waiting import DEADLINE_S

if TYPE_CHECKING:
    from tests.server.conftest import Lab


@pytest.mark.parametrize("how", ["fin", "rst", "silence", "stop"])
@pytest.mark.slow
async def test_an_end_is_told_apart(
    lab: Lab, sqlite_url: str, request: pytest.FixtureRequest, how: str
) -> None:
    """FIN, RST and silence are evidence, and TLS hides none of them."""
    if how != "silence":
        request.getfixturevalue("no_silence")
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(3, 4)
    await lab.exported(running.address, plan.run, lambda case: case.rtt_max_ns > 0)
    match how:
        case "fin":
            await client.close()
        case "rst":
            client.reset()
        case "silence":
            client.vanish()
        case "stop":
            await client.ask(messages.Stop(frontiers=(3, 4), control=0, statistics={}), messages.Stopped)
    case = await lab.exported(running.address, plan.run, lambda case: case.session_end != "live")
    assert case.frontiers == (3, 4)
    assert case.session_end == how


async def test_a_client_that_is_not_known_is_told_so(lab: Lab, sqlite_url: str) -> None:
    """An unknown id and a wrong secret are refused in the same words, which say what to type."""
    running = await lab.start(sqlite_url)
    member = lab.members[running.address]
    for stranger in (replace(member, client="nobody"), replace(member, secret=bytes(32))):
        with pytest.raises(AuthenticationError, match=r"does not know this client.*clients invite"):
            await lab.connect(running.address, member=stranger)


async def test_a_client_of_an_earlier_release_is_told_what_to_type(lab: Lab, sqlite_url: str) -> None:
    """A plain frame is answered with a plain `Failure` that names the way to join."""
    running = await lab.start(sqlite_url)
    reader, writer = await asyncio.open_connection(*running.address)
    writer.write(frame(b"\x95\x01\x91\x02\xa3run\xc4\x20" + bytes(32) + b"\xa0"))  # Hello of protocol 2
    async with asyncio.timeout(DEADLINE_S):
        received = await reader.read(-1)
    (failure,) = (decode(body) for body in FrameDecoder(limits.FRAME_BYTES_HELLO_MAX).feed(received))
    assert isinstance(failure, Failure)
    assert failure.code == "version"
    assert "durability clients invite" in failure.text and "durability join" in failure.text
    writer.close()


async def test_a_code_joins_once(lab: Lab, sqlite_url: str) -> None:
    """A join code that was used already is refused, as if it had been overheard or typed again."""
    running = await lab.start(sqlite_url)
    invited = await running.server.invite()
    first = await lab.join(running.address, invited.line)
    with pytest.raises(RefusedError, match="was used at") as refusal:
        await lab.join(running.address, invited.line)
    assert refusal.value.code == "code-used"
    client = await lab.connect(running.address, "query", member=first)
    assert (client.session.welcome.name, client.session.welcome.role) == ("test-2", "client")


@pytest.mark.slow
async def test_the_longest_name_may_be_taken(lab: Lab, sqlite_url: str) -> None:
    """A client whose name leaves no room for the number that tells it from others has a shorter one; no
    letter is cut in two."""
    running = await lab.start(sqlite_url)
    longest = "x" + "é" * 127 + "y"
    names = []
    for _ in range(3):
        member = await lab.join(running.address, (await running.server.invite()).line, name=longest)
        client = await lab.connect(running.address, "query", member=member)
        assert client.session.welcome is not None
        names.append(client.session.welcome.name)
    assert names == [longest, "x" + "é" * 126 + "-2", "x" + "é" * 126 + "-3"]


async def test_another_server_cannot_take_the_place(lab: Lab, sqlite_url: str) -> None:
    """A client sends nothing to a server with another certificate."""
    running = await lab.start(sqlite_url)
    other = new_identity().fingerprint
    with pytest.raises(ProtocolError, match="SHA-256 fingerprint"):
        await lab.connect(running.address, member=replace(lab.members[running.address], fingerprint=other))
    case = await lab.connect(running.address, "query", local=True)
    (row,) = (await case.ask(messages.List(limit=5), messages.Listing)).rows or ({},)
    assert row == {}


@pytest.mark.slow
@pytest.mark.usefixtures("no_silence")
async def test_an_altered_byte_ends_the_connection(lab: Lab, sqlite_url: str) -> None:
    """Bytes that were altered or inserted in the stream end the connection. They count neither as an
    acknowledgement nor as a sign of life."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(1, 1)
    client.say(messages.Ack(frontiers=(2, 2), control=0))
    client.stream.send(b"\x00")
    altered = bytearray(client.stream.outgoing())
    altered[-1] ^= 1
    client.writer.write(altered)
    case = await lab.exported(running.address, plan.run, lambda case: case.session_end != "live")
    assert case.frontiers == (2, 2)
    assert case.session_end == "rst"
    assert "TLS" in case.events[-1].text


@pytest.mark.slow
async def test_silence_and_slowness_end_in_time(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that says nothing, or stops within its handshake, is closed at the deadline."""
    server = Server(store_url=sqlite_url)
    with monkeypatch.context() as patched:
        patched.setattr(limits, "HANDSHAKE_TIMEOUT_S", 1.0)
        address = await server.start("127.0.0.1", 0, directory=lab.directory)
        for greeting in (b"", b"\x16\x03\x01"):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(greeting)
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.wait([asyncio.create_task(reader.read(-1))])
            writer.close()
    asker = await lab.connect(address, "query", local=True)
    assert (await asker.ask(messages.List(limit=1), messages.Listing)).rows == ()
    await server.stop()
