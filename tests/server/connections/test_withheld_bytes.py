"""Clients that withhold the byte which the server's TLS waits for: each stops its own connection alone."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from durability.protocol import messages
from durability.protocol.state_machine import ClientProtocol
from tests.server.conftest import Client, Member
from tests.waiting import DEADLINE_S
from tests.withheld_bytes import WithholdingStream

if TYPE_CHECKING:
    from tests.server.conftest import Lab

pytestmark = pytest.mark.usefixtures("no_silence")


def _session(member: Member, secret: bytes) -> ClientProtocol:
    session = ClientProtocol("run", client=member.client, secret=secret, software="durability test")
    session.start()
    return session


@pytest.mark.slow
async def test_a_withheld_byte_stops_nobody_elses_credit(
    lab: Lab, sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server can send the run of that client no credit, and closes its connection. All others have
    theirs, and it is no defect."""
    running = await lab.start(sqlite_url)
    good = await lab.connect(running.address)
    await good.begin(lab.plan(run=1), lab.facts())
    me = lab.members[running.address]
    reader, writer = await asyncio.open_connection(*running.address)
    stream = WithholdingStream(me.fingerprint, tmp_path / "keys")
    bad = Client(reader, writer, stream, _session(me, me.secret))
    bad.flush()
    await bad.shaken_hands()
    await bad.begin(lab.plan(run=2), lab.facts(serial="S2", uuid="uuid-2"))
    bad.pause()  # it answers no heartbeat: no other record comes after this one
    bad.say(messages.Ack(frontiers=(600, 600), control=0))
    bad.writer.write(stream.part_of_key_update())
    bad.go_on()
    await bad.ended()
    await good.acknowledge(20, 20)
    case = await lab.exported(running.address, 2, lambda case: case.session_end == "rst")
    assert case.frontiers == (600, 600)
    assert running.server.works
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    await bad.close()


async def test_a_stranger_who_withholds_a_byte_is_no_defect(
    lab: Lab, sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that is not known cannot be told so: one line says that its connection has ended."""
    running = await lab.start(sqlite_url)
    caplog.set_level(logging.INFO)
    caplog.clear()
    me = lab.members[running.address]
    reader, writer = await asyncio.open_connection(*running.address)
    stream = WithholdingStream(me.fingerprint, tmp_path / "keys")
    stream.send(_session(me, b"x" * 32).outgoing())
    while not stream.open:
        writer.write(stream.outgoing())
        stream.receive(await reader.read(1 << 16))
    writer.write(stream.outgoing() + stream.part_of_key_update())
    async with asyncio.timeout(DEADLINE_S):
        while await reader.read(1 << 16):
            pass
    late = "did not run for"  # which a busy machine makes true
    lines = [record.levelname for record in caplog.records if late not in record.getMessage()]
    assert lines == ["WARNING"]
    writer.close()
