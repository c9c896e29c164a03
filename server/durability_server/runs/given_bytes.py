"""How many bytes each client has stored: counted once in the store, then updated as more arrive.

A count reads all rows of a client, so other requests must not wait for it. Statistics, timelines and events
grow during runs and are known only by counting. So the count is repeated now and then, while the last one is
used. A client is not refused because of an old count. All stored data are added, even if the request that
stores them is cancelled.
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

COUNTED_S = 600.0  # age at which a count is repeated; data stored through other servers are not added here
REFUSED_S = 5.0  # age at which a count is repeated before it refuses a client


@dataclass(slots=True)
class _Given:
    total: int
    counted_s: float


class GivenBytes:
    """The bytes that each client has stored, compared with its maximum."""

    def __init__(self, store: Store, thread: StoreThread) -> None:
        self._store = store
        self._thread = thread
        self._of: dict[str, _Given] = {}
        self._counting: dict[str, asyncio.Task[None]] = {}
        self._meanwhile: dict[str, int] = {}  # bytes stored since the present count began, by client

    async def require_left(self, client: str, kind: evidence_rows.Kind) -> None:
        """Raises RefusedError "quota" if the client has stored the maximum for more data of this kind. The
        operator's own data are not limited. Raises StoreError if the count fails."""
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
        """Runs `store` in the store's thread. `store` keeps the client's data and returns how many bytes more
        they take. Raises what `store` raises."""
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
