"""The runs in memory: those with a session, a request under way or something not yet saved.

There is one `Run` object per run however many ask for it, and none when no one holds it, so memory follows
the number of clients and not the number of runs in the store. A run has one session at most: the newest. Of
several servers on a store one has the run in memory to change it; any may read what it saved last.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from durability import limits
from durability.errors import DurabilityError, StoreError
from durability_server import clock
from durability_server.runs.committer import RETRY_S, Committer
from durability_server.runs.leases import Leases
from durability_server.runs.run import Run, was_still
from durability_server.runs.session import Session
from durability_server.store.lease_store import Purpose, WantedRun
from durability_server.store.records import MovedError, RunHead
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread


class Registry:
    """Loads runs on demand and forgets them when they are saved and no longer held."""

    def __init__(self, store: Store, thread: StoreThread, *, boot_id: str) -> None:
        self._store = store
        self._thread = thread
        self.boot_id = boot_id
        self._runs: dict[int, Run] = {}
        self._holds: Counter[int] = Counter()  # users of each run: its sessions and the requests under way
        self._sessions: dict[int, Session] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}  # a run loaded twice would have two frontiers
        self._closing: set[asyncio.Task[None]] = set()
        self.committer = Committer(
            store, thread, saved=self._saved, lost=self._lost, unfit=self._unfit, outage=self._outage
        )
        self.leases = Leases(
            store.leases, thread, boot_id=boot_id, give_up=self._give_up, send_away=self._send_all_away
        )

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs in memory."""
        return tuple(self._runs.values())

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The session of each run that has one."""
        return tuple(self._sessions.values())

    @asynccontextmanager
    async def holding(self, run_id: int, purpose: Purpose) -> AsyncIterator[Run]:
        """The run, kept in memory during the block. Raises RefusedError "run-unknown", "run-live" or
        MovedError if another server holds it and keeps it, and StoreError."""
        self._holds[run_id] += 1
        try:
            while (run := self._runs.get(run_id)) is None:
                loading = self._loading.get(run_id)
                if loading is None:
                    loading = asyncio.get_running_loop().create_task(self._load(run_id, purpose))
                    self._loading[run_id] = loading
                    loading.add_done_callback(lambda done: done.cancelled() or done.exception())
                await asyncio.shield(loading)
            yield run
        finally:
            self._release(run_id)

    async def as_it_is(self, run_id: int) -> Run:
        """The run as it is in memory here, else as it was saved last, to be read only. Raises RefusedError
        "run-unknown" and StoreError."""
        run = self._runs.get(run_id)
        return run if run is not None else await self._thread.ask(self._read, run_id)

    async def head(self, run_id: int) -> RunHead:
        """The same, of its head alone."""
        run = self._runs.get(run_id)
        return run.head if run is not None else await self._thread.look_up(self._store.head, run_id)

    def in_memory(self, run_id: int) -> Run | None:
        """The run, if it is in memory here, to be changed."""
        return self._runs.get(run_id)

    def writers_beside(self, run_id: int, client: str) -> int:
        """How many writers the other runs of the client have that are in memory here."""
        runs = self._runs.values()
        return sum(run.plan.writers for run in runs if run.stored.client == client and run.id != run_id)

    def _read(self, run_id: int) -> Run:
        """In a thread of the store's: to decode the timeline of a long run takes a tenth of a second."""
        return Run(self._store.load(run_id), boot_id=self.boot_id)

    def hold(self, run_id: int) -> None:
        """The run gets no more credit, if it is in memory here: its writers stop once they have used up what
        they have."""
        run = self._runs.get(run_id)
        if run is not None:
            run.held = True

    async def is_still(self, run_id: int) -> bool:
        """Whether no writer of a run that is held has credit left. Raises RefusedError "run-unknown",
        FormatError and StoreError."""
        was = run_id not in self._runs and await self._thread.ask(self._was_still, run_id)
        run = self._runs.get(run_id)  # its client may have come back meanwhile
        return was if run is None else run.is_still

    def _was_still(self, run_id: int) -> bool:
        return was_still(self._store.load(run_id))

    def has(self, run: Run) -> bool:
        """Whether `run` is in memory here, to be changed."""
        return self._runs.get(run.id) is run

    def session_of(self, run: Run) -> Session | None:
        """The session that speaks for `run`."""
        session = self._sessions.get(run.id)
        return session if session is not None and session.run is run else None

    def live_session_of(self, run: Run) -> Session | None:
        """The same, if something has come from its client lately; else the run is silent from now on: whoever
        asks may end it before the next look for silence."""
        session = self.session_of(run)
        now_ns = clock.now_ns()
        if session is None or now_ns - run.last_receipt_ns <= limits.SILENCE_NS:
            return session
        run.silent(now_ns)
        return None

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
        self._release(session.run.id)

    async def _load(self, run_id: int, purpose: Purpose) -> None:
        try:
            while (run := await self._thread.look_up(self._read, run_id)).stored.held_at:
                await self.leases.until_free(run_id, purpose, run.stored.held_at)
            self._runs[run_id] = run
        finally:
            del self._loading[run_id]
        self._forget(run_id)  # who wanted it may be gone

    def _release(self, run_id: int) -> None:
        self._holds[run_id] -= 1
        self._forget(run_id)

    def _forget(self, run_id: int) -> None:
        if self._holds[run_id]:
            return
        run = self._runs.get(run_id)
        if run is None or not self.committer.is_dirty(run):
            del self._holds[run_id]
            if run is not None:
                del self._runs[run_id]
                self.leases.give_free(run_id, run.epoch)

    def _saved(self, run: Run, grants_rose: bool) -> None:
        session = self.session_of(run)
        if grants_rose and session is not None:
            session.grant()
        if self.has(run):
            self._forget(run.id)

    def _lost(self, run: Run) -> None:
        """Another server has the run; its client finds that one."""
        if self.has(run):
            del self._runs[run.id]
        self._send_away(run)

    def _unfit(self, run: Run) -> None:
        """The store does not take what has come of the run here since it was saved last: its client goes on
        from there."""
        session = self.session_of(run)
        if self.has(run):
            del self._runs[run.id]
        if session is not None:
            session.channel.fail("internal", "the server cannot save this run; see its log")
            self._closing.add(task := asyncio.get_running_loop().create_task(self._close(run.id)))
            task.add_done_callback(self._closing.discard)

    async def _close(self, run_id: int) -> None:
        """Without its client the run is not live. Tried until the store can be read: a run that stays live
        cannot be verified."""
        while True:
            try:
                if (await self.as_it_is(run_id)).stored.held_at:  # its client goes on there
                    return
                async with self.holding(run_id, "resume") as run:
                    if self.session_of(run) is None:
                        run.detached(clock.now_ns(), "rst", "the server could not save what came of the run")
                        self.committer.touch(run)
                return
            except StoreError:
                await asyncio.sleep(RETRY_S)
            except DurabilityError:  # another server has it, or nobody can read it
                return

    def close(self) -> None:
        """The server ends; what is still live in the store is marked by the next one."""
        for task in self._closing:
            task.cancel()

    def _give_up(self, wanted: WantedRun) -> bool:
        """Another server wants a run. It gets it once that is saved and nobody here holds it; but nobody ends
        a run whose client is heard here."""
        run = self._runs.get(wanted.run)
        if run is None:
            if wanted.run not in self._loading:
                self.leases.give_free(wanted.run, wanted.epoch)
            return True
        if wanted.purpose == "end" and self.live_session_of(run) is not None:
            return False
        self._send_away(run)
        run.timeline_wanted = True
        self.committer.touch(run, urgent=True)
        return True

    def _send_away(self, run: Run) -> None:
        session = self.session_of(run)
        if session is not None:
            error = MovedError(run.id)
            session.channel.fail(error.code, str(error))

    def _send_all_away(self) -> None:
        for session in self.sessions:
            session.channel.fail(
                "store-unavailable", "this server has lost its database: look for another server"
            )

    def _outage(self, failure: str | None) -> None:
        for session in self.sessions:
            session.notice_outage(failure is not None)
