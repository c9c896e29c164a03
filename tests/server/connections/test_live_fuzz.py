"""A fuzzer against a live server: 100,000 malformed frames, an honest client beside them.

The frames come in bursts, one burst to a connection: the first closes it, the rest finds the server
discarding.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from durability.errors import PeerError, ProtocolError
from durability.protocol import messages
from durability.protocol.frame import frame
from durability.protocol.messages import Message, decode, encode
from durability.protocol.secure_stream import PlainStream, SecureStream, Stream, client_context
from durability.protocol.state_machine import ClientProtocol

if TYPE_CHECKING:
    from tests.server.conftest import Lab, Member, ServerProcess

SEED = 20_240_229
CONNECTIONS = 18_000
BURST = 8
PLAIN_SHARE = 0.2  # of the connections that do not even speak TLS
KNOWN_SHARE = 0.1  # of the connections that shake hands before they turn bad
TORN_SHARE = 0.05  # that end in the middle of a frame
GROWTH_BYTES_MAX = 8 << 20
WAIT_S = 60

CONTEXT = client_context()
PURPOSES = ("run", "verify", "query")
VALID: tuple[Message, ...] = (
    messages.Hello(versions=(3,), purpose="run", client="c", secret=bytes(32), software="fuzz"),
    messages.Ping(sent_ns=1),
    messages.Register(
        run=1, plan=b"plan", facts={"a": [1, {"b": None}]}, secret=bytes(32), label="x", force=True
    ),
    messages.Resume(run=1, secret=bytes(32)),
    messages.Ack(frontiers=(1, 2, 3), control=4),
    messages.Stop(frontiers=(1,), control=2, statistics={"elapsed_s": 1.5}),
    messages.Progress(statistics={"operations": [1]}),
    messages.Fetch(run=0, facts={"path": "/x"}, end=True),
    messages.Evidence(run=1, name="x", data=bytes(100)),
    messages.GiveVerdict(run=1, document={"verdict": "loss"}),
    messages.List(limit=1),
)


class Fuzzer:
    """Makes malformed frames from a seed and throws them at a server."""

    def __init__(self, address: tuple[str, int], member: Member) -> None:
        self._chance = random.Random(SEED)
        self._address = address
        self._member = member
        self.frames = 0

    def attack(self, connections: int) -> None:
        """So many connections, one after the other. Raises TimeoutError if the server does not close one."""
        for _ in range(connections):
            with socket.create_connection(self._address, timeout=WAIT_S) as connection:
                stream: Stream = PlainStream()
                if self._chance.random() >= PLAIN_SHARE:
                    stream = SecureStream.client_end(CONTEXT, fingerprint=self._member.fingerprint)
                if isinstance(stream, SecureStream) and self._chance.random() < KNOWN_SHARE:
                    self._shake_hands(connection, stream)
                if self._chance.random() < TORN_SHARE:
                    stream.send(frame(encode(self._chance.choice(VALID)))[:-1])
                    connection.sendall(stream.outgoing())
                    continue
                burst = b"".join(self.malformed() for _ in range(BURST))
                self.frames += BURST * isinstance(stream, SecureStream)
                try:
                    stream.send(burst)
                    while True:
                        connection.sendall(stream.outgoing())
                        if not (data := connection.recv(1 << 16)):
                            break
                        stream.receive(data)
                except ConnectionError:
                    continue  # closed with a part of the burst unread

    def _shake_hands(self, connection: socket.socket, stream: SecureStream) -> None:
        session = ClientProtocol(
            self._chance.choice(PURPOSES),
            client=self._member.client,
            secret=self._member.secret,
            software="fuzz",
        )
        session.start()
        stream.send(session.outgoing())
        while not session.authenticated:
            connection.sendall(stream.outgoing())
            session.receive(stream.receive(connection.recv(1 << 16)))

    def malformed(self) -> bytes:
        """A frame that no session may accept."""
        while True:
            body = self._mutated(encode(self._chance.choice(VALID)))
            try:
                decode(body)
            except ProtocolError:
                return frame(body)
            except PeerError as error:
                raise AssertionError(f"seed {SEED}: {body.hex()}: {error!r}") from error

    def _mutated(self, body: bytes) -> bytes:
        chance = self._chance
        at = chance.randrange(len(body))
        match chance.randrange(6):
            case 0:
                return chance.randbytes(chance.randrange(1, 200))
            case 1:
                return body[:at] + bytes([body[at] ^ 1 << chance.randrange(8)]) + body[at + 1 :]
            case 2:
                return body[:at] or b"\x90"
            case 3:
                return body + chance.randbytes(chance.randrange(1, 20))
            case 4:
                return body[:at] + chance.randbytes(4) + body[at + 4 :]
            case _:
                return body[:2] + b"\x91" * chance.randrange(1, 500)  # nested deeper than anything is


def _resident_bytes(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return int(kib) << 10


@pytest.mark.slow
@pytest.mark.timeout(900)  # on a machine that does something else besides
async def test_malformed_frames_disturb_nobody(
    lab: Lab, server_process: Callable[[str], Awaitable[ServerProcess]], sqlite_url: str
) -> None:
    """The server refuses each and does not grow; an honest client keeps its heartbeat and its credit."""
    server = await server_process(sqlite_url)
    assert server.process is not None
    plan = lab.plan(writers=1)
    client = await lab.connect(server.address)
    await client.begin(plan, lab.facts())
    fuzzer = Fuzzer(server.address, lab.members[server.address])
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, fuzzer.attack, CONNECTIONS // 10)
    before = _resident_bytes(server.process.pid)
    attack = loop.run_in_executor(None, fuzzer.attack, CONNECTIONS)
    seq = 0
    while not attack.done():
        seq += 1
        await client.acknowledge(seq)
    await attack
    growth = _resident_bytes(server.process.pid) - before
    assert fuzzer.frames >= 100_000, f"seed {SEED}"
    assert growth < GROWTH_BYTES_MAX, f"seed {SEED}: the server grew by {growth} bytes"
    # Live again after it was silent is what a machine that stood still makes of the client of this process.
    case = await lab.exported(server.address, plan.run, lambda case: case.session_end == "live")
    assert (case.session_end, case.frontiers, case.tainted) == ("live", (seq,), ""), f"seed {SEED}"
    assert "Traceback" not in server.log, f"seed {SEED}"
