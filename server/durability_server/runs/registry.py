"""The runs that are in memory: those with a connection, a request under way or something not yet saved.

There is one `Run` object per run however many ask for it, and none when nobody needs it, so memory follows
the number of clients and not the number of runs in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from durability_server.runs.committer import Committer
from durability_server.runs.run import Run
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread


class Registry:
    """Loads runs on demand and forgets them when they are saved and no longer held."""

    def __init__(self, store: Store, thread: StoreThread, *, boot_id: str) -> None:
        self._store = store
        self._thread = thread
        self._boot_id = boot_id
        self._runs: dict[int, Run] = {}
        self._loading = asyncio.Lock()  # a run loaded twice at once would have two frontiers
        self.committer = Committer(store, thread, granted=self._granted, outage=self._outage)

    def __iter__(self) -> Iterator[Run]:
        return iter(tuple(self._runs.values()))

    @asynccontextmanager
    async def holding(self, run_id: int) -> AsyncIterator[Run]:
        """The run, kept in memory during the block. Raises RefusedError "run-unknown" and StoreError."""
        async with self._loading:
            run = self._runs.get(run_id)
            if run is None:
                stored = await self._thread.call(self._store.load, run_id)
                run = self._runs[run_id] = Run(stored, boot_id=self._boot_id)
            run.holds += 1
        try:
            yield run
        finally:
            self.release(run)

    def release(self, run: Run) -> None:
        """One user fewer."""
        run.holds -= 1
        self._forget(run)

    def _forget(self, run: Run) -> None:
        if run.holds == 0 and not self.committer.is_dirty(run):
            self._runs.pop(run.id, None)

    def _granted(self, run: Run) -> None:
        if run.peer is not None:
            run.peer.grant(run)
        self._forget(run)

    def _outage(self, failure: str | None) -> None:
        for run in self:
            if run.peer is not None:
                run.peer.notice_outage(failure)
