"""How many requests of one client are under way at a time, over all its connections; the others wait.

What a client asks is done by threads that all clients share. So one that asks much waits for itself, and
another client waits for a few of its requests at most. Long questions of one client go one by one: more at a
time would not be answered sooner. The number of connections bounds how many wait; what they hold in memory
meanwhile is bounded here: a large message beyond `LARGE_MAX` is refused, and so is an answer that would not
be sent at once.

What takes long to decode is decoded in a thread, one message at a time for all clients, and the clients take
turns: whoever sends many such messages waits for itself, and the event loop serves all others meanwhile. The
thread slows the event loop down, so a client's next turn comes after a rest as long as its last one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from durability.errors import RefusedError
from durability.protocol.messages import (
    Evidence,
    Examine,
    Export,
    Fetch,
    FetchResult,
    KeepResult,
    List,
    ListClaims,
    ListClients,
    ListResults,
    Message,
    Show,
    ShowCampaign,
)
from durability.protocol.state_machine import Undecoded

UNDER_WAY_MAX = 8  # requests of one client
LARGE_BYTES = 128 << 10  # a message with more is large
LARGE_MAX = 16  # large messages of one client, until they are answered, and answers that are being sent
LONG: tuple[type[Message], ...] = (
    Evidence,
    Examine,
    Export,
    Fetch,
    FetchResult,
    KeepResult,
    List,
    ListClaims,
    ListClients,
    ListResults,
    Show,
    ShowCampaign,
)  # may read all that the store has, or all evidence of a run


@dataclass(slots=True)
class _Client:
    users: int = 0
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(UNDER_WAY_MAX))
    long_turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class _Decoding:
    users: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # held until the client has rested


class Turns:
    """The requests of all clients that are under way or wait."""

    def __init__(self) -> None:
        self._clients: dict[str, _Client] = {}
        self._large: Counter[str] = Counter()
        self._decoder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decoder")
        self._decoding = asyncio.Lock()  # fair: one message of each client waits for it
        self._to_decode: dict[str, _Decoding] = {}

    @asynccontextmanager
    async def turn(self, client: str, kind: type[Message]) -> AsyncIterator[None]:
        """Waits for the turn of a request of this kind, which is under way during the block."""
        mine = self._clients.setdefault(client, _Client())
        mine.users += 1
        try:
            if issubclass(kind, LONG):
                async with mine.long_turn, mine.turns:
                    yield
            else:
                async with mine.turns:
                    yield
        finally:
            mine.users -= 1
            if not mine.users:
                del self._clients[client]

    @asynccontextmanager
    async def decoding(self, client: str) -> AsyncIterator[None]:
        """Waits until it is the turn of `client` to have a message decoded, within the block."""
        mine = self._to_decode.setdefault(client, _Decoding())
        mine.users += 1
        loop = asyncio.get_running_loop()
        try:
            await mine.turn.acquire()
            took_s = 0.0
            try:
                async with self._decoding:
                    began_s = loop.time()
                    try:
                        yield
                    finally:
                        took_s = loop.time() - began_s
            finally:
                mine.users += 1  # the rest is one
                loop.call_later(took_s, self._rested, client, mine)
        finally:
            self._left(client, mine)

    def _rested(self, client: str, mine: _Decoding) -> None:
        mine.turn.release()
        self._left(client, mine)

    def _left(self, client: str, mine: _Decoding) -> None:
        mine.users -= 1
        if not mine.users:
            del self._to_decode[client]

    def close(self) -> None:
        """Ends the thread, after what it decodes now. No connection is left that asks for more."""
        self._decoder.shutdown(wait=False, cancel_futures=True)

    async def decoded(self, message: Undecoded) -> Message:
        """The message, to be asked for within `decoding`. Raises ProtocolError."""
        return await asyncio.get_running_loop().run_in_executor(self._decoder, message.decode)

    def begin_large(self, client: str) -> None:
        """A large message begins to come, or to be sent. Raises RefusedError "busy"."""
        if self._large[client] >= LARGE_MAX:
            raise RefusedError(
                "busy", f"this client has {LARGE_MAX} large messages on their way, the maximum; try again"
            )
        self._large[client] += 1

    def end_large(self, client: str) -> None:
        """It has been answered or sent, or never will be."""
        self._large[client] -= 1
        if not self._large[client]:
            del self._large[client]
