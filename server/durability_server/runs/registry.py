"""The runs that are in memory: those with a session, a request under way or something not yet saved.

There is one `Run` object per run however many ask for it, and none when no one holds it, so memory follows
the number of clients and not the number of runs in the store. A run has one session at most: the newest.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from durability_server.runs.committer import Committer
from durability_server.runs.run import Run
from durability_server.runs.session import Session
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread


class Registry:
    """Loads runs on demand and forgets them when they are saved and no longer held."""

    def __init__(self, store: Store, thread: StoreThread, *, boot_id: str) -> None:
        self._store = store
        self._thread = thread
        self._boot_id = boot_id
        self._runs: dict[int, Run] = {}
        self._holds: Counter[int] = Counter()  # users of each run: its sessions and the requests under way
        self._sessions: dict[int, Session] = {}
        self._loading = asyncio.Lock()  # a run loaded twice at once would have two frontiers
        self.committer = Committer(store, thread, saved=self._saved, outage=self._outage)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs in memory."""
        return tuple(self._runs.values())

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The session of each run that has one."""
        return tuple(self._sessions.values())

    @asynccontextmanager
    async def holding(self, run_id: int) -> AsyncIterator[Run]:
        """The run, kept in memory during the block. Raises RefusedError "run-unknown" and StoreError."""
        async with self._loading:
            run = self._runs.get(run_id)
            if run is None:
                stored = await self._thread.look_up(self._store.load, run_id)
                run = self._runs[run_id] = Run(stored, boot_id=self._boot_id)
            self._holds[run_id] += 1
        try:
            yield run
        finally:
            self._release(run)

    def session_of(self, run: Run) -> Session | None:
        """The session that speaks for `run`."""
        return self._sessions.get(run.id)

    def enter(self, session: Session) -> Session | None:
        """`session` speaks for its run from now on, and holds it in memory. Returns the session that did so
        before; that one must leave as well."""
        older = self.session_of(session.run)
        self._sessions[session.run.id] = session
        self._holds[session.run.id] += 1
        return older

    def leave(self, session: Session) -> None:
        """`session` is over, whether it spoke for its run until now or a newer one does."""
        if self.session_of(session.run) is session:
            del self._sessions[session.run.id]
        self._release(session.run)

    def _release(self, run: Run) -> None:
        self._holds[run.id] -= 1
        self._forget(run)

    def _forget(self, run: Run) -> None:
        if not self._holds[run.id] and not self.committer.is_dirty(run):
            del self._holds[run.id]
            self._runs.pop(run.id, None)

    def _saved(self, run: Run, grants_rose: bool) -> None:
        session = self.session_of(run)
        if grants_rose and session is not None:
            session.grant()
        self._forget(run)

    def _outage(self, failure: str | None) -> None:
        for session in self.sessions:
            session.notice_outage(failure)
