"""One connection to the server: a thin asyncio shell around `secure_stream` and `state_machine`.

A connection moves bytes, sends heartbeats, and detects a server that has gone silent. It never reconnects;
`run_link` does.

A server names the other servers on its store only when a connection begins. A run or an agent lasts for days,
and would keep trying a server that is gone although a server that was started later answers. So
`later_servers` asks at intervals, over another connection that ends at once. It also asks a server that was
the only one so far, because others may have been started since.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import cache
from typing import TypeVar, cast

import durability
from durability import limits
from durability.errors import (
    AuthenticationError,
    DurabilityError,
    FormatError,
    PeerError,
    ProtocolError,
    RefusedError,
    SetupError,
)
from durability.protocol.messages import (
    Message,
    Notice,
    Ping,
    Pong,
    Purpose,
)
from durability.protocol.secure_stream import PlainStream, SecureStream, client_context
from durability.protocol.state_machine import ClientProtocol
from durability.units import format_address, is_address, parse_address
from durability_client.link.credential import remember_servers, with_servers
from durability_client.link.endpoint import Endpoint, short_path
from durability_client.link.first_answer import first_answer
from durability_client.link.host_socket import LOOK, connected_socket, system_words

CONNECT_TIMEOUT_S = 10.0
PATIENCE_S = 0.5  # wait for an answer before the next address is tried, too
# Longest interval between two questions about later servers; the shortest is half of it. The random interval
# spreads clients that started together. A question costs the server 2.4 ms; 900 clients use 2.4 % of a CPU.
LOOK_S = 120.0
_LOOK_AGAIN = "check that `durability serve` still runs there, and the network to it"
_ADD_FORCE = (
    "Add --force to that line: this machine has a credential, which `durability join` replaces only then"
)
_SAID = (AuthenticationError, RefusedError)
Answer = TypeVar("Answer", bound=Message)


class Connection(asyncio.Protocol):
    """One connection to the server, made by `connect`. All methods run in one event loop.

    `rtt_ns`: round-trip time of the latest heartbeat, 0 before the first. `live`: known addresses of running
    servers on the store; the first is this server's.
    """

    def __init__(self, endpoint: Endpoint, purpose: Purpose) -> None:
        self.endpoint = endpoint
        self.rtt_ns = 0
        self.live: tuple[str, ...] = ()
        self.session = ClientProtocol(
            purpose,
            client=endpoint.client,
            secret=endpoint.secret,
            software=f"durability {durability.__version__}",
        )
        self.session.start()  # here, because asyncio would swallow its errors later
        self._secure = None if endpoint.local is not None else _secure_stream(endpoint.fingerprint)
        self._stream = self._secure or PlainStream()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._opened.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._received: asyncio.Queue[Message | None] = asyncio.Queue()
        self._error: PeerError | None = None
        self._heard_at = self._loop.time()
        self._heartbeat: asyncio.TimerHandle | None = None

    # Methods for the application.

    async def opened(self) -> None:
        """Wait for the end of the handshake. Raises PeerError."""
        await self._opened

    @property
    def server_fingerprint(self) -> bytes:
        """The SHA-256 of the server's certificate; b"" on a local socket."""
        return self._secure.certificate_fingerprint if self._secure is not None else b""

    @property
    def backlog_bytes(self) -> int:
        """Bytes that wait in this process for the network."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def send(self, message: Message) -> None:
        """Send `message`. On a closed connection it is lost silently, but `receive` then raises PeerError."""
        if self._error is None:
            self.session.send(message)
            self._flush()
            if self._stream.failure is not None:
                self._end(self._stream.failure)

    async def receive(self) -> Message:
        """The next message for the application. Raises PeerError once the connection is closed."""
        message = await self._received.get()
        if message is None:
            self._received.put_nowait(None)
            assert self._error is not None
            raise self._error
        return message

    async def request(self, message: Message, answer: type[Answer]) -> Answer:
        """Send `message` and wait for its answer. Raises PeerError."""
        self.send(message)
        while True:
            reply = await self.receive()
            if type(reply) is answer:
                return reply
            if not isinstance(reply, Notice):
                raise ProtocolError(f"expected {answer.__name__}, found {type(reply).__name__}")

    def close(self) -> None:
        """Send what is queued, then close."""
        self._end(PeerError("this side closed the connection"))

    def learn(self, address: tuple[str, int], others: Sequence[str]) -> None:
        """Add to `endpoint` the server's `address` and the addresses of `others`, running servers on its
        store."""
        self.live = (format_address(*address), *filter(is_address, others))
        known = (self.live[0], *(format_address(*one) for one in self.endpoint.addresses))
        addresses = filter(is_address, with_servers(known, self.live))
        self.endpoint = replace(self.endpoint, addresses=tuple(map(parse_address, addresses)))

    def remember(self) -> None:
        """Store the addresses of running servers in the credential, so that later commands find a server when
        another is gone. Waits for the disk. Raises SetupError and FormatError."""
        if self.endpoint.credential is not None and len(self.live) > 1:
            remember_servers(self.endpoint.credential, self.live, client=self.endpoint.client)

    # Methods for asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast(asyncio.Transport, transport)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio. Delivers messages, also those before a protocol error. That error then closes
        the connection."""
        self._heard_at = self._loop.time()
        error: PeerError | None = None
        try:
            messages = self.session.receive(self._stream.receive(data))
        except PeerError as caught:
            messages, error = self.session.undelivered, caught
        self._flush()
        error = error or self._stream.failure
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
        """Called by asyncio. Calls that wait for an answer raise PeerError."""
        why = "the other end closed it"
        if exc is not None:
            why = system_words(exc) if isinstance(exc, OSError) else str(exc)
        self._end(
            PeerError(f"the connection to the server at {self.endpoint} was lost: {why}; {_LOOK_AGAIN}")
        )

    def _beat(self) -> None:
        if self._error is not None:
            return
        silent_s = self._loop.time() - self._heard_at
        elsewhere = self.session.purpose == "run" and len(self.endpoint.addresses) > 1
        if silent_s * 1e9 > (limits.LEFT_PEER_NS if elsewhere else limits.DEAD_PEER_NS):
            error = PeerError(
                f"the server at {self.endpoint} has been silent for {silent_s:.0f} s; {_LOOK_AGAIN}"
            )
            if self._transport is not None:
                self._transport.abort()
            self._end(error)
            return
        if not self.backlog_bytes:
            self.send(Ping(sent_ns=time.monotonic_ns()))
        self._heartbeat = self._loop.call_later(limits.CLIENT_PING_NS / 1e9, self._beat)

    def _flush(self) -> None:
        if self._transport is not None:
            said = self.session.outgoing()
            if said:
                self._stream.send(said)
            data = self._stream.outgoing()
            if data:
                self._transport.write(data)

    def _end(self, error: PeerError) -> None:
        """Close the connection because of `error`. Only the first reason counts."""
        if self._error is None:
            self._error = error
            self._received.put_nowait(None)
            if self._heartbeat is not None:
                self._heartbeat.cancel()
            if not self._opened.done():
                self._opened.set_exception(error)
        if self._transport is not None:
            self._transport.close()


async def connect(endpoint: Endpoint, purpose: Purpose, *, remember: bool = True) -> Connection:
    """Connect to the first address where a server answers, and wait for the end of the handshake.

    The next address is tried when one fails, or has not answered for `PATIENCE_S`. The connection's
    `endpoint` has this address first, then those of other running servers. `remember`: store these in the
    credential, too, which may wait for the disk. Raises PeerError, whose text says what to check, and
    FormatError for a client's id or secret that is too long.
    """
    address: tuple[str, int] | None
    if len(endpoint.addresses) > 1:
        address, connection = await _first(endpoint, purpose)
    else:
        address = next(iter(endpoint.addresses), None)
        connection = await _connect(endpoint, purpose, address)
    if address is not None:
        connection.learn(address, connection.session.welcome.servers)
        if remember:
            with suppress(SetupError, FormatError):  # the command needs only the connection
                connection.remember()
    return connection


@contextmanager
def later_servers(connection: Connection, remember: Callable[[], None] | None = None) -> Iterator[None]:
    """During the block, add to `connection.endpoint` the addresses of servers that are started later. Does
    nothing on a local socket. `remember` is called at the start and after each question to the server, and
    must not wait for the disk."""
    if connection.endpoint.local is not None:
        yield
        return
    looking = asyncio.create_task(_look(connection, remember))
    try:
        yield
    finally:
        looking.cancel()


async def _look(connection: Connection, remember: Callable[[], None] | None) -> None:
    while True:
        if remember is not None:
            remember()
        await asyncio.sleep(random.uniform(LOOK_S / 2, LOOK_S))
        here = connection.endpoint.addresses[0]
        alone = replace(connection.endpoint, addresses=(here,))
        with suppress(DurabilityError), closing(await connect(alone, "query", remember=False)) as asked:
            connection.learn(here, asked.session.welcome.servers)


async def _first(endpoint: Endpoint, purpose: Purpose) -> tuple[tuple[str, int], Connection]:
    """The first connection, and its address. If all fail, raises the first error that came from a server,
    else the first error of all."""

    async def attempt(address: tuple[str, int]) -> Connection:
        return await _connect(endpoint, purpose, address)

    failures: list[tuple[tuple[str, int], PeerError]] = []
    found = await first_answer(
        endpoint.addresses,
        attempt,
        patience_s=PATIENCE_S,
        failure=PeerError,
        failures=failures,
        discard=Connection.close,
    )
    if found is not None:
        return found
    raise next((error for _, error in failures if isinstance(error, _SAID)), failures[0][1])


async def _connect(endpoint: Endpoint, purpose: Purpose, address: tuple[str, int] | None) -> Connection:
    loop = asyncio.get_running_loop()
    connection = Connection(endpoint, purpose)
    where = format_address(*address) if address is not None else str(endpoint)
    try:
        if address is not None:
            narrow = purpose == "run"
            connected = await connected_socket(*address, narrow=narrow, timeout_s=CONNECT_TIMEOUT_S)
            await loop.create_connection(lambda: connection, sock=connected)
        else:
            assert endpoint.local is not None
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                with short_path(endpoint.local) as path:
                    await loop.create_unix_connection(lambda: connection, path)
        async with asyncio.timeout(limits.HANDSHAKE_TIMEOUT_S):
            await connection.opened()
    except TimeoutError:
        connection.close()
        raise PeerError(
            f"the server at {where} does not answer: {LOOK} and that no firewall drops packets"
        ) from None
    except ProtocolError as error:
        connection.close()
        raise ProtocolError(f"{where}: {error}") from error
    except AuthenticationError as error:
        connection.close()
        if "durability join" not in str(error) and "durability clients invite" not in str(error):
            raise
        # The server says which command to type, but does not know that this machine has a credential.
        raise AuthenticationError(f"{error}. {_ADD_FORCE}") from error
    except RefusedError as error:
        connection.close()
        if error.code != "forbidden" or "durability clients invite" not in str(error):
            raise
        raise RefusedError(error.code, f"{error}. {_ADD_FORCE}") from error
    except OSError as error:
        raise PeerError(f"cannot connect to {where}: {system_words(error)}; {LOOK}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _secure_stream(fingerprint: bytes) -> SecureStream:
    return SecureStream.client_end(_context(), fingerprint=fingerprint)


@cache
def _context() -> ssl.SSLContext:
    return client_context()
