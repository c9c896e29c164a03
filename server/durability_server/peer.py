"""One connection: a thin shell that moves bytes between a socket and a session, and answers for its own peer
only.

Receipts are stamped as soon as the event loop hands the bytes over, and acknowledgements are taken in on the
spot; everything that needs the store goes to the desk, one request at a time as the session's tables have it.
Whatever a peer does wrong ends its own connection, with a `Failure` where one can be sent and one line in the
log. Memory per peer is bounded: input by the session's frame limit, output by `OUTPUT_BYTES_MAX` beyond one
answer.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import cast

from durability import limits
from durability.errors import (
    AuthenticationError,
    DurabilityError,
    FormatError,
    PeerError,
    RefusedError,
    StoreError,
)
from durability.formats.case import SessionEnd
from durability.protocol.messages import (
    Ack,
    ClientFailed,
    Credit,
    Message,
    Notice,
    Ping,
    Pong,
    Progress,
    Stop,
    TargetFailed,
)
from durability.protocol.state_machine import ServerSession
from durability.units import format_address
from durability_server import clock
from durability_server.crowd import Crowd
from durability_server.desk import Desk
from durability_server.runs import Run

INPUT_BYTES_MAX = 8 << 10  # taken from one peer before it is the others' turn
OUTPUT_BYTES_MAX = 1 << 20  # unsent output with which a peer gets nothing more, and is dropped
LINGER_NS = 1_000_000_000  # how long a refused peer may take to read why

log = logging.getLogger(__name__)


class Peer(asyncio.BufferedProtocol):
    """The server's side of one connection, on which asyncio has set TCP_NODELAY. It speaks for `run`."""

    def __init__(self, desk: Desk, crowd: Crowd, *, token: bytes, server_id: str) -> None:
        self.name = "?"
        self.run: Run | None = None
        self._desk = desk
        self._crowd = crowd
        self._session = ServerSession(
            token,
            nonce=secrets.token_bytes(32),
            server_id=server_id,
            heartbeat_ns=limits.HEARTBEAT_NS,
        )
        self._transport: asyncio.Transport | None = None
        self._view = memoryview(bytearray(INPUT_BYTES_MAX))
        self._requests: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._granted: tuple[int, ...] = ()
        self._stranger = True
        self._closing_ns = 0  # when the connection was refused; what comes after is thrown away
        self._heard_ns = clock.now_ns()
        self._deadline_ns = self._heard_ns + int(limits.HANDSHAKE_TIMEOUT_S * 1e9)

    @property
    def nonces(self) -> tuple[bytes, bytes]:
        """The client's and the server's nonce of this connection."""
        return self._session.nonces

    # The event loop calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        if address:  # a peer that is gone already has none
            self.name = format_address(*address[:2])
        self._crowd.enter(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view  # not the bytearray: asyncio's TLS reads into slices, which must not be copies

    def buffer_updated(self, nbytes: int) -> None:
        at_ns = clock.now_ns()
        if self._closing_ns:
            return
        self._heard_ns = at_ns
        if self.run is not None:
            self.run.heard(at_ns)
        try:
            for message in self._session.receive(self._view[:nbytes]):
                self._take(message, at_ns)
        except DurabilityError as error:
            self._refuse(error)
        except Exception:
            self._defect()
        else:
            if self._stranger and self._session.authenticated:
                self._stranger = False
                self._crowd.recognise(self)
            self._write()

    def eof_received(self) -> None:
        self._leave("fin", "the client's system closed the connection")

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, ConnectionError):
            self._leave("rst", f"the connection was reset: {error}")
        elif isinstance(error, OSError):
            self._leave("silence", f"the connection was given up: {error}")
        else:
            self._leave("rst", "the connection was closed here")
        if self._stranger and not self._closing_ns:
            log.info("%s: went away before it said who it is", self.name)
        self._crowd.leave(self)

    # The server calls these.

    def attach(self, run: Run) -> None:
        """From now on this peer, and no other, speaks for `run`, of which it has one hold."""
        self.run = run
        self._granted = run.frontiers.grants
        run.attached(clock.now_ns(), self)

    def grant(self, run: Run) -> None:
        """Tells the client what is durable, if that is news."""
        if run.frontiers.grants != self._granted and self._session.may_send(Credit):
            self._granted = run.frontiers.grants
            self.send(Credit(grants=self._granted))

    def notice_outage(self, failure: str | None) -> None:
        """Tells the client that the store fails, or with None that it works again."""
        if failure is None:
            notice = Notice(code="store-recovered", text="the server's store works again")
        else:
            notice = Notice(
                code="store-unavailable", text=f"the server cannot save, no credit is given: {failure}"
            )
        if self._session.may_send(Notice):
            self.send(notice)

    def send(self, message: Message) -> None:
        """Sends `message`, unless the connection is being closed."""
        if not self._closing_ns and self._session.may_send(type(message)):
            self._session.send(message)
            self._write()

    def fail(self, code: str, text: str) -> None:
        """Tells the peer why, and closes the connection."""
        if not self._closing_ns:
            self._session.fail(code, text)
            self._close(f"{code}: {text}")

    def hang_up(self, end: SessionEnd, text: str) -> None:
        """Closes the connection without a word, as soon as what was written has been sent."""
        self._closing_ns = self._closing_ns or clock.now_ns()
        self._leave(end, text)
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def tick(self, now_ns: int) -> None:
        """Sends the heartbeat and looks at what is overdue."""
        quiet_ns = now_ns - self._heard_ns
        if self._closing_ns:
            if now_ns - self._closing_ns > LINGER_NS:
                self.abort()
        elif self._stranger:
            if now_ns > self._deadline_ns:
                self.fail("timeout", f"no handshake within {limits.HANDSHAKE_TIMEOUT_S:g} s")
        elif quiet_ns > limits.DEAD_PEER_NS:
            log.warning("%s: closed: nothing came for %.0f s", self.name, quiet_ns / 1e9)
            self._leave("silence", "the connection was given up")
            self.abort()
        else:
            if self.run is not None:
                self._desk.watch(self.run, now_ns)
            self.send(Ping(sent_ns=now_ns))

    # What a peer's messages lead to.

    def _take(self, message: Message, at_ns: int) -> None:
        if isinstance(message, Pong):
            if self.run is not None:
                self.run.round_trip(at_ns - message.sent_ns)
        elif isinstance(message, Ack):
            assert self.run is not None  # the session's tables: no Ack before Accepted
            self._desk.acknowledge(self.run, message, at_ns)
        elif isinstance(message, Progress):
            assert self.run is not None
            self._desk.report(self.run, message)
        else:
            if isinstance(message, Stop | TargetFailed | ClientFailed):
                assert self.run is not None
                self._desk.finish(self.run, message, at_ns)  # at once: the connection may be gone in a moment
            request = asyncio.get_running_loop().create_task(self._answer(message))
            self._requests.add(request)
            request.add_done_callback(self._requests.discard)

    async def _answer(self, message: Message) -> None:
        try:
            async with self._turn:
                self.send(await self._desk.answer(self, message))
        except DurabilityError as error:
            self._refuse(error)
        except Exception:
            self._defect()

    def _refuse(self, error: DurabilityError) -> None:
        if self._closing_ns:
            return
        match error:
            case RefusedError(code=code):
                pass
            case AuthenticationError():
                code = "authentication"
            case StoreError():
                code = "store-unavailable"
            case FormatError():
                code = "bad-request"
            case PeerError():
                code = "protocol"
            case _:
                code = "internal"
        self._session.fail(code, str(error))  # where the session refused something, it has queued its own
        self._close(f"{code}: {error}")

    def _defect(self) -> None:
        log.exception("%s: a defect of this tool", self.name)
        self.fail("internal", "a defect of the server; its log says more")

    # Closing.

    def _close(self, reason: str) -> None:
        """Sends what is queued and closes. What the peer still sends is read and thrown away until it has
        read the reason: closing a socket with unread input would reset the connection and lose it."""
        log.warning("%s: closed: %s", self.name, reason)
        self._leave("rst", reason)
        self._write()
        self._closing_ns = clock.now_ns()
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _leave(self, end: SessionEnd, text: str) -> None:
        for request in self._requests - {asyncio.current_task()}:
            request.cancel()
        run, self.run = self.run, None
        if run is not None:
            self._desk.detach(run, self, end, text)

    def _write(self) -> None:
        data = self._session.outgoing()
        if not data or self._transport is None or self._transport.is_closing():
            return
        unsent = self._transport.get_write_buffer_size()
        if unsent > OUTPUT_BYTES_MAX:
            log.warning("%s: closed: it leaves %d bytes unread", self.name, unsent)
            self._leave("rst", f"the client left {unsent} bytes unread")
            self.abort()
            return
        self._transport.write(data)
