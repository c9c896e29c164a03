"""Limits the requests of one client that are under way at a time, over all its connections. The others wait.

All clients share the threads that do their requests. So a client with many requests waits for itself, and
delays another client by a few requests at most. Long requests of one client run one at a time, because more
at once would not be faster. The number of connections limits how many requests wait. Their memory is limited
here: beyond `LARGE_MAX` a large message is refused, and so is an answer that cannot be sent at once.

A message that takes long to decode is decoded in a thread, one message at a time for all clients. The clients
take turns, so one that sends many such messages waits for itself, while the event loop serves the others. The
thread slows the event loop down, so a client's next turn comes after a pause as long as its last turn.
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

UNDER_WAY_MAX = 8  # requests of one client under way
LARGE_BYTES = 128 << 10  # a larger message is a large message
LARGE_MAX = 16  # large messages of one client that wait for an answer, and large answers being sent
# Requests that may read the whole store, or all evidence of a run.
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
)


@dataclass(slots=True)
class _Client:
    users: int = 0
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(UNDER_WAY_MAX))
    long_turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class _Decoding:
    users: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # held until the end of the client's pause


class Turns:
    """The requests of all clients that are under way or waiting."""

    def __init__(self) -> None:
        self._clients: dict[str, _Client] = {}
        self._large: Counter[str] = Counter()
        self._decoder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decoder")
        self._decoding = asyncio.Lock()  # a fair lock: one message of each client waits for it
        self._to_decode: dict[str, _Decoding] = {}

    @asynccontextmanager
    async def turn(self, client: str, kind: type[Message]) -> AsyncIterator[None]:
        """Waits for the turn of a request of this kind. The request is under way during the block."""
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
        """Waits for the turn of `client` to have a message decoded. The block decodes it."""
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
                mine.users += 1  # the pause counts as a user
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
        """Ends the thread after its current message. No connection is left that could ask for more."""
        self._decoder.shutdown(wait=False, cancel_futures=True)

    async def decoded(self, message: Undecoded) -> Message:
        """Decodes the message in the thread, to be awaited within `decoding`. Raises ProtocolError."""
        return await asyncio.get_running_loop().run_in_executor(self._decoder, message.decode)

    def begin_large(self, client: str) -> None:
        """A large message begins to arrive or to be sent. Raises RefusedError "busy"."""
        if self._large[client] >= LARGE_MAX:
            raise RefusedError(
                "busy", f"this client has {LARGE_MAX} large messages on their way, the maximum; try again"
            )
        self._large[client] += 1

    def end_large(self, client: str) -> None:
        """A large message has been answered or sent, or never will be."""
        self._large[client] -= 1
        if not self._large[client]:
            del self._large[client]
