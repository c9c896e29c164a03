"""The server as the client sees it: one connection, and the link of a run that outlives its connections.

A connection is a thin asyncio shell around `state_machine`: it moves bytes, keeps the heartbeat, and
notices a server that fell silent. The link of a run connects again, for ever and with growing pauses, proves
with the run's secret that it is the same process, and says again what the server has not confirmed. A server
that no longer knows the token is tried for ever as well, and `trouble` says what to do: it may have been
started by mistake with another token file, and giving up would cost the run. The link refuses to go on once
the server says that the run is no longer this client's.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import durability
from durability import limits
from durability.errors import (
    AuthenticationError,
    PeerError,
    ProtocolError,
    RefusedError,
    SetupError,
    UsageError,
)
from durability.formats.packing import Value
from durability.protocol import auth
from durability.protocol.messages import (
    Accepted,
    Ack,
    Arm,
    Armed,
    ClientFailed,
    Credit,
    Message,
    Notice,
    Ping,
    Pong,
    Progress,
    Register,
    Resume,
    Role,
    Stop,
    Stopped,
    TargetFailed,
)
from durability.protocol.state_machine import ClientSession
from durability.units import format_address, parse_address

CONNECT_TIMEOUT_S = 10.0
_BACKOFF_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # pauses between attempts; the last one for ever
# The run is over or somebody else's: trying again cannot help.
FINAL_CODES = frozenset({"fenced", "run-ended", "run-unknown", "version", "bad-request"})

Ending = Stop | TargetFailed | ClientFailed
Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the server is, and how each side knows the other. `fingerprint` is the certificate's SHA-256, if
    pinned."""

    host: str
    port: int
    token: bytes
    tls: ssl.SSLContext | None = None
    fingerprint: bytes | None = None

    def __str__(self) -> str:
        return format_address(self.host, self.port)


def endpoint(server: str, token: bytes, *, ca: Path | None, fingerprint: str | None) -> Endpoint:
    """The endpoint that the command line names: "HOST:PORT", and TLS where a CA file or a fingerprint is
    given.

    Raises UsageError and SetupError.
    """
    host, port = parse_address(server)
    context, pinned = _tls(ca, fingerprint)
    return Endpoint(host=host, port=port, token=token, tls=context, fingerprint=pinned)


def _tls(ca: Path | None, fingerprint: str | None) -> tuple[ssl.SSLContext | None, bytes | None]:
    if ca is not None and fingerprint is not None:
        raise UsageError("give either --tls-ca or --tls-fingerprint, not both")
    if fingerprint is not None:
        try:
            pinned = bytes.fromhex(fingerprint.replace(":", ""))
        except ValueError:
            pinned = b""
        if len(pinned) != hashlib.sha256().digest_size:
            raise UsageError(f"--tls-fingerprint {fingerprint!r} is not a SHA-256: 64 hexadecimal digits")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # the fingerprint says more than any authority
        return context, pinned
    if ca is not None:
        try:
            return ssl.create_default_context(cafile=str(ca)), None
        except (OSError, ssl.SSLError) as error:
            raise SetupError(f"cannot read certificates from {ca}: {error}") from error
    return None, None


class Connection(asyncio.Protocol):
    """One connection to the server; make it with `connect`.

    `rtt_ns` is the latest heartbeat's round trip, 0 before the first. Everything happens in one event loop.
    """

    def __init__(self, endpoint: Endpoint, role: Role) -> None:
        self.endpoint = endpoint
        self.rtt_ns = 0
        self.session = ClientSession(
            role,
            endpoint.token,
            nonce=secrets.token_bytes(auth.NONCE_BYTES),
            software=f"durability {durability.__version__}",
        )
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._opened.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._received: asyncio.Queue[Message | None] = asyncio.Queue()
        self._error: PeerError | None = None
        self._heard_at = self._loop.time()
        self._heartbeat: asyncio.TimerHandle | None = None

    # What the application calls.

    async def opened(self) -> None:
        """Wait for the end of the handshake. Raises PeerError."""
        await self._opened

    @property
    def backlog_bytes(self) -> int:
        """Bytes that the network has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def send(self, message: Message) -> None:
        """Send `message`; lost silently where the connection is closed, which `receive` says."""
        if self._error is None:
            self.session.send(message)
            self._flush()

    async def receive(self) -> Message:
        """The next message of the role. Raises PeerError once the connection is closed."""
        message = await self._received.get()
        if message is None:
            self._received.put_nowait(None)
            raise self._error or PeerError(f"the server at {self.endpoint} closed the connection")
        return message

    async def request(self, message: Message, answer: type[Answer]) -> Answer:
        """Send `message` and wait for its answer. Raises PeerError."""
        self.send(message)
        while True:
            reply = await self.receive()
            if type(reply) is answer:
                return reply
            if not isinstance(reply, Notice):
                raise ProtocolError(f"{answer.__name__} was expected, {type(reply).__name__} came")

    def close(self) -> None:
        """Send what is queued, then close."""
        self._end(PeerError("this side closed the connection"))

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio. Ends at once with PeerError where the certificate's SHA-256 is another."""
        self._transport = cast(asyncio.Transport, transport)
        if self.endpoint.fingerprint is not None:
            tls = self._transport.get_extra_info("ssl_object")
            found = hashlib.sha256(tls.getpeercert(binary_form=True)).digest()
            if not hmac.compare_digest(found, self.endpoint.fingerprint):
                self._end(
                    PeerError(
                        f"the certificate of {self.endpoint} has the SHA-256 {found.hex()}, not the one that"
                        " --tls-fingerprint pins: is it the right server?"
                    )
                )
                return
        self.session.start()
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio. Hands messages on, those before a protocol error included, then ends with it."""
        self._heard_at = self._loop.time()
        error = None
        try:
            messages = self.session.receive(data)
        except PeerError as caught:
            messages, error = self.session.undelivered, caught
        self._flush()
        if error is None and self.session.authenticated and not self._opened.done():
            self._opened.set_result(None)
            self._beat()
        for message in messages:
            if isinstance(message, Pong):
                self.rtt_ns = time.monotonic_ns() - message.sent_ns
            else:
                self._received.put_nowait(message)
        if error is not None:
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio. Whoever waits for an answer gets PeerError."""
        why = f": {exc}" if exc else ""
        self._end(PeerError(f"the connection to the server at {self.endpoint} was lost{why}"))

    def _beat(self) -> None:
        if self._error is not None:
            return
        silent_s = self._loop.time() - self._heard_at
        if silent_s * 1e9 > limits.DEAD_PEER_NS:
            error = PeerError(f"the server at {self.endpoint} has said nothing for {silent_s:.0f} s")
            if self._transport is not None:
                self._transport.abort()
            self._end(error)
            return
        if not self.backlog_bytes:
            self.send(Ping(sent_ns=time.monotonic_ns()))
        self._heartbeat = self._loop.call_later(self.session.heartbeat_ns / 1e9, self._beat)

    def _flush(self) -> None:
        if self._transport is not None:
            data = self.session.outgoing()
            if data:
                self._transport.write(data)

    def _end(self, error: PeerError) -> None:
        """Close for the reason `error`; only the first reason counts."""
        if self._error is None:
            self._error = error
            self._received.put_nowait(None)
            if self._heartbeat is not None:
                self._heartbeat.cancel()
            if not self._opened.done():
                self._opened.set_exception(error)
        if self._transport is not None:
            self._transport.close()


async def connect(endpoint: Endpoint, role: Role) -> Connection:
    """A connection whose handshake is over. Raises PeerError saying what to look at."""
    loop = asyncio.get_running_loop()
    connection = Connection(endpoint, role)
    hostname = "" if endpoint.fingerprint else endpoint.host  # a pinned certificate may have any name
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await loop.create_connection(
                lambda: connection,
                endpoint.host,
                endpoint.port,
                ssl=endpoint.tls,
                server_hostname=hostname if endpoint.tls else None,
            )
        async with asyncio.timeout(limits.HANDSHAKE_TIMEOUT_S):
            await connection.opened()
    except TimeoutError:
        connection.close()
        raise PeerError(
            f"the server at {endpoint} does not answer: is `durability serve` running there, does a firewall"
            " drop packets, and do both sides agree on TLS?"
        ) from None
    except ssl.SSLError as error:
        raise PeerError(f"no TLS with {endpoint}: {error.reason or error}") from error
    except OSError as error:
        raise PeerError(
            f"cannot connect to {endpoint}: {_why_refused(error)}; is `durability serve` running there?"
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _why_refused(error: OSError) -> str:
    """The system's words; asyncio's name the call and, where a host has several addresses, each of them."""
    if error.errno is None:
        numbers = dict.fromkeys(int(number) for number in re.findall(r"\[Errno (\d+)\]", str(error)))
        return ", ".join(map(os.strerror, numbers)) or str(error)
    return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)  # below 0: getaddrinfo's


class RunLink:
    """The session of one run, over as many connections as it takes.

    `on_grants` and `on_notice` are called with what the server says. `trouble` is "" while connected, else
    what is wrong, for people. `ended` is set, and `final` holds the reason, once the server will not have
    this run back.
    """

    def __init__(
        self, *, on_grants: Callable[[tuple[int, ...]], None], on_notice: Callable[[Notice], None]
    ) -> None:
        self._endpoint: Endpoint | None = None
        self._on_grants = on_grants
        self._on_notice = on_notice
        self._connection: Connection | None = None
        self._run = 0
        self._secret = secrets.token_bytes(32)
        self._arm: Arm | None = None
        self._ack: Ack | None = None
        self._ending: Ending | None = None
        self._stop_sent = False
        self._armed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()
        self.final: PeerError | None = None
        self.trouble = ""

    @property
    def rtt_ns(self) -> int:
        return self._connection.rtt_ns if self._connection is not None else 0

    async def connect(self, endpoint: Endpoint) -> None:
        """The first connection; not tried twice. Raises PeerError."""
        self._endpoint = endpoint
        self._connection = await connect(endpoint, "run")

    async def register(
        self, *, run: int, plan: bytes, facts: Mapping[str, Value], label: str, force: bool
    ) -> None:
        """Make the run known; from here on the link keeps itself up. Raises PeerError."""
        assert self._connection is not None
        self._run = run
        register = Register(
            run=run,
            plan=plan,
            facts=facts,
            secret=self._secret,
            label=label,
            force=force,
        )
        await self._connection.request(register, Accepted)
        self._keeper = asyncio.create_task(self._keep())

    async def arm(self, facts: Mapping[str, Value]) -> None:
        """Ask for the run to be armed until the server has it durably. Raises PeerError where the run is
        over."""
        self._arm = Arm(facts=facts)
        self._say(self._arm)
        await self._until(self._armed)

    def acknowledge(self, frontiers: tuple[int, ...], control: int) -> bool:
        """Send an ack if the network takes it at once; False says to come again with newer frontiers."""
        connection = self._connection
        if connection is None or not connection.session.may_send(Ack) or connection.backlog_bytes:
            return False
        self._ack = Ack(frontiers=frontiers, control=control)
        connection.send(self._ack)
        return True

    def report(self, statistics: Mapping[str, Value]) -> None:
        """Send statistics where the network takes them at once; else the next ones say the same and more."""
        connection = self._connection
        if connection is not None and connection.session.may_send(Progress) and not connection.backlog_bytes:
            connection.send(Progress(statistics=statistics))

    async def finish(self, ending: Ending) -> None:
        """End the run and wait until the server has it durably. Raises PeerError where the run is over."""
        self._ending = ending
        self._say(ending)
        await self._until(self._stopped)

    async def close(self) -> None:
        """Give the connection back; the run is ended only by `finish`."""
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _say(self, message: Arm | Ending) -> None:
        connection = self._connection
        if connection is not None and connection.session.may_send(type(message)):
            self._send(connection, message)

    def _send(self, connection: Connection, message: Arm | Ending) -> None:
        self._stop_sent |= isinstance(message, Stop)
        connection.send(message)

    async def _until(self, event: asyncio.Event) -> None:
        await _first_of(event.wait(), self.ended.wait())
        if not event.is_set():
            raise self.final or PeerError("the link to the server was closed")

    async def _keep(self) -> None:
        """Read what the server says; when the connection is lost, make another. Ends with the run."""
        attempt = 0
        while True:
            try:
                if self._connection is None:
                    self._connection = await self._resume()
                self.trouble, attempt = "", 0
                await self._listen(self._connection)
                return
            except RefusedError as error:
                self.trouble = str(error)
                if error.code == "run-ended" and self._stop_sent:
                    self._stopped.set()  # the answer was lost, but the run is as ended as `Stop` wants it
                    return
                if error.code in FINAL_CODES:
                    self.final = error
                    self.ended.set()
                    return
            except AuthenticationError as error:
                self.trouble = (
                    f"{self._endpoint} does not take this run's token any more ({error}); start it with the"
                    " token of before and the run goes on, or stop the run"
                )
            except PeerError as error:
                self.trouble = str(error)
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            await asyncio.sleep(_BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)])
            attempt += 1

    async def _resume(self) -> Connection:
        """A new connection that the server accepted into the run, and on which the unconfirmed was said
        again."""
        assert self._endpoint is not None
        connection = await connect(self._endpoint, "run")
        try:
            client_nonce, server_nonce = connection.session.nonces
            proof = auth.resume_proof(
                self._secret, run=self._run, client_nonce=client_nonce, server_nonce=server_nonce
            )
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                accepted = await connection.request(Resume(run=self._run, proof=proof), Accepted)
        except TimeoutError:
            connection.close()
            raise PeerError(f"the server at {self._endpoint} does not take the run back: no answer") from None
        except BaseException:
            connection.close()
            raise
        self._on_grants(accepted.grants)
        # What was said on the old connection may not have arrived; said twice, it costs nothing.
        if self._arm is not None and not self._armed.is_set():
            self._send(connection, self._arm)
        elif self._ack is not None and not isinstance(self._ending, Stop):
            connection.send(self._ack)  # a stopped run takes no more of them, and `Stop` says all of it
        if self._ending is not None:
            self._send(connection, self._ending)
        return connection

    async def _listen(self, connection: Connection) -> None:
        """Act on what comes until the server has confirmed the end of the run."""
        while True:
            message = await connection.receive()
            match message:
                case Credit():
                    self._on_grants(message.grants)
                case Notice():
                    self._on_notice(message)
                case Armed():
                    self._armed.set()
                case Stopped():
                    self._stopped.set()
                    return
                case _:
                    raise ProtocolError(f"{type(message).__name__} makes no sense to a running client")


async def _first_of(*waits: Awaitable[object]) -> None:
    """Wait for the first of `waits`; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
