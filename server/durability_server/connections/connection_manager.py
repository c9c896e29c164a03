"""All connections: how many there may be of those whose client is known, their heartbeat, and their end.

How many may be on their way to that is the listener's to bound.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from typing import Protocol

from durability import limits
from durability.formats.case import SessionEnd
from durability_server import clock
from durability_server.access.caller import Caller

AUTHENTICATED_MAX = 2048
OF_ONE_CLIENT_MAX = 256  # the operator's own are not counted
TURNS = 10  # in which the connections get their heartbeat, spread over its interval

log = logging.getLogger(__name__)


class ManagedConnection(Protocol):
    """What the manager needs of each connection."""

    name: str  # where the client is, for people
    caller: Caller | None  # who that is, from the handshake on

    def tick(self, now_ns: int) -> None:
        """Sends the heartbeat and looks at what is overdue."""

    def fail(self, code: str, text: str) -> None:
        """Tells the client why, and closes the connection."""

    def hang_up(self, end: SessionEnd, text: str) -> None:
        """Closes the connection without a word, as soon as what was written has been sent."""

    def abort(self) -> None:
        """Ends the connection at once."""


class ConnectionManager:
    """The connections of one server."""

    def __init__(self) -> None:
        # With the part of the heartbeat's interval in which it is the connection's turn.
        self._connections: dict[ManagedConnection, int] = {}
        self._entered = 0
        self._authenticated: dict[ManagedConnection, str] = {}  # with the client's id
        self._of_client: Counter[str] = Counter()
        self._revoked: set[str] = set()  # also of whom a connection may still be looked up
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._connections)

    def enter(self, connection: ManagedConnection) -> None:
        """A new connection, of which it is not known whose it is."""
        self._connections[connection] = self._entered % TURNS
        self._entered += 1
        self._empty.clear()

    def authenticated(self, connection: ManagedConnection) -> None:
        """It is known who the client is."""
        assert connection.caller is not None
        client = connection.caller.client
        self._authenticated[connection] = client
        self._of_client[client] += 1
        if client in self._revoked:
            self.revoke(client)
        elif client and self._of_client[client] > OF_ONE_CLIENT_MAX:
            connection.fail(
                "busy", f"this client has {OF_ONE_CLIENT_MAX} connections, the maximum of one client"
            )
        elif len(self._authenticated) > AUTHENTICATED_MAX:
            connection.fail(
                "busy", f"the server has {AUTHENTICATED_MAX} connections, its maximum; try again later"
            )

    def leave(self, connection: ManagedConnection) -> None:
        """The connection is gone."""
        self._connections.pop(connection, None)
        client = self._authenticated.pop(connection, None)
        if client is not None:
            self._of_client[client] -= 1
            if not self._of_client[client]:
                del self._of_client[client]
        if not self._connections:
            self._empty.set()

    def revoke(self, client: str) -> None:
        """This client is no longer known: its connections end."""
        self._revoked.add(client)
        for connection in [one for one, whose in self._authenticated.items() if whose == client]:
            connection.fail("authentication", "the server's operator has revoked this client")

    async def watch(self) -> None:
        """Gives every connection its heartbeat, without end; in turns, so that frames need not wait."""
        due_ns = clock.now_ns()
        for turn in itertools.cycle(range(TURNS)):
            due_ns = max(due_ns + limits.HEARTBEAT_NS // TURNS, clock.now_ns())
            await asyncio.sleep((due_ns - clock.now_ns()) / 1e9)
            now_ns = clock.now_ns()
            if now_ns - due_ns > limits.SILENCE_NS // 2:
                log.warning("the server did not run for %.1f s", (now_ns - due_ns) / 1e9)
                continue  # what was sent meanwhile is still in the sockets: no client must seem silent
            for connection in [one for one, its_turn in self._connections.items() if its_turn == turn]:
                self._tick(connection, now_ns)

    def _tick(self, connection: ManagedConnection, now_ns: int) -> None:
        try:
            connection.tick(now_ns)
        except Exception:
            log.exception("%s: a defect of this tool", connection.name)
            connection.abort()

    async def close(self, grace_s: float) -> None:
        """Closes all connections; those that do not take what was sent to them within `grace_s` are cut."""
        for connection in tuple(self._connections):
            connection.hang_up("server-down", "the server was stopped")
        try:
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        except TimeoutError:
            for connection in tuple(self._connections):
                connection.abort()
            await self._empty.wait()
