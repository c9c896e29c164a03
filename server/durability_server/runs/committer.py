"""Group commits: every changed run in one transaction, then credit to each for what is durable now.

A commit follows the one before it after `limits.COMMIT_INTERVAL_NS`, or at once when a writer has used up
half of its credit, so that small targets are not slowed to the interval. When the database fails, nothing is
granted and nothing is given up: the frontiers stay in memory, the clients are told, and the commit is tried
again until it succeeds. Of a run that another server has taken, nothing is saved and nothing granted. A run
that cannot be saved keeps no other from its credit: it is set aside, and the others are saved without it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import ParamSpec

from durability import limits
from durability.errors import StoreError
from durability.units import format_run
from durability_server import clock
from durability_server.runs.run import Run
from durability_server.store.database import UnfitError
from durability_server.store.records import MovedError, RunSnapshot
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread

P = ParamSpec("P")

RETRY_S = 0.25
STUCK_S = 10.0  # for which changes never wait for a commit that is tried
TIMELINE_INTERVAL_NS = 500_000_000
GRANTS_AT_ONCE = 16
TIMELINE_BUDGET_NS = 2_000_000  # of the event loop's time, in one commit

log = logging.getLogger(__name__)


class Committer:
    """Saves runs that were touched, in the store's thread. `saved` gets each run that is durable now and
    whether its grants rose, `lost` each that another server has taken, `unfit` each that cannot be saved;
    `outage` gets the reason when the store fails, None when it works again."""

    def __init__(
        self,
        store: Store,
        thread: StoreThread,
        *,
        saved: Callable[[Run, bool], None],
        lost: Callable[[Run], None],
        unfit: Callable[[Run], None],
        outage: Callable[[str | None], None],
    ) -> None:
        self._store = store
        self._thread = thread
        self._saved = saved
        self._lost = lost
        self._unfit = unfit
        self._outage = outage
        self._dirty: dict[Run, None] = {}
        self._saving: dict[Run, None] = {}
        self._waiting: list[tuple[Run, asyncio.Future[None]]] = []
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()
        self._closing = False
        self._not_before_s = 0.0
        self._touched_s = 0.0  # since when changes wait
        self.failure: str | None = None
        self.commits = 0  # that succeeded, and how long they took together
        self.commits_ns = 0

    def begin_without(self, why: str) -> None:
        """The store cannot be written from the start, because of `why`; it is tried again until it can."""
        self._failed((), StoreError(why))

    def touch(self, run: Run, *, urgent: bool = False) -> None:
        """`run` has changed; it is saved with the next commit, which is soon if `urgent`."""
        if run.lost:
            return
        if not self._dirty:
            self._touched_s = time.monotonic()
        self._dirty[run] = None
        self._changed.set()
        if urgent:
            self._urgent.set()

    def is_dirty(self, run: Run) -> bool:
        """Whether `run` has changes that are not known to be durable."""
        return run in self._dirty or run in self._saving

    @property
    def is_stuck(self) -> bool:
        """Whether changes wait that nothing has tried to save: `work` hangs, or is over."""
        return bool(self._dirty) and not self._saving and time.monotonic() - self._touched_s > STUCK_S

    async def flush(self, run: Run) -> None:
        """Returns when `run` as it is now, timeline included, is durable. Raises StoreError if that fails,
        MovedError if another server has taken it."""
        if run.lost:
            raise MovedError(run.id)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((run, done))
        run.timeline_wanted = True
        self.touch(run, urgent=True)
        await done

    async def flush_patiently(self, run: Run) -> None:
        """As `flush`, for as long as it takes."""
        while True:
            with suppress(StoreError):
                return await self.flush(run)

    async def work(self) -> None:
        """Commits until `close`; the last commit takes in all that was touched before."""
        while not self._closing:
            await self._changed.wait()
            await self._pause()
            await self._commit()
        await self._commit()

    def close(self) -> None:
        """Lets `work` end after one more commit."""
        self._closing = True
        self._changed.set()
        self._urgent.set()

    async def _pause(self) -> None:
        rest_s = self._not_before_s - asyncio.get_running_loop().time()
        if rest_s > 0 and not self._closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._urgent.wait()

    async def _commit(self) -> None:
        self._changed.clear()
        self._urgent.clear()
        self._saving, self._dirty = self._dirty, {}
        waiting, self._waiting = self._waiting, []
        if not self._saving and self.failure is None:
            return
        began_ns = clock.now_ns()
        try:
            snapshots = _snapshots(self._saving)
            lost, unfit = await self._save([one for one in snapshots.values() if one is not None])
        except Exception as error:
            if not isinstance(error, StoreError):
                log.exception("a defect of this tool")
            self._failed(waiting, StoreError(str(error)))
            await asyncio.sleep(0 if self._closing else RETRY_S)
            return
        self.commits += 1
        self.commits_ns += clock.now_ns() - began_ns
        self._not_before_s = asyncio.get_running_loop().time() + limits.COMMIT_INTERVAL_NS / 1e9
        for number, (run, snapshot) in enumerate(snapshots.items(), 1):
            del self._saving[run]
            if snapshot is None or run.id in unfit:
                self._give_up(run, self._unfit)
            elif run.id in lost:
                self._give_up(run, self._lost)
            else:
                _tell(self._saved, run, run.saved(snapshot, clock.now_ns()))
            if number % GRANTS_AT_ONCE == 0:
                await asyncio.sleep(0)  # what the clients send meanwhile is stamped as it comes
        for run, done in waiting:
            if not done.done() and run.lost:
                done.set_exception(MovedError(run.id))
            elif not done.done():
                done.set_result(None)
        if self.failure is not None:
            self.failure = None
            log.info("store %s: works again", self._store.name)
            _tell(self._outage, None)

    async def _save(self, snapshots: Sequence[RunSnapshot]) -> tuple[frozenset[int], frozenset[int]]:
        """Saves these together, or in halves where one of them cannot be saved. The runs that other servers
        have taken, and those that cannot be saved. Raises StoreError."""
        try:
            return await self._thread.call(self._store.save, snapshots), frozenset()
        except Exception as error:
            if not snapshots or (isinstance(error, StoreError) and not isinstance(error, UnfitError)):
                raise
            if len(snapshots) == 1:
                run = snapshots[0].run
                log.exception("run %s cannot be saved", format_run(run))
                return frozenset(), frozenset({run})
        middle = len(snapshots) // 2
        lost, unfit = await self._save(snapshots[:middle])
        more_lost, more_unfit = await self._save(snapshots[middle:])
        return lost | more_lost, unfit | more_unfit

    def _give_up(self, run: Run, tell: Callable[[Run], None]) -> None:
        self._dirty.pop(run, None)
        run.lost = True
        _tell(tell, run)

    def _failed(self, waiting: Iterable[tuple[Run, asyncio.Future[None]]], error: StoreError) -> None:
        self._dirty, self._saving = self._saving | self._dirty, {}
        self._touched_s = time.monotonic()
        self._changed.set()
        for _, done in waiting:
            if not done.done():
                done.set_exception(error)
        if self.failure is None:
            log.error("store: %s; granting no credit until it works again", error)
            self.failure = str(error)
            _tell(self._outage, self.failure)


def _tell(told: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """What goes wrong with one client must not keep the others from their credit."""
    try:
        told(*args, **kwargs)
    except Exception:
        log.exception("a defect of this tool")


def _snapshots(batch: Iterable[Run]) -> dict[Run, RunSnapshot | None]:
    """Each run as it is now, None where that cannot be told, with the timelines that are wanted and as many
    due ones as fit the budget."""
    now = clock.now_ns()
    snapshots: dict[Run, RunSnapshot | None] = {}
    for run in sorted(batch, key=lambda run: run.timeline_saved_ns):
        due = run.timeline_changed and now - run.timeline_saved_ns >= TIMELINE_INTERVAL_NS
        affordable = clock.now_ns() - now < TIMELINE_BUDGET_NS
        try:
            snapshots[run] = run.snapshot(timeline=run.timeline_wanted or (due and affordable))
        except Exception:
            log.exception("run %s cannot be saved", format_run(run.id))
            snapshots[run] = None
    return snapshots
