"""This server among the others on its store: it lives, it takes runs from them, and they from it.

Every `BEAT_S` the lease is renewed, and what the others want of this server is answered. While this server
wants a run that another one holds, it asks `ASK_S` apart: the holder gives it up, or its lease ends. All of
it goes through rows of the database, so nothing is lost with a message or a connection. With an SQLite store
there are no others, and nothing happens here.
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

BEAT_S = 0.4  # of a lease of 2 s: a renewal may come late four times
ALONE_BEATS = 25  # 10 s without the database, after which clients are to look for a server that has it
ASK_S = 0.1
ASKED_S = 2 * LEASE_MS / 1e3  # for which a run is asked for at most

log = logging.getLogger(__name__)


class Leases:
    """The lease of one server. `give_up` is called with a run that another server wants, and says whether it
    gets it; `send_away` when other servers may have the database and this one has not, once until it has it
    again; `on_revoked` whenever more clients were revoked than before, until it does not raise StoreError."""

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
        self._free: dict[int, int] = {}  # runs to be given free, with their epoch
        self._asked: dict[int, tuple[Purpose, asyncio.Future[None]]] = {}  # what this server wants
        self._new: set[int] = set()  # of those, what was never said
        self._news = asyncio.Event()
        self._closing = False
        self._revoked = 0  # how many clients, of which `on_revoked` was told
        self._telling: asyncio.Task[None] | None = None
        self._beats = 0  # since the last renewal
        self.on_revoked: Callable[[], Awaitable[None]] = _nothing
        self.others: tuple[str, ...] = ()  # addresses of the other servers that live

    async def begin(self, address: str) -> None:
        """This server lives from now on, and clients reach it at `address`."""
        self._address = address
        if self._store.is_shared:
            with suppress(StoreError):  # which the committer reports; `work` tries again
                renewal = await self._thread.call(self._store.begin, address, self._boot_id)
                self.others, self._revoked = renewal.others, renewal.revoked

    async def work(self) -> None:
        """Renews the lease, asks and answers until `close`."""
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch())
            await self._work()
            watching.cancel()

    async def _watch(self) -> None:
        """Sends the clients away after `ALONE_BEATS`, also while a call of the database hangs. Beats are
        counted: a process that stood still gets the time to renew its lease."""
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
                if not isinstance(error, StoreError):  # which the committer reports
                    log.exception("a defect of this tool")
                await asyncio.sleep(ASK_S)

    def close(self) -> None:
        """Lets `work` end; what this server wants it does not get."""
        self._closing = True
        self._news.set()
        if self._telling is not None:
            self._telling.cancel()
        for run in tuple(self._asked):
            self._settle(run, MovedError(run))

    async def end(self) -> None:
        """This server lives no more; every run that it held is free."""
        if self._store.is_shared:
            with suppress(StoreError):
                await self._thread.call(self._store.end)

    def give_free(self, run: int, epoch: int) -> None:
        """This server holds the run no more, unless it takes it again."""
        if self._store.is_shared:
            self._free[run] = epoch
            self._news.set()

    async def until_free(self, run: int, purpose: Purpose, held_at: str) -> None:
        """Returns when the server at `held_at` holds the run no more. Raises RefusedError "run-live" or
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
        answers = await self._thread.call(self._store.want, new, self._asked.keys() - self._new)
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
        """The renewal does not wait for it; the next one tries again where it failed."""
        with suppress(StoreError):
            await self.on_revoked()
            self._revoked = revoked


async def _nothing() -> None:
    """No client has a connection here."""


def run_live(run: int, where: str) -> str:
    """Why a run cannot be verified."""
    return f"run {format_run(run)} is going on at {where}; stop it first"
