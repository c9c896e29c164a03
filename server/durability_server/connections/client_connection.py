"""The connection of one client. It only moves bytes between a socket, TLS and the protocol.

Receipts are stamped as soon as the event loop delivers the bytes, and acknowledgements are recorded at once.
The services identify the client and handle each request that needs the store. They answer one request at a
time, as the protocol's tables require. Any error of a client ends its own connection, with one line in the
log and with a `Failure` if one can be sent. Memory per client is bounded: input by the protocol's frame
limit, output by `OUTPUT_BYTES_MAX` beyond one answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import cast

from durability import errors, limits
from durability.errors import DurabilityError
from durability.formats.case import RESET, SessionEnd
from durability.protocol import messages
from durability.protocol.messages import Message
from durability.protocol.secure_stream import Stream
from durability.protocol.state_machine import DECODED_LATER_BYTES, ServerProtocol, Undecoded
from durability.units import format_address
from durability_server import clock
from durability_server.access.authentication import Authentication
from durability_server.access.caller import Caller
from durability_server.access.client_requests import ClientRequests
from durability_server.access.local_socket import is_operator
from durability_server.campaigns.campaigns import REQUESTS as CAMPAIGN_REQUESTS
from durability_server.campaigns.campaigns import Campaigns
from durability_server.connections.connection_manager import ConnectionManager
from durability_server.connections.silent_peer import SilentPeer
from durability_server.connections.turns import LARGE_BYTES, Turns
from durability_server.log_lines import about
from durability_server.runs.requests import Requests
from durability_server.runs.result_requests import REQUESTS as RESULT_REQUESTS
from durability_server.runs.result_requests import KeptResults
from durability_server.runs.run import Run
from durability_server.runs.session import Session
from durability_server.store.database import UnfitError

INPUT_BYTES_MAX = 1 << 10  # read from one client before others are served: a millisecond of receipts
OUTPUT_BYTES_MAX = 1 << 20  # a client with more unsent output, beside one answer, is dropped
STALLED_S = 60.0  # a client that reads nothing of an answer for this long is dropped
LINGER_NS = 1_000_000_000  # time for a refused client to read the reason

# The failure code that a client gets for an error. The first class that matches counts.
_CODES: Mapping[type[DurabilityError], str] = {
    errors.AuthenticationError: "authentication",
    errors.StoreError: "store-unavailable",
    errors.FormatError: "bad-request",
    errors.PeerError: "protocol",
}

# These messages are recorded at once when they arrive. Their answers only wait for the disk.
_ENDINGS = (messages.Stop, messages.TargetFailed, messages.ClientFailed, messages.DriveSeen)
_LONG_ANSWERS = (
    messages.Campaign,
    messages.CaseFile,
    messages.Clients,
    messages.KeptResult,
    messages.Listing,
    messages.Shown,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that every connection uses."""

    server_id: str
    authentication: Authentication
    client_requests: ClientRequests
    campaigns: Campaigns
    requests: Requests
    kept_results: KeptResults
    turns: Turns
    encode: Callable[[Message], Awaitable[bytes]]  # runs outside the event loop
    others: Callable[[], tuple[str, ...]]  # addresses of the other servers on the store


class ClientConnection(asyncio.BufferedProtocol):
    """The server's side of one connection over `stream`. `local` is true for the local socket. `began` is
    called once the handshake has succeeded or can no longer succeed.

    `caller` is None before the handshake ends. `session` is the session of the run for which the client
    speaks, None before and after that.
    """

    def __init__(
        self,
        services: Services,
        manager: ConnectionManager,
        stream: Stream,
        *,
        local: bool,
        began: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = "?"
        self.caller: Caller | None = None
        self.session: Session | None = None
        self._services = services
        self._manager = manager
        self._stream = stream
        self._local = local
        self._began: Callable[[], None] | None = began
        self._protocol = ServerProtocol(decoded_at_once_bytes=DECODED_LATER_BYTES)
        self._progress: tuple[Undecoded, Run] | None = None  # newest undecoded report, with its run
        self._transport: asyncio.Transport | None = None
        self._view = memoryview(bytearray(INPUT_BYTES_MAX))
        self._large = False  # whether a large message arrives or is answered, or a large answer is sent
        self._answer_bytes = 0  # size of the answer that is being sent, if the client reads it slowly
        self._room = asyncio.Event()  # cleared from `pause_writing` to `resume_writing`
        self._room.set()
        self._answers: set[asyncio.Task[None]] = set()
        self._silent: SilentPeer | None = None  # the silent client's kernel, None while frames arrive
        self._doubted = False  # whether the run becomes silent if the connection ends before the next frame
        self._turn = asyncio.Lock()
        self._agent_answered: dict[str, int] = {}  # argument `answered` of `Campaigns.answer`
        self._closing_ns = 0  # when the connection was refused, 0 for never; later input is discarded
        self._accepted_ns: int | None = None  # when the client was told that it speaks for its run
        self._heard_ns = self._answered_ns = clock.now_ns()
        self._deadline_ns = self._heard_ns + int(limits.HANDSHAKE_TIMEOUT_S * 1e9)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=OUTPUT_BYTES_MAX)
        address = transport.get_extra_info("peername")
        if self._local:
            self.name = "this machine"
        elif address:  # None if the client has already gone
            self.name = format_address(*address[:2])
        self._manager.enter(self)
        if self._local and not is_operator(transport.get_extra_info("socket")):
            self.fail("forbidden", "the local socket is for the user who runs the server, and root")

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes, `INPUT_BYTES_MAX` at most."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` have arrived. Stamps them and handles each complete message."""
        at_ns = clock.now_ns()
        if self._closing_ns:
            return
        try:
            said = self._stream.receive(self._view[:nbytes])
            if said:  # bytes that TLS has not accepted may come from anybody
                self._heard_ns = at_ns
                self._silent = None
                self._doubted = False
                if self.session is not None:
                    self._services.requests.heard(self.session.run, at_ns, ran_ns=self._manager.ran_ns)
            for message in self._protocol.receive(said):
                self._take(message, at_ns)
            if self._stream.failure is not None:
                raise self._stream.failure
            if not self._large and self._protocol.unfinished_bytes > LARGE_BYTES:
                self._begin_large()
        except DurabilityError as error:
            self._refuse(error)
        except Exception:
            self._defect()
        else:
            self._write()
        self._manager.serve_between_reads(at_ns)

    def eof_received(self) -> None:
        """The client's system has closed its side."""
        self._leave("fin", "the client's system closed the connection")

    def pause_writing(self) -> None:
        """More than `OUTPUT_BYTES_MAX` is unsent."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Most of the output has been sent."""
        self._room.set()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended, with `error` or None if it was closed in order."""
        try:
            self._lost(error)
        except Exception:
            log.exception("%s: a defect of this tool", self.name, extra=self._about)
        finally:
            self._manager.leave(self)

    def _lost(self, error: Exception | None) -> None:
        self._has_begun()
        self._end_large()
        if isinstance(error, ConnectionError):
            self._leave("rst", f"{RESET}: {error}")
        elif isinstance(error, OSError):
            self._leave("silence", f"the connection was given up: {error}")
        else:
            self._leave("rst", "the connection was closed here")
        if self.caller is None and not self._closing_ns and not self._local:
            log.info("%s: closed the connection before the handshake", self.name)

    @property
    def _about(self) -> dict[str, str]:
        """Extra fields for log lines about this client."""
        return about("" if self.caller is None else self.caller.holder)

    # Called by the server. An error with one client ends its connection and is not raised to the caller.

    def send(self, message: Message) -> None:
        """Sends `message` if the protocol allows it now, else nothing."""
        if self._closing_ns:
            return
        try:
            if self._protocol.may_send(type(message)):
                self._protocol.send(message)
                self._write()
        except Exception:
            self._defect()

    def fail(self, code: str, text: str) -> None:
        """Tells the client why, and closes the connection."""
        if self._closing_ns:
            return
        try:
            self._protocol.fail(code, text)
            self._close(f"{code}: {text}")
        except Exception:
            log.exception("%s: a defect of this tool", self.name, extra=self._about)
            self.abort()

    def hang_up(self, end: SessionEnd, text: str) -> None:
        """Closes the connection without a message to the client, once the written data have been sent."""
        self._closing_ns = self._closing_ns or clock.now_ns()
        self._leave(end, text)
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Ends the connection at once."""
        self._closing_ns = self._closing_ns or clock.now_ns()
        if self._transport is not None:
            self._transport.abort()

    def stood_still(self, until_ns: int, pause_ns: int) -> None:
        """The server did not run for `pause_ns` until `until_ns`. The times that measure the client's silence
        move forward by that pause. The run's stamps of received frames stay unchanged."""
        self._heard_ns = min(self._heard_ns + pause_ns, until_ns)
        self._answered_ns = min(self._answered_ns + pause_ns, until_ns)
        handshake_ns = int(limits.HANDSHAKE_TIMEOUT_S * 1e9)
        self._deadline_ns = min(self._deadline_ns + pause_ns, until_ns + handshake_ns)

    def tick(self, now_ns: int, interval_ns: int) -> None:
        """Sends a heartbeat and checks for time-outs. The next heartbeat is due in `interval_ns`."""
        quiet_ns = now_ns - self._heard_ns
        if self._closing_ns:
            if now_ns - self._closing_ns > LINGER_NS:
                self.abort()
        elif self.caller is None:
            if now_ns > self._deadline_ns:
                self.fail("timeout", f"no handshake within {limits.HANDSHAKE_TIMEOUT_S:g} s")
        elif quiet_ns > limits.DEAD_PEER_NS:
            log.warning("%s: closed: silent for %.0f s", self.name, quiet_ns / 1e9, extra=self._about)
            self._leave("silence", "the connection was given up")
            self.abort()
        elif (
            self.session is not None
            and quiet_ns < limits.SILENCE_NS
            and now_ns - self._answered_ns > limits.DEAD_PEER_NS
        ):
            # The client sends frames but no answers. So it is unknown which credits arrive, and all are kept.
            self.fail("timeout", f"no heartbeat was answered for {limits.DEAD_PEER_NS / 1e9:.0f} s")
        else:
            if self.session is None:
                self._answered_ns = now_ns
            else:
                run = self.session.run
                if quiet_ns > limits.SILENCE_NS:
                    self._services.requests.look_for_silence(run, now_ns)
                    self._look_at_peer(run, now_ns)
                elif now_ns - run.last_receipt_ns > limits.SILENCE_NS:
                    # The server stood still, so the client gets time to show that it is alive.
                    self._doubted = True
                self._services.requests.watch(run, now_ns, interval_ns)
            if not self._answer_bytes:  # a heartbeat would only wait behind the answer
                self.send(messages.Ping(sent_ns=now_ns))

    def _look_at_peer(self, run: Run, now_ns: int) -> None:
        """Checks the kernel of a silent client: its machine may have lost power, or its process is frozen."""
        if self._silent is None:
            assert self._transport is not None  # the client has sent data before
            self._silent = SilentPeer(self._transport.get_extra_info("socket"))
        alive_ns = self._silent.alive_ns(now_ns)
        if alive_ns is not None:
            self._services.requests.kernel_alive(run, alive_ns)

    # Handling of messages.

    def _take(self, message: Message, at_ns: int) -> None:
        if isinstance(message, messages.Hello):
            self._answer_with(partial(self._welcome, message))
        elif isinstance(message, messages.Pong):
            # Frames of an earlier connection may still be on their way. They are known to have arrived only
            # once the client answers a heartbeat sent after this connection's grants.
            if self._accepted_ns is not None and message.sent_ns >= self._accepted_ns:
                assert self.session is not None
                # An answer to an old heartbeat does not show which newer credits arrived.
                if at_ns - message.sent_ns < limits.DEAD_PEER_NS:
                    self._answered_ns = at_ns
                self.session.run.heartbeat_answered(at_ns, sent_ns=message.sent_ns)
        elif isinstance(message, messages.Ack):
            assert self.session is not None  # the protocol's tables: no Ack before Accepted
            self._services.requests.acknowledge(self.session.run, message, at_ns)
        elif isinstance(message, messages.Progress):
            assert self.session is not None
            self._services.requests.report(self.session.run, message)
        elif isinstance(message, Undecoded):
            self._take_undecoded(message)
        else:
            if isinstance(message, messages.Stop | messages.TargetFailed | messages.ClientFailed):
                assert self.session is not None
                # At once, because the connection may end soon.
                self._services.requests.finish(self.session.run, message, at_ns)
            elif isinstance(message, messages.DriveSeen):
                assert self.session is not None
                self._services.requests.drive_seen(self.session.run, message, at_ns)
            self._answer_with(partial(self._reply, message))

    def _take_undecoded(self, message: Undecoded) -> None:
        if message.kind is not messages.Progress:
            self._answer_with(partial(self._reply_to_undecoded, message))
            return
        assert self.session is not None
        waits = self._progress is not None
        # Only the newest report counts, so at most one waits.
        self._progress = message, self.session.run
        if not waits:
            self._answer_with(self._report_progress)

    async def _report_progress(self) -> None:
        assert self.caller is not None
        while self._progress is not None:
            async with self._services.turns.decoding(self.caller.holder):
                newest = self._progress  # kept until decoded, because the connection may end meanwhile
                try:
                    message = await self._services.turns.decoded(newest[0])
                except DurabilityError:
                    self._progress = None
                    raise
            if self._progress is newest:
                self._progress = None
            self._report(newest[1], message)

    def _report_undecoded(self) -> None:
        """Decodes the last progress report at once, because the connection ends. Its size is bounded."""
        newest, self._progress = self._progress, None
        if newest is None:
            return
        try:
            self._report(newest[1], newest[0].decode())
        except DurabilityError as error:
            log.warning("%s: the last progress is dropped: %s", self.name, error, extra=self._about)

    def _report(self, run: Run, message: Message) -> None:
        assert isinstance(message, messages.Progress)
        # A Stop that arrived meanwhile has newer statistics, and reports after the end do not count.
        if run.finish not in ("stopped", "ended") and not run.lost:
            self._services.requests.report(run, message)

    async def _reply_to_undecoded(self, undecoded: Undecoded) -> None:
        assert self.caller is not None
        async with self._services.turns.decoding(self.caller.holder):
            message = await self._services.turns.decoded(undecoded)
        await self._reply(message)

    def _answer_with(self, work: Callable[[], Awaitable[None]]) -> None:
        answer = asyncio.get_running_loop().create_task(self._work(work))
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)

    def _begin_large(self) -> None:
        assert self.caller is not None  # no message is large before the handshake
        self._services.turns.begin_large(self.caller.holder)
        self._large = True

    def _end_large(self) -> None:
        if self._large and self.caller is not None:
            self._services.turns.end_large(self.caller.holder)
        self._large = False

    async def _work(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            async with self._turn:
                await work()
        except DurabilityError as error:
            self._refuse(error)
        except Exception:
            self._defect()
        if self._protocol.unfinished_bytes <= LARGE_BYTES:
            self._end_large()

    async def _welcome(self, hello: messages.Hello) -> None:
        caller = await self._services.authentication.caller(hello, local=self._local)
        if self._closing_ns:
            return
        self.caller = caller
        if not self._local and caller.name:
            self.name = f"{caller.name} at {self.name}"
        self._protocol.welcome(
            server_id=self._services.server_id,
            name=caller.name,
            role=caller.role,
            servers=_fitting(self._services.others()),
        )
        self._has_begun()
        if hello.purpose == "run" and not self._local and self._transport is not None:
            narrow = self._transport.get_extra_info("socket")
            # A client that is ahead of the server sends only the newest frontier.
            narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.RUN_WINDOW_BYTES)
        self._manager.authenticated(self)
        self._write()

    async def _reply(self, message: Message) -> None:
        if isinstance(message, _ENDINGS):
            self.send(await self._services.requests.answer(self, message))
            return
        assert self.caller is not None  # the protocol's tables: no request before Welcome
        async with self._services.turns.turn(self.caller.holder, type(message)):
            if isinstance(message, messages.ArmRun) and self._is_stopped:
                return  # its later Stop was recorded at once, so there is no run to arm any more
            answer = await self._answer(self.caller, message)
            known = self._protocol.as_known(answer)
            body = await self._services.encode(known) if isinstance(answer, _LONG_ANSWERS) else b""
        if isinstance(answer, messages.Accepted) and self.session is not None:
            self.send(self.session.run.accepted())  # rebuilt, because a commit may have raised the grants
            self._accepted_ns = self._answered_ns = clock.now_ns()
            self.session.run.heartbeat(self._manager.interval_ns)  # the first one is due within that time
        elif not body:
            self.send(known)
        elif not self._closing_ns:
            if len(body) > OUTPUT_BYTES_MAX and not self._large:
                self._begin_large()
            self._protocol.send_encoded(type(answer), body)
            self._write()
            await self._taken(len(body))

    @property
    def _is_stopped(self) -> bool:
        return self.session is not None and self.session.run.finish == "stopped"

    async def _taken(self, answer_bytes: int) -> None:
        """Returns once the client has read most of an answer of this length, however slowly. A client that
        reads nothing for `STALLED_S` is dropped."""
        assert self._transport is not None
        self._answer_bytes = answer_bytes
        while not self._room.is_set():
            before = self._transport.get_write_buffer_size()
            with suppress(TimeoutError):
                async with asyncio.timeout(STALLED_S):
                    await self._room.wait()
            if not self._room.is_set() and self._transport.get_write_buffer_size() >= before:
                self._drop_unread()
                break
        self._answer_bytes = 0

    async def _answer(self, caller: Caller, message: Message) -> Message:
        if isinstance(message, CAMPAIGN_REQUESTS):
            return await self._services.campaigns.answer(caller, message, self._agent_answered)
        if isinstance(message, RESULT_REQUESTS):
            return await self._services.kept_results.answer(caller, message)
        if self._protocol.purpose in ("join", "operate"):
            return await self._services.client_requests.answer(caller, message)
        return await self._services.requests.answer(self, message)

    def _has_begun(self) -> None:
        began, self._began = self._began, None
        if began is not None:
            began()

    def _refuse(self, error: DurabilityError) -> None:
        if self._closing_ns:
            return
        if isinstance(error, errors.RefusedError):
            code = error.code
        else:
            code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), "internal")
        text = str(error)
        if isinstance(error, errors.StoreError) and not self._local:
            # The text may name the database, which only the operator may see.
            log.error("%s: %s", self.name, error, extra=self._about)
            what = "refuses this" if isinstance(error, UnfitError) else "does not work"
            text = f"the server's store {what}; the server's log says more"
        self.fail(code, text)  # sends nothing new if the protocol has queued its own failure

    def _defect(self) -> None:
        log.exception("%s: a defect of this tool", self.name, extra=self._about)
        self.fail("internal", "a defect of the server; see its log")

    # Ending the connection.

    def _close(self, reason: str) -> None:
        """Sends the queued output and closes. Later input is read and discarded until the client has read the
        reason. Closing a socket with unread input would reset the connection and lose the reason."""
        log.warning("%s: closed: %s", self.name, reason, extra=self._about)
        self._leave("rst", reason)
        self._closing_ns = clock.now_ns()
        self._write()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()

    def _leave(self, end: SessionEnd, text: str) -> None:
        for answer in self._answers - {asyncio.current_task()}:
            answer.cancel()
        self._report_undecoded()
        session, self.session = self.session, None
        if session is not None:
            if self._doubted and end != "fin":  # the client can no longer show that it is alive
                self._services.requests.look_for_silence(session.run, clock.now_ns())
            self._services.requests.detach(session, end, text)

    def _write(self) -> None:
        said = self._protocol.outgoing()
        if said:
            self._stream.send(said)
        failure = self._stream.failure
        if failure is not None and not self._closing_ns:  # TLS failed, so the reason cannot be sent
            log.warning("%s: closed: %s", self.name, failure, extra=self._about)
            self._leave("rst", str(failure))
            self.abort()
            return
        data = self._stream.outgoing()
        if not data or self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > OUTPUT_BYTES_MAX + self._answer_bytes:
            self._drop_unread()
            return
        self._transport.write(data)

    def _drop_unread(self) -> None:
        assert self._transport is not None
        unsent = self._transport.get_write_buffer_size()
        log.warning("%s: closed: it leaves %d bytes unread", self.name, unsent, extra=self._about)
        self._leave("rst", f"the client left {unsent} bytes unread")
        self.abort()


def _fitting(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """As many of these addresses as fit `Welcome`."""
    fitting = addresses[: limits.SERVERS_MAX]
    while sum(len(address.encode()) + 2 for address in fitting) >= limits.SERVERS_BYTES_MAX:
        fitting = fitting[:-1]
    return fitting
