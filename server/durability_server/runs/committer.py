"""Group commits: every changed run in one transaction, then credit to each for what is durable now.

A commit follows the one before it after `limits.COMMIT_INTERVAL_NS`, or at once when a writer has used up
half of its credit, so that small targets are not slowed to the interval. When the database fails, nothing is
granted and nothing is given up: the frontiers stay in memory, the clients are told, and the commit is tried
again until it succeeds. They are told of a commit that hangs, too. Of a run that another server has taken,
nothing is saved and nothing granted. If the database has lost what was durable, as after a failover to a
standby that lacked it, the run is saved whole before anything is granted. A run that cannot be saved keeps no
other from its credit: it is set aside, and the others are saved without it. But what keeps every run from
being saved is no run's fault, and counts as a failure of the store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import ParamSpec, TypeAlias

from durability import limits
from durability.errors import StoreError
from durability.protocol.timeline import TimelineCopy
from durability.units import counted, format_run
from durability_server import clock
from durability_server.log_lines import about
from durability_server.runs.run import Run
from durability_server.store.database import UnfitError
from durability_server.store.records import MovedError, RunSnapshot
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread

P = ParamSpec("P")
_Waiting: TypeAlias = tuple[Run, asyncio.Future[None]]

RETRY_S = 0.25
HANGS_S = 5.0  # after which clients are told of a commit that is not over
STUCK_S = 10.0  # for which changes never wait for a commit that is tried
TIMELINE_INTERVAL_NS = 500_000_000
AT_ONCE_NS = 2_000_000  # of grants, before what has come from clients has its turn
NAMED_MAX = 10  # runs, in one line of the log
TIMELINES_NUMBERS_MAX = 1 << 16  # of the timelines of one commit, some milliseconds; a long one has more
_NUMBERS_OF_A_COPY = 1000  # as long as these take to pack, the event loop takes to copy any timeline

_HANGS = f"it has taken more than {HANGS_S:g} s to save"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Outcome:
    """What came of a commit, by run."""

    saved: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    behind: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)  # of those that are lost
    unfit: dict[int, Exception] = field(default_factory=dict)


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
        self._waiting: list[_Waiting] = []
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()
        self._closing = False
        # Held from the moment at which a run's snapshot gets its number until that is stored: in the order of
        # their numbers, the number in the store shows what the store lacks.
        self.in_order = asyncio.Lock()
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
            with self._watched():
                await self._commit()
        await self._commit()

    def close(self) -> None:
        """Lets `work` end after one more commit."""
        self._closing = True
        self._changed.set()
        self._urgent.set()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """The clients are told if the block lasts for too long."""
        hanging = asyncio.get_running_loop().call_later(HANGS_S, self._out, _HANGS)
        try:
            yield
        finally:
            hanging.cancel()

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
        if not (self._saving or waiting) and self.failure is None:
            return
        began_ns = clock.now_ns()
        outcome = _Outcome()
        snapshots: dict[Run, RunSnapshot] = {}
        try:
            async with self.in_order:
                snapshots, timelines = _snapshots(self._saving, outcome, all_wanted=self._closing)
                await self._pack(timelines, snapshots, outcome)
                await self._save(list(snapshots.values()), outcome)
                await self._require_at_fault(outcome)
        except Exception as error:
            self._say_gone_back(outcome)
            self._give_up_all(outcome.lost)
            for run, taken in snapshots.items():
                run.not_saved(taken)
            if not isinstance(error, StoreError) and self.failure is None:
                log.error("a defect of this tool", exc_info=error)
            why = str(error) if isinstance(error, StoreError) else f"a defect of this tool: {error!r}"
            self._failed(waiting, StoreError(why))
            await asyncio.sleep(0 if self._closing else RETRY_S)
            return
        self._say_gone_back(outcome)
        self.commits += 1
        self.commits_ns += clock.now_ns() - began_ns
        self._not_before_s = asyncio.get_running_loop().time() + limits.COMMIT_INTERVAL_NS / 1e9
        await self._tell_runs(snapshots, outcome)
        durable = {run: taken for run, taken in snapshots.items() if run.id in outcome.saved}
        self._answer(waiting, durable)
        if self.failure is not None:
            self.failure = None
            log.info("store %s: works again", self._store.name)
            _tell(self._outage, None)

    async def _tell_runs(self, snapshots: Mapping[Run, RunSnapshot], outcome: _Outcome) -> None:
        """Gives each run what came of the commit: credit, or that it is given up."""
        begun_ns = clock.now_ns()
        for run in list(self._saving):
            snapshot = snapshots.get(run)
            del self._saving[run]
            if snapshot is None or run.id in outcome.unfit:
                why_unfit, extra = outcome.unfit[run.id], about(run.stored.client)
                log.error("run %s cannot be saved", format_run(run.id), exc_info=why_unfit, extra=extra)
                self._give_up(run, self._unfit)
            elif run.id in outcome.lost:
                self._give_up(run, self._lost)
            elif run.id in outcome.behind:
                self.touch(run, urgent=True)
            else:
                grants_rose = run.saved(snapshot, clock.now_ns())
                if run.timeline_wanted:  # it was beyond this commit's budget
                    self.touch(run, urgent=True)
                _tell(self._saved, run, grants_rose)
            if clock.now_ns() - begun_ns > AT_ONCE_NS:
                await asyncio.sleep(0)  # what the clients send meanwhile is stamped as it comes
                begun_ns = clock.now_ns()

    def _answer(self, waiting: Iterable[_Waiting], snapshots: Mapping[Run, RunSnapshot]) -> None:
        """`snapshots` have been saved; who waits for one, or a timeline, that is not among them waits on."""
        for run, done in waiting:
            if done.done():
                continue
            if run.lost:
                done.set_exception(MovedError(run.id))
            elif run not in snapshots or snapshots[run].timeline is None:
                self._waiting.append((run, done))
            else:
                done.set_result(None)

    async def _pack(
        self,
        timelines: Mapping[Run, TimelineCopy],
        snapshots: dict[Run, RunSnapshot],
        outcome: _Outcome,
    ) -> None:
        """Gives `snapshots` their `timelines`, which are packed in the store's thread: what clients send
        meanwhile is stamped as it comes."""
        if not timelines:
            return
        for run, packed in (await self._thread.call(_packed, timelines)).items():
            if isinstance(packed, Exception):
                outcome.unfit[run.id] = packed
                del snapshots[run]
            else:
                snapshots[run] = replace(snapshots[run], timeline=packed)

    async def _save(self, snapshots: Sequence[RunSnapshot], outcome: _Outcome) -> None:
        """Saves these together, or in halves where one of them cannot be saved. Raises StoreError."""
        try:
            unsaved = await self._thread.call(self._store.save, snapshots)
        except Exception as error:
            if not snapshots or (isinstance(error, StoreError) and not isinstance(error, UnfitError)):
                raise
            if len(snapshots) == 1:
                outcome.unfit[snapshots[0].run] = error
                return
            middle = len(snapshots) // 2
            await self._save(snapshots[:middle], outcome)
            await self._save(snapshots[middle:], outcome)
        else:
            outcome.behind |= {run for run, why in unsaved.items() if why == "behind"}
            outcome.gone |= {run for run, why in unsaved.items() if why == "gone"}
            outcome.lost |= unsaved.keys() - outcome.behind
            outcome.saved |= {one.run for one in snapshots} - unsaved.keys()

    async def _require_at_fault(self, outcome: _Outcome) -> None:
        """A run that cannot be saved is at fault if another one was saved, and if it is alone and the store
        would take once more what it has of it. Raises its error otherwise: perhaps no run can be saved."""
        if not outcome.unfit or outcome.saved:
            return
        ((run, error), *others) = outcome.unfit.items()
        if not others:
            with suppress(Exception):
                await self._thread.call(self._store.try_again, run)
                return
        raise error

    def _say_gone_back(self, outcome: _Outcome) -> None:
        """What is to be done about a database that has lost what was durable, before anything is granted."""
        for run in self._saving:
            if run.id in outcome.behind:
                run.gone_back()
        for runs, what in (
            (outcome.behind, "this server writes all that it has of them anew"),
            (outcome.gone, "they are given up: what this server received of them is lost"),
        ):
            if runs:
                named = [format_run(run) for run in sorted(runs)[:NAMED_MAX]] + ["…"] * (
                    len(runs) > NAMED_MAX
                )
                log.error(
                    "store %s: it has gone back and lacks what was durable of %s (%s): %s. Was there a"
                    " failover to a standby that lacked commits?",
                    self._store.name,
                    counted(len(runs), "run"),
                    ", ".join(named),
                    what,
                )

    def _give_up_all(self, lost: Container[int]) -> None:
        """Of a commit that failed: these runs are another server's all the same."""
        for run in [run for run in self._saving if run.id in lost]:
            del self._saving[run]
            self._give_up(run, self._lost)

    def _give_up(self, run: Run, tell: Callable[[Run], None]) -> None:
        self._dirty.pop(run, None)
        run.lost = True
        _tell(tell, run)

    def _failed(self, waiting: Iterable[_Waiting], error: StoreError) -> None:
        self._dirty, self._saving = self._saving | self._dirty, {}
        self._touched_s = time.monotonic()
        self._changed.set()
        for _, done in waiting:
            if not done.done():
                done.set_exception(error)
        self._out(str(error))

    def _out(self, why: str) -> None:
        """Nothing is granted until the store works again, because of `why`. It may fail after it has hung."""
        before = self.failure
        if before not in (None, _HANGS) or why == before:
            return
        log.error("store: %s; granting no credit until it works again", why)
        self.failure = why
        if before is None:
            _tell(self._outage, why)


def _tell(told: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """What goes wrong with one client must not keep the others from their credit."""
    try:
        told(*args, **kwargs)
    except Exception:
        log.exception("a defect of this tool")


def _packed(timelines: Mapping[Run, TimelineCopy]) -> dict[Run, bytes | Exception]:
    packed: dict[Run, bytes | Exception] = {}
    for run, timeline in timelines.items():
        try:
            packed[run] = timeline.pack()
        except Exception as error:
            packed[run] = error
    return packed


def _snapshots(
    batch: Iterable[Run], outcome: _Outcome, *, all_wanted: bool
) -> tuple[dict[Run, RunSnapshot], dict[Run, TimelineCopy]]:
    """Each run as it is now, unless that cannot be told, and as many timelines as are not too long together,
    one at least: first those that are wanted, then those that are due. `all_wanted`: all that are wanted.
    What these pack is to be put into the snapshots."""
    now = clock.now_ns()
    snapshots: dict[Run, RunSnapshot] = {}
    timelines: dict[Run, TimelineCopy] = {}
    numbers = 0
    for run in sorted(batch, key=lambda run: (not run.timeline_wanted, run.timeline_saved_ns)):
        due = run.timeline_changed and now - run.timeline_saved_ns >= TIMELINE_INTERVAL_NS
        wanted = run.timeline_wanted and all_wanted
        affordable = not timelines or numbers < TIMELINES_NUMBERS_MAX
        try:
            snapshots[run], timeline = run.snapshot_to_pack(
                timeline=wanted or (affordable and (run.timeline_wanted or due))
            )
        except Exception as error:
            outcome.unfit[run.id] = error
            continue
        if timeline is not None:
            timelines[run] = timeline
            numbers += timeline.numbers + _NUMBERS_OF_A_COPY
    return snapshots, timelines
