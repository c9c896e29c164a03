"""The runs in memory: those with a session, a request under way or unsaved changes.

Each run in memory has exactly one `Run` object, shared by all its users. It is dropped when it has no users
and is saved. So memory grows with the number of clients, and not with the runs in the store. A run has at
most one session: the newest. If several servers share a store, only one has a run in memory to change it. Any
server may read what was last saved.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from durability import limits
from durability.errors import DurabilityError, StoreError
from durability_server import clock
from durability_server.runs.committer import RETRY_S, Committer
from durability_server.runs.leases import Leases
from durability_server.runs.run import Run, was_still
from durability_server.runs.run_reader import RunReader
from durability_server.runs.session import Session
from durability_server.store.joint_reads import JointReads
from durability_server.store.lease_store import Purpose, WantedRun
from durability_server.store.records import MovedError, RunHead
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread


class Registry:
    """Loads runs on demand, and forgets them once they are saved and have no users."""

    def __init__(self, store: Store, thread: StoreThread, *, boot_id: str) -> None:
        self._store = store
        self._thread = thread
        self.boot_id = boot_id
        self._reader = RunReader(store, thread, boot_id=boot_id)
        self._heads = JointReads(thread, store.heads)
        self._runs: dict[int, Run] = {}
        self._holds: Counter[int] = Counter()  # number of users of each run: sessions and requests under way
        self._sessions: dict[int, Session] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}  # one load per run: two would have two frontiers
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
        """The run, kept in memory during the block. Raises StoreError, and RefusedError "run-unknown". If
        another server holds the run and keeps it, raises RefusedError "run-live" or MovedError."""
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
        """The run from memory, else as it was last saved. It is only for reading. Raises StoreError, and
        RefusedError "run-unknown"."""
        run = self._runs.get(run_id)
        return run if run is not None else await self._thread.ask(self._read, run_id)

    async def head(self, run_id: int) -> RunHead:
        """Like `as_it_is`, but only the head of the run."""
        run = self._runs.get(run_id)
        return run.head if run is not None else await self._heads.read(run_id)

    def in_memory(self, run_id: int) -> Run | None:
        """The run for changing it, if it is in memory here."""
        return self._runs.get(run_id)

    def writers_beside(self, run_id: int, client: str) -> int:
        """How many writers the client's other runs in memory here have."""
        runs = self._runs.values()
        return sum(run.plan.writers for run in runs if run.stored.client == client and run.id != run_id)

    async def save_not_live(self, client: str) -> None:
        """Saves the client's runs in memory here that are no longer live and have changed. Raises
        StoreError."""
        mine = [run for run in self._runs.values() if run.stored.client == client]
        runs = [run for run in mine if run.session_end != "live" and self.committer.is_dirty(run)]
        self._holds.update(run.id for run in runs)  # else the commit that saves them would forget them
        try:
            for run in runs:
                with suppress(MovedError):  # another server has it
                    await self.committer.flush(run)
        finally:
            for run in runs:
                self._release(run.id)

    def _read(self, run_id: int) -> Run:
        """Runs in a thread of the store: decoding the timeline of a long run takes a tenth of a second."""
        return Run(self._store.load(run_id), boot_id=self.boot_id)

    def hold(self, run_id: int) -> None:
        """A run in memory here gets no more credit, so its writers stop once they have used up theirs."""
        run = self._runs.get(run_id)
        if run is not None:
            run.held = True

    async def is_still(self, run_id: int) -> bool:
        """Whether no writer of a held run has credit left. Raises RefusedError "run-unknown", FormatError and
        StoreError."""
        was = run_id not in self._runs and await self._thread.ask(self._was_still, run_id)
        run = self._runs.get(run_id)  # its client may have resumed it during the question
        return was if run is None else run.is_still

    def _was_still(self, run_id: int) -> bool:
        return was_still(self._store.load(run_id))

    def has(self, run: Run) -> bool:
        """Whether this `run` object is in memory here, for changing it."""
        return self._runs.get(run.id) is run

    def session_of(self, run: Run) -> Session | None:
        """The session that speaks for `run`."""
        session = self._sessions.get(run.id)
        return session if session is not None and session.run is run else None

    def live_session_of(self, run: Run) -> Session | None:
        """Like `session_of`, but None if no frame has arrived for `limits.SILENCE_NS`. The run is then marked
        as silent, so the caller may end it before the next check for silence."""
        session = self.session_of(run)
        now_ns = clock.now_ns()
        if session is None or now_ns - run.last_receipt_ns <= limits.SILENCE_NS:
            return session
        run.silent(now_ns)
        return None

    def enter(self, session: Session) -> Session | None:
        """`session` speaks for its run from now on and keeps it in memory. Returns the session that did so
        before, which must also `leave`."""
        older = self.session_of(session.run)
        self._sessions[session.run.id] = session
        self._holds[session.run.id] += 1
        return older

    def leave(self, session: Session) -> None:
        """`session` is over, even if a newer session already speaks for its run."""
        if self.session_of(session.run) is session:
            del self._sessions[session.run.id]
        self._release(session.run.id)

    async def _load(self, run_id: int, purpose: Purpose) -> None:
        try:
            while (run := await self._reader.read(run_id)).stored.held_at:
                await self.leases.until_free(run_id, purpose, run.stored.held_at)
            self._runs[run_id] = run
        finally:
            del self._loading[run_id]
        self._forget(run_id)  # the requests that wanted the run may have ended

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
        """Another server has the run, or the store has lost it. Sends the client away to connect again."""
        if self.has(run):
            del self._runs[run.id]
        self._send_away(run)

    def _unfit(self, run: Run) -> None:
        """The store rejects the newest state of the run. Its client continues from the last saved state."""
        session = self.session_of(run)
        if self.has(run):
            del self._runs[run.id]
        if session is not None:
            session.channel.fail("internal", "the server cannot save this run; see its log")
            self._closing.add(task := asyncio.get_running_loop().create_task(self._close(run.id)))
            task.add_done_callback(self._closing.discard)

    async def _close(self, run_id: int) -> None:
        """A run that cannot be saved, and whose client does not resume it, is marked as no longer live. This
        is repeated until the store can be read: a live run cannot be verified."""
        while True:
            try:
                if (await self.as_it_is(run_id)).stored.held_at:  # its client resumed the run at that server
                    return
                async with self.holding(run_id, "resume") as run:
                    if self.session_of(run) is None:
                        run.detached(clock.now_ns(), "rst", "the server could not save what came of the run")
                        self.committer.touch(run)
                return
            except StoreError:
                await asyncio.sleep(RETRY_S)
            except DurabilityError:  # another server has the run, or no server can read it
                return

    def close(self) -> None:
        """The server ends. The next server marks the runs that are still live in the store."""
        for task in self._closing:
            task.cancel()

    def _give_up(self, wanted: WantedRun) -> bool:
        """Another server wants a run. It gets the run once the run is saved and has no users here. It does
        not get a run to end it while this server hears the client."""
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
