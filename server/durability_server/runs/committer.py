"""Group commits: one transaction saves every changed run, then each run gets credit for what is durable.

A commit follows the previous one after `limits.COMMIT_INTERVAL_NS`, or at once if a writer has used up half
of its credit. So small targets are not slowed to the interval. If the database fails, the server grants no
credit and gives up no run. The frontiers stay in memory, the clients are told, and the commit is repeated
until it succeeds. The clients are also told if a commit hangs. If another server has taken a run, this server
saves and grants nothing of that run. A database may lose durable data, as after a failover to a standby that
lacked them. Then the complete run is saved before any credit is granted. A run that cannot be saved does not
block the credit of others: it is set aside, and the others are saved without it. An error that keeps every
run from being saved is not the fault of one run, and counts as a failure of the store.
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

RETRY_S = 0.25  # pause before a failed commit is repeated
HANGS_S = 5.0  # clients are told of a commit that takes longer
STUCK_S = 10.0  # the committer is stuck if changes wait longer than this without an attempt to save them
TIMELINE_INTERVAL_NS = 500_000_000  # a changed timeline is due this long after it was last saved
AT_ONCE_NS = 2_000_000  # longest time spent on grants before the event loop serves the clients' input
NAMED_MAX = 10  # runs named in one log line
# Numbers in the timelines of one commit, which take some milliseconds to pack. A single timeline may have
# more.
TIMELINES_NUMBERS_MAX = 1 << 16
# The event loop copies any timeline in about the time that packing this many numbers takes.
_NUMBERS_OF_A_COPY = 1000

_HANGS = f"it has taken more than {HANGS_S:g} s to save"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Outcome:
    """The result of a commit, by run."""

    saved: set[int] = field(default_factory=set)  # durable now
    lost: set[int] = field(default_factory=set)  # to be given up: taken by another server, or `gone`
    behind: set[int] = field(default_factory=set)  # the store lacks durable data; save the complete run
    gone: set[int] = field(default_factory=set)  # those in `lost` which the store lost, see `Unsaved`
    unfit: dict[int, Exception] = field(default_factory=dict)  # cannot be saved, with the error


class Committer:
    """Saves touched runs in the store's thread. It calls `saved` with each run that is now durable and
    whether its grants rose. It calls `lost` with each run that another server has taken or that the store has
    lost. It calls `unfit` with each run that cannot be saved. It calls `outage` with the reason if the store
    fails, and with None once the store works again."""

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
        # Held from when a run's snapshot gets its number until that snapshot is stored. So snapshots are
        # stored in the order of their numbers, and the number in the store shows what the store lacks.
        self.in_order = asyncio.Lock()
        self._not_before_s = 0.0
        self._touched_s = 0.0  # time of the oldest waiting change, or of the last failed commit
        self.failure: str | None = None
        self.commits = 0  # number of successful commits
        self.commits_ns = 0  # total duration of the successful commits

    def begin_without(self, why: str) -> None:
        """The store cannot be written at the start because of `why`. Commits are tried until one succeeds."""
        self._failed((), StoreError(why))

    def touch(self, run: Run, *, urgent: bool = False) -> None:
        """`run` has changed. The next commit saves it, and follows soon if `urgent`."""
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
        """Whether changes wait for longer than `STUCK_S` without an attempt to save them: `work` hangs or has
        ended."""
        return bool(self._dirty) and not self._saving and time.monotonic() - self._touched_s > STUCK_S

    async def flush(self, run: Run) -> None:
        """Returns once the current state of `run`, with its timeline, is durable. Raises StoreError if that
        fails, and MovedError if this server gives up the run, for example to another server."""
        if run.lost:
            raise MovedError(run.id)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((run, done))
        run.timeline_wanted = True
        self.touch(run, urgent=True)
        await done

    async def flush_patiently(self, run: Run) -> None:
        """Like `flush`, but repeated until the store works."""
        while True:
            with suppress(StoreError):
                return await self.flush(run)

    async def work(self) -> None:
        """Commits until `close`. The last commit includes all runs touched before."""
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
        """Tells the clients if the block takes longer than `HANGS_S`."""
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
            _call_guarded(self._outage, None)

    async def _tell_runs(self, snapshots: Mapping[Run, RunSnapshot], outcome: _Outcome) -> None:
        """Tells each run the result of the commit: its credit, or that it is given up."""
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
                if run.timeline_wanted:  # its timeline exceeded the budget of this commit
                    self.touch(run, urgent=True)
                _call_guarded(self._saved, run, grants_rose)
            if clock.now_ns() - begun_ns > AT_ONCE_NS:
                await asyncio.sleep(0)  # the event loop can receive and stamp the clients' frames
                begun_ns = clock.now_ns()

    def _answer(self, waiting: Iterable[_Waiting], snapshots: Mapping[Run, RunSnapshot]) -> None:
        """`snapshots` are saved. A caller whose run, or whose run's timeline, is not among them waits for
        another commit."""
        for run, done in waiting:
            if done.done():
                continue
            if run.lost:
                done.set_exception(MovedError(run.id))
            elif run not in snapshots or snapshots[run].timeline is None:
                # The commit before may have saved the timeline, if the caller asked while it waited to begin.
                run.timeline_wanted = True
                self._waiting.append((run, done))
                self.touch(run, urgent=True)
            else:
                done.set_result(None)

    async def _pack(
        self,
        timelines: Mapping[Run, TimelineCopy],
        snapshots: dict[Run, RunSnapshot],
        outcome: _Outcome,
    ) -> None:
        """Packs `timelines` into their `snapshots`. This runs in the store's thread, so the event loop can
        receive and stamp the clients' frames."""
        if not timelines:
            return
        for run, packed in (await self._thread.call(_packed, timelines)).items():
            if isinstance(packed, Exception):
                outcome.unfit[run.id] = packed
                del snapshots[run]
            else:
                snapshots[run] = replace(snapshots[run], timeline=packed)

    async def _save(self, snapshots: Sequence[RunSnapshot], outcome: _Outcome) -> None:
        """Saves these runs together, or in halves if one of them cannot be saved. Raises StoreError."""
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
        """A run that cannot be saved is at fault if another run was saved. A single run is also at fault if
        the store can save again what it has of that run. Otherwise raises the run's error, because perhaps no
        run can be saved."""
        if not outcome.unfit or outcome.saved:
            return
        ((run, error), *others) = outcome.unfit.items()
        if not others:
            with suppress(Exception):
                await self._thread.call(self._store.try_again, run)
                return
        raise error

    def _say_gone_back(self, outcome: _Outcome) -> None:
        """Handles a database that has lost durable data, before any credit is granted: marks runs that must
        be saved whole, and logs the loss."""
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
        """Gives up the runs in `lost` although the commit failed."""
        for run in [run for run in self._saving if run.id in lost]:
            del self._saving[run]
            self._give_up(run, self._lost)

    def _give_up(self, run: Run, tell: Callable[[Run], None]) -> None:
        self._dirty.pop(run, None)
        run.lost = True
        _call_guarded(tell, run)

    def _failed(self, waiting: Iterable[_Waiting], error: StoreError) -> None:
        self._dirty, self._saving = self._saving | self._dirty, {}
        self._touched_s = time.monotonic()
        self._changed.set()
        for _, done in waiting:
            if not done.done():
                done.set_exception(error)
        self._out(str(error))

    def _out(self, why: str) -> None:
        """No credit is granted until the store works again, because of `why`. A commit may hang, then
        fail."""
        before = self.failure
        if before not in (None, _HANGS) or why == before:
            return
        log.error("store: %s; granting no credit until it works again", why)
        self.failure = why
        if before is None:
            _call_guarded(self._outage, why)


def _call_guarded(callback: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Calls `told` and logs what it raises: an error with one client must not keep credit from the others."""
    try:
        callback(*args, **kwargs)
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
    """The snapshot of each run, unless making one fails, and timelines to pack into them. Wanted timelines
    come first, then due ones. None is added once there are `TIMELINES_NUMBERS_MAX` numbers, but `all_wanted`
    adds all wanted ones."""
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
