"""How much each client has given: counted in the store once, then added up as more comes.

To count it means to go through all that a client has in the store, which others must not wait for. What grows
by itself while runs go on (statistics, timelines, events) is known only by counting, so it is counted again
now and then, while the last count holds. Refuses nobody by an old count, and lets nobody give uncounted what
is stored: whoever gives it may be gone by then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from durability.errors import RefusedError
from durability_server.store import evidence_rows
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread

COUNTED_S = 600.0  # after which it is counted again; other servers on the store add to it unseen
REFUSED_S = 5.0  # the same where a client would be refused


@dataclass(slots=True)
class _Given:
    total: int
    counted_s: float


class GivenBytes:
    """The bytes that each client has given, and how many it may give."""

    def __init__(self, store: Store, thread: StoreThread) -> None:
        self._store = store
        self._thread = thread
        self._of: dict[str, _Given] = {}
        self._counting: dict[str, asyncio.Task[None]] = {}
        self._meanwhile: dict[str, int] = {}  # given since the count that is under way began

    async def require_left(self, client: str, kind: evidence_rows.Kind) -> None:
        """Raises RefusedError "quota" where the client has given as much as one may that gives more of this
        kind (the operator's own are not counted); and StoreError where that cannot be known."""
        if not client:
            return
        most = evidence_rows.bytes_max(kind)
        given = self._of.get(client)
        age_s = time.monotonic() - given.counted_s if given is not None else 0.0
        if given is None or (given.total >= most and age_s > REFUSED_S):
            await asyncio.shield(self._count(client))
            given = self._of[client]
        elif age_s > COUNTED_S:
            self._count(client)
        if given.total >= most:
            raise RefusedError(
                "quota",
                f"this client has {given.total} bytes of runs, evidence and verdicts here, the maximum of one"
                f" client for more {kind}",
            )

    async def give(self, client: str, store: Callable[[], int]) -> None:
        """Calls `store`, which keeps what the client gives and returns how many bytes more that takes, in the
        store's thread. Raises what it raises."""
        loop = asyncio.get_running_loop()
        await self._thread.call(lambda: loop.call_soon_threadsafe(self._add, client, store()))

    def _add(self, client: str, count: int) -> None:
        if client in self._of:
            self._of[client].total += count
        if client in self._meanwhile:
            self._meanwhile[client] += count

    def _count(self, client: str) -> asyncio.Task[None]:
        counting = self._counting.get(client)
        if counting is None:
            counting = asyncio.get_running_loop().create_task(self._counted(client))
            self._counting[client] = counting
            counting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return counting

    async def _counted(self, client: str) -> None:
        self._meanwhile[client] = 0
        try:
            total = await self._thread.ask(self._store.bytes_of, client)
            self._of[client] = _Given(total + self._meanwhile[client], time.monotonic())
        finally:
            del self._meanwhile[client], self._counting[client]
