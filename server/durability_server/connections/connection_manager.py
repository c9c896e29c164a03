"""All connections: the maximum number of authenticated ones, their heartbeats and their end.

The listener limits the number of connections whose client is not yet known.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection
from heapq import heappop, heappush
from typing import Protocol

from durability import limits
from durability.campaign.definition.settings import DRIVES_MAX
from durability.formats.case import SessionEnd
from durability_server import clock
from durability_server.access.caller import Caller
from durability_server.log_lines import about

AUTHENTICATED_MAX = 2048  # authenticated connections
LOCAL_RESERVED = 64  # more connections for the operator on the server's own machine
# Connections of one client: its campaign runs on all drives of a machine, its agent and some commands. The
# operator's own are not limited. All machines that join by one code share this limit.
OF_ONE_CLIENT_MAX = DRIVES_MAX + 16
OF_ONE_CODE_MAX = 4  # connections of clients that join by one code, because a code is for one client
HEARTBEATS_PER_S = 5_000  # for all connections; with more connections the heartbeat interval rises
STEP_NS = 5_000_000  # interval of checks for due heartbeats
PAUSE_NS = limits.SILENCE_NS // 2  # after a longer pause of the server no client counts as silent
AT_ONCE_NS = 20_000_000  # longest time spent on heartbeats before the event loop serves the clients' input
GROUP_NS = 50_000_000  # longest time that a due heartbeat waits for its group
BETWEEN_READS_NS = 1_000_000  # longest time spent on heartbeats between two reads
UNREAD_NS = limits.SILENCE_NS // 5  # after a longer turn of the event loop only `watch` sends heartbeats
_GOLDEN_RATIO = 0.6180339887  # multiples of it, modulo 1, are spread evenly
_REVOKED = "the server's operator has revoked this client"

log = logging.getLogger(__name__)


def heartbeat_interval_ns(connections: int) -> int:
    """The heartbeat interval of one client if the server has this many connections."""
    return max(limits.HEARTBEAT_NS, connections * 1_000_000_000 // HEARTBEATS_PER_S)


def _connections_max(caller: Caller) -> int:
    """Maximum number of connections of the client, or of all clients that show the caller's code."""
    return OF_ONE_CODE_MAX if caller.invitation and not caller.of_machines else OF_ONE_CLIENT_MAX


class ManagedConnection(Protocol):
    """The part of a connection that the manager uses."""

    name: str  # address of the client, for people
    caller: Caller | None  # identity of the client, None before the handshake ends

    def tick(self, now_ns: int, interval_ns: int) -> None:
        """Sends a heartbeat and checks for time-outs. The next heartbeat is due in `interval_ns`."""

    def stood_still(self, until_ns: int, pause_ns: int) -> None:
        """The server did not run for `pause_ns` until `until_ns`. This pause is not silence of the client."""

    def fail(self, code: str, text: str) -> None:
        """Tells the client why, and closes the connection."""

    def hang_up(self, end: SessionEnd, text: str) -> None:
        """Closes the connection without a message to the client, once the written data have been sent."""

    def abort(self) -> None:
        """Ends the connection at once."""


class ConnectionManager:
    """The connections of one server."""

    def __init__(self) -> None:
        self._connections: set[ManagedConnection] = set()
        # A heap: when each connection gets its next heartbeat, a number that no other has, the connection.
        self._due: list[tuple[int, int, ManagedConnection]] = []
        self._entered = 0  # connections so far
        self.ran_ns = 0  # when the server is known to have run last, 0 before `watch`
        self._authenticated: dict[ManagedConnection, str] = {}  # with the holder of each connection
        self._of_holder: Counter[str] = Counter()
        self._revoked: set[str] = set()  # kept: a look-up of such a client may be under way
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def interval_ns(self) -> int:
        """The heartbeat interval of each connection."""
        return heartbeat_interval_ns(len(self._connections))

    def enter(self, connection: ManagedConnection) -> None:
        """A new connection whose client is not yet known."""
        self._connections.add(connection)
        self._entered += 1
        # Heartbeats of many connections at the same moment would be a burst that delays the last of them.
        first_ns = int(self._entered * _GOLDEN_RATIO % 1 * self._step_ns)
        heappush(self._due, (clock.now_ns() + first_ns, self._entered, connection))
        self._empty.clear()

    def authenticated(self, connection: ManagedConnection) -> None:
        """The client of the connection is known now. Ends the connection if it is revoked or one too many."""
        assert connection.caller is not None
        caller = connection.caller
        holder = caller.holder
        self._authenticated[connection] = holder
        self._of_holder[holder] += 1
        if holder in self._revoked:
            connection.fail("authentication", _REVOKED)
        elif not caller.is_local and self._of_holder[holder] > _connections_max(caller):
            whose = "join code" if caller.invitation else "client"
            connection.fail(
                "busy", f"this {whose} has {_connections_max(caller)} connections, the maximum of one {whose}"
            )
        elif len(self._authenticated) > AUTHENTICATED_MAX + (LOCAL_RESERVED if caller.is_local else 0):
            connection.fail(
                "busy", f"the server has {AUTHENTICATED_MAX} connections, its maximum; try again later"
            )

    def leave(self, connection: ManagedConnection) -> None:
        """The connection has ended."""
        self._connections.discard(connection)
        holder = self._authenticated.pop(connection, None)
        if holder is not None:
            self._of_holder[holder] -= 1
            if not self._of_holder[holder]:
                del self._of_holder[holder]
        if not self._connections:
            self._empty.set()

    def revoke(self, clients: Collection[str]) -> None:
        """Ends the connections of these revoked clients. `clients` may have all clients that were ever
        revoked. The new ones cost one pass over the connections together, and known ones cost nothing."""
        new = set(clients) - self._revoked
        if not new:
            return
        self._revoked |= new
        for connection in [one for one, whose in self._authenticated.items() if whose in new]:
            connection.fail("authentication", _REVOKED)

    async def watch(self) -> None:
        """Gives every connection its heartbeats. Never returns."""
        self.ran_ns = clock.now_ns()
        while True:
            await asyncio.sleep(STEP_NS / 1e9)
            now_ns = clock.now_ns()
            more = not self._stood_still(now_ns)
            while more and self._is_group_due(now_ns):
                more = self._serve_due(now_ns, AT_ONCE_NS)
                if self._stood_still(clock.now_ns()):
                    break
                await asyncio.sleep(0)

    def serve_between_reads(self, now_ns: int) -> None:
        """Sends due heartbeats for a moment. A connection calls this after it has read. With many busy
        clients the event loop reads for a tenth of a second before `watch` has its turn."""
        # `ran_ns` stays: frames that the event loop reads in the same turn may have waited since then. If
        # that was long ago, a client would seem silent whose frames are still to be read.
        if now_ns - self.ran_ns < UNREAD_NS and self._is_group_due(now_ns):
            self._serve_due(now_ns, BETWEEN_READS_NS)

    @property
    def _group_ns(self) -> int:
        """How long a due heartbeat may wait, so that with many connections heartbeats and their answers come
        in groups: one by one each would wake up both ends."""
        interval_ns = self.interval_ns
        return min(interval_ns // 8, GROUP_NS) if interval_ns > limits.HEARTBEAT_NS else 0

    @property
    def _step_ns(self) -> int:
        """Time until the next heartbeat is due, so that it leaves within the interval with its group."""
        return self.interval_ns - self._group_ns

    def _is_group_due(self, now_ns: int) -> bool:
        if not self._due or self._due[0][0] > now_ns:  # as after most reads
            return False
        return self._due[0][0] + self._group_ns <= now_ns

    def _stood_still(self, now_ns: int) -> bool:
        """Whether the server did not run for a while before `now_ns`. Then no client may count as silent,
        because its frames are still in the sockets, and it got no heartbeat."""
        pause_ns, self.ran_ns = now_ns - self.ran_ns, now_ns
        if pause_ns <= PAUSE_NS:
            return False
        log.warning("the server did not run for %.1f s", pause_ns / 1e9)
        for connection in self._connections:
            connection.stood_still(now_ns, pause_ns)
        return True

    def _serve_due(self, until_ns: int, at_once_ns: int) -> bool:
        """Sends heartbeats due until `until_ns`, oldest first, for `at_once_ns` or a little longer. Stops if
        the server has stood still. Returns whether more are due."""
        interval_ns = self.interval_ns
        step_ns = self._step_ns
        begun_ns = now_ns = clock.now_ns()
        while self._due and self._due[0][0] <= until_ns and now_ns - self.ran_ns <= PAUSE_NS:
            if now_ns - begun_ns > at_once_ns:
                return True
            due_ns, number, connection = heappop(self._due)
            if connection in self._connections:
                self._tick(connection, now_ns, interval_ns)
                # Late heartbeats stay apart too: the next ones are due whole steps later, but within one.
                left_out = (now_ns - due_ns) // step_ns
                heappush(self._due, (due_ns + (1 + left_out) * step_ns, number, connection))
            now_ns = clock.now_ns()
        return False

    def _tick(self, connection: ManagedConnection, now_ns: int, interval_ns: int) -> None:
        try:
            connection.tick(now_ns, interval_ns)
        except Exception:
            holder = "" if connection.caller is None else connection.caller.holder
            log.exception("%s: a defect of this tool", connection.name, extra=about(holder))
            connection.abort()

    async def close(self, grace_s: float) -> None:
        """Closes all connections. Aborts those that have not taken their output within `grace_s`."""
        for connection in tuple(self._connections):
            connection.hang_up("server-down", "the server was stopped")
        try:
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        except TimeoutError:
            for connection in tuple(self._connections):
                connection.abort()
            await self._empty.wait()
