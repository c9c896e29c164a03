"""Connections of browsers: their maximum number, and how long one may be idle.

uvicorn speaks HTTP on each connection. Connections are counted at accept. Over the network one address may
have at most half of the places. A connection without a request, or whose answer is not read, is closed after
a while. Data kept for a browser that does not read are bounded, and then its connection is closed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from durability.units import network_of

CONNECTIONS_MAX = 256
_HANDSHAKE_S = 5.0
_IDLE_S = 20.0  # longest time without a request, or with an unread answer; streams have their own limits
_SWEEP_S = 2.0  # interval of looking for idle connections
_UNSENT_BYTES = 64 << 10  # send buffer of a connection; the kernel uses twice as much
_DEAD_MS = 60_000  # time without an acknowledgement after which a connection is closed
_PAUSE_S = 0.1  # pause after a failed accept


class PageListener:
    """Accepts connections on a bound socket; with `tls` only those that speak TLS."""

    def __init__(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        self._socket = listening
        self._tls = tls
        self._protocols: dict[tuple[str, int], _Bounded] = {}
        self._held: Counter[str] = Counter()
        self._connecting: set[asyncio.Task[None]] = set()
        self.streams: set[tuple[str, int]] = set()  # clients with an open stream

    def __len__(self) -> int:
        return self._held.total()

    def abort(self, client: tuple[str, int]) -> None:
        """Closes the connection of a client at once. Unsent data are dropped."""
        protocol = self._protocols.get(client)
        if protocol is not None:
            protocol.transport.abort()

    async def take(self, config: uvicorn.Config, server: uvicorn.Server) -> None:
        """Accepts connections until cancelled."""
        loop = asyncio.get_running_loop()
        self._socket.setblocking(False)
        sweeping = loop.create_task(self._sweep())
        try:
            while True:
                try:
                    accepted, address = await loop.sock_accept(self._socket)
                except OSError:  # no descriptor is left
                    await asyncio.sleep(_PAUSE_S)
                    continue
                place = network_of(address[0])
                if self._is_full(place):
                    accepted.close()
                    continue
                _bound(accepted)
                self._held[place] += 1
                protocol = _Bounded(config, server, self, place)
                task = loop.create_task(self._connect(accepted, protocol))
                self._connecting.add(task)
                task.add_done_callback(self._connecting.discard)
        finally:
            sweeping.cancel()

    def _is_full(self, place: str) -> bool:
        """Whether `place` may have no more connections. On loopback all come from one address, which may use
        all."""
        if len(self) >= CONNECTIONS_MAX:
            return True
        return self._tls is not None and self._held[place] >= CONNECTIONS_MAX // 2

    async def _connect(self, accepted: socket.socket, protocol: _Bounded) -> None:
        loop = asyncio.get_running_loop()
        timeout_s = None if self._tls is None else _HANDSHAKE_S
        try:
            await loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=timeout_s
            )
        except (OSError, asyncio.CancelledError):
            accepted.close()
            self.leave(protocol)

    def enter(self, protocol: _Bounded) -> None:
        """A connection has opened."""
        if protocol.client is not None:
            self._protocols[protocol.client] = protocol

    def leave(self, protocol: _Bounded) -> None:
        """A connection has ended. A second call does nothing."""
        if protocol.client is not None and self._protocols.get(protocol.client) is protocol:
            del self._protocols[protocol.client]
        if protocol.has_place:
            protocol.has_place = False
            self._held[protocol.place] -= 1
            if not self._held[protocol.place]:
                del self._held[protocol.place]

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            for client, protocol in tuple(self._protocols.items()):
                if client not in self.streams and protocol.is_idle(loop.time()):
                    protocol.transport.abort()


class _Bounded(H11Protocol):
    """uvicorn's HTTP on a connection that takes a place."""

    def __init__(
        self, config: uvicorn.Config, server: uvicorn.Server, listener: PageListener, place: str
    ) -> None:
        super().__init__(config, server.server_state, {})
        self.place = place
        self.has_place = True
        self._listener = listener
        self._seen: tuple[Any, bool] = (None, True)
        self._since_s: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._listener.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._listener.leave(self)

    def is_idle(self, now_s: float) -> bool:
        """Whether no request has begun or ended for `_IDLE_S`."""
        seen = (self.cycle, self.cycle is None or self.cycle.response_complete)
        if seen != self._seen or self._since_s is None:
            self._seen, self._since_s = seen, now_s
        return now_s - self._since_s > _IDLE_S


def _bound(accepted: socket.socket) -> None:
    """Limits the data kept for a browser that does not read, and the time until a dead one is noticed."""
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNSENT_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_MS)
