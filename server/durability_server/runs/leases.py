"""This server's lease on a shared store, and how servers take runs from each other.

The lease is renewed every `BEAT_S`, and the requests of other servers are answered then. While this server
wants a run of another server, it asks every `ASK_S`, until the holder gives the run up or its lease ends. It
gets a run that a client resumes as soon as the holder has no session with the database. All messages are rows
of the database, so they do not depend on a connection between servers. An SQLite store has no other servers,
so nothing happens here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from durability.errors import RefusedError, StoreError
from durability.units import format_run
from durability_server.store.lease_store import LEASE_MS, LeaseStore, Purpose, WantedRun
from durability_server.store.records import MovedError
from durability_server.store.store_thread import StoreThread

BEAT_S = 0.4  # renewal interval; with a lease of 2 s, a renewal may be late four times
ALONE_BEATS = 25  # after 10 s without the database, clients are told to look for another server
ASK_S = 0.1  # interval of asking for a run, and pause after a failure
ASKED_S = 2 * LEASE_MS / 1e3  # longest time to ask for a run

log = logging.getLogger(__name__)


class Leases:
    """The lease of one server. `give_up` is called with a run that another server wants, and returns whether
    that server gets it. `send_away` is called once when this server has lost the database and other servers
    may have it. `on_revoked` is called whenever the number of revoked clients has risen, until it raises no
    StoreError."""

    def __init__(
        self,
        store: LeaseStore,
        thread: StoreThread,
        *,
        boot_id: str,
        give_up: Callable[[WantedRun], bool],
        send_away: Callable[[], None],
    ) -> None:
        self._store = store
        self._thread = thread
        self._boot_id = boot_id
        self._give_up = give_up
        self._send_away = send_away
        self._address = ""
        self._free: dict[int, int] = {}  # runs to be released, with their epochs
        self._asked: dict[int, tuple[Purpose, asyncio.Future[None]]] = {}  # runs that this server wants
        self._new: set[int] = set()  # runs in `_asked` that were not yet asked for
        self._news = asyncio.Event()
        self._closing = False
        self._revoked = 0  # number of revoked clients that `on_revoked` has handled
        self._telling: asyncio.Task[None] | None = None
        self._beats = 0  # beats since the last renewal
        self.on_revoked: Callable[[], Awaitable[None]] = _nothing
        self.others: tuple[str, ...] = ()  # addresses of the other live servers

    async def begin(self, address: str) -> None:
        """Takes the lease. Clients and servers reach this server at `address`."""
        self._address = address
        if self._store.is_shared:
            with suppress(StoreError):  # the committer reports this error; `work` tries again
                renewal = await self._thread.call(self._store.begin, address, self._boot_id)
                self.others, self._revoked = renewal.others, renewal.revoked

    async def work(self) -> None:
        """Renews the lease, asks for runs and answers other servers until `close`."""
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch())
            await self._work()
            watching.cancel()

    async def _watch(self) -> None:
        """Sends the clients away after `ALONE_BEATS`, even if a database call hangs. It counts beats instead
        of time, so that a process that stood still gets time to renew its lease."""
        while True:
            await asyncio.sleep(BEAT_S)
            self._beats += 1
            if self._beats == ALONE_BEATS and self.others:
                self._send_away()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while not self._closing and self._store.is_shared:
            wait_s = due_s - loop.time()
            if self._asked:
                wait_s = min(wait_s, ASK_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            self._news.clear()
            is_due = loop.time() >= due_s
            if is_due:
                due_s = loop.time() + BEAT_S
            try:
                await self._exchange()
                if is_due:
                    await self._renew()
            except Exception as error:
                if not isinstance(error, StoreError):  # the committer reports StoreError
                    log.exception("a defect of this tool")
                await asyncio.sleep(ASK_S)

    def close(self) -> None:
        """Ends `work`. Calls of `until_free` that still wait raise their error."""
        self._closing = True
        self._news.set()
        if self._telling is not None:
            self._telling.cancel()
        for run in tuple(self._asked):
            self._settle(run, MovedError(run))

    async def end(self) -> None:
        """Ends the lease, which releases every run of this server."""
        if self._store.is_shared:
            with suppress(StoreError):
                await self._thread.call(self._store.end)

    def give_free(self, run: int, epoch: int) -> None:
        """Releases the run, unless this server takes it again."""
        if self._store.is_shared:
            self._free[run] = epoch
            self._news.set()

    async def until_free(self, run: int, purpose: Purpose, held_at: str) -> None:
        """Returns once the server at `held_at` no longer holds the run. Raises RefusedError "run-live" or
        MovedError if it keeps the run."""
        freed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked[run] = (purpose, freed)
        self._new.add(run)
        self._news.set()
        try:
            async with asyncio.timeout(ASKED_S):
                await freed
        except TimeoutError:
            raise MovedError(run, f"is held by the server at {held_at}, which does not give it up") from None
        finally:
            del self._asked[run]
            self._new.discard(run)

    async def _exchange(self) -> None:
        free, self._free = self._free, {}
        if free:
            try:
                await self._thread.call(self._store.give_free, free)
            except StoreError:
                self._free = free | self._free
                raise
        if not self._asked:
            return
        new = {run: self._asked[run][0] for run in self._new}
        waiting = {run: self._asked[run][0] for run in self._asked.keys() - self._new}
        answers = await self._thread.call(self._store.want, new, waiting)
        self._new -= new.keys()
        for run in answers.free:
            self._settle(run, None)
        for run in answers.kept:
            self._settle(run, MovedError(run))

    def _settle(self, run: int, error: RefusedError | None) -> None:
        if run not in self._asked or self._asked[run][1].done():
            return
        purpose, freed = self._asked[run]
        if error is None:
            freed.set_result(None)
        elif purpose == "end":
            freed.set_exception(RefusedError("run-live", run_live(run, "a client of another server")))
        else:
            freed.set_exception(error)

    async def _renew(self) -> None:
        renewal = await self._thread.call(self._store.renew, self._address, self._boot_id)
        self._beats = 0
        if renewal.others != self.others:
            log.info("other servers on the store: %s", ", ".join(renewal.others) or "none")
        self.others = renewal.others
        kept = [wanted.run for wanted in renewal.wanted if not self._give_up(wanted)]
        if kept:
            await self._thread.call(self._store.keep, kept)
        if renewal.revoked != self._revoked and not self._closing and not self._is_telling:
            self._telling = asyncio.get_running_loop().create_task(self._tell_revoked(renewal.revoked))

    @property
    def _is_telling(self) -> bool:
        return self._telling is not None and not self._telling.done()

    async def _tell_revoked(self, revoked: int) -> None:
        """Runs beside the renewals. After a StoreError the next renewal tries again."""
        with suppress(StoreError):
            await self.on_revoked()
            self._revoked = revoked


async def _nothing() -> None:
    """Used before a server sets `on_revoked`: there are no connections."""


def run_live(run: int, where: str) -> str:
    """The reason why a live run cannot be verified."""
    return f"run {format_run(run)} is going on at {where}; stop it first"
