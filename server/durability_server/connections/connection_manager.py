"""All connections: how many there may be, their common heartbeat, and their end.

Strangers, peers that have not shown that they know the token, have few places of their own: when these are
taken, the oldest stranger goes, so no number of them keeps a client out.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING

from durability import limits
from durability_server import clock

if TYPE_CHECKING:
    from durability_server.connections.client_connection import Peer

STRANGERS_MAX = 256
PEERS_MAX = 2048  # beside the strangers
TURNS = 10  # in which the peers get their heartbeat, spread over its interval

log = logging.getLogger(__name__)


class Crowd:
    """The peers of one server."""

    def __init__(self) -> None:
        self._peers: dict[Peer, int] = {}  # with the part of the heartbeat's interval in which it is its turn
        self._entered = 0
        self._strangers: dict[Peer, None] = {}  # those of `_peers` that are strangers, oldest first
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._peers)

    def enter(self, peer: Peer) -> None:
        """A new connection; it is a stranger's."""
        if len(self._strangers) >= STRANGERS_MAX:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.fail("busy", f"{STRANGERS_MAX} newer connections wait to be let in; try again")
            oldest.abort()
        self._peers[peer] = self._entered % TURNS
        self._entered += 1
        self._strangers[peer] = None
        self._empty.clear()

    def recognise(self, peer: Peer) -> None:
        """The stranger has shown that it knows the token."""
        self._strangers.pop(peer, None)
        if len(self._peers) - len(self._strangers) > PEERS_MAX:
            peer.fail("busy", f"the server has {PEERS_MAX} connections and takes no more")

    def leave(self, peer: Peer) -> None:
        """The connection is gone."""
        self._strangers.pop(peer, None)
        self._peers.pop(peer, None)
        if not self._peers:
            self._empty.set()

    async def watch(self) -> None:
        """Gives every peer its heartbeat, for ever; not to all at once: that would hold up what they send."""
        due_ns = clock.now_ns()
        for turn in itertools.cycle(range(TURNS)):
            due_ns = max(due_ns + limits.HEARTBEAT_NS // TURNS, clock.now_ns())
            await asyncio.sleep((due_ns - clock.now_ns()) / 1e9)
            now_ns = clock.now_ns()
            if now_ns - due_ns > limits.SILENCE_NS // 2:
                log.warning("the server stood still for %.1f s", (now_ns - due_ns) / 1e9)
                continue  # what the peers sent meanwhile is still in the sockets: they must not seem silent
            for peer in [peer for peer, its_turn in self._peers.items() if its_turn == turn]:
                self._tick(peer, now_ns)

    def _tick(self, peer: Peer, now_ns: int) -> None:
        try:
            peer.tick(now_ns)
        except Exception:
            log.exception("%s: a defect of this tool", peer.name)
            peer.abort()

    async def disperse(self, grace_s: float) -> None:
        """Closes all connections; those that do not take what was sent to them within `grace_s` are cut."""
        for peer in tuple(self._peers):
            peer.hang_up("server-down", "the server was stopped")
        try:
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        except TimeoutError:
            for peer in tuple(self._peers):
                peer.abort()
            await self._empty.wait()
