"""The state of the live page: it reads the store in one thread, and each value once for all browsers.

A page is made from the store at most once per second for any number of browsers, and slow reads are repeated
less often. Samples of live runs are taken all the time, so that a newly opened page shows the past. If the
store fails, only the sampler continues to ask it, and all other reads fail at once. The memory is bounded:
runs and pages that are no longer viewed are forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, ParamSpec, TypeVar

from durability.errors import DurabilityError, StoreError
from durability.formats.plan import Plan
from durability_server import clock
from durability_server.store.live_rows import RunNow
from durability_server.store.store import Store
from durability_server.web.campaign_watch import CampaignWatch
from durability_server.web.live_samples import RunTrack
from durability_server.web.page_exchange import Pulse

LOOK_S = 1.0  # shortest time between two reads of the same value
SAMPLED_RUNS_MAX = 64  # runs whose samples are kept
TOPICS_MAX = 256  # topics that are kept
_SHARE = 10  # the pause after a read lasts this many times the read
_PAUSE_S_MAX = 5.0  # but not longer than this, so that pages stay up to date

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)


def pause_s(took_s: float) -> float:
    """The pause after a look that took `took_s`."""
    return max(LOOK_S - took_s, min(took_s * _SHARE, _PAUSE_S_MAX))


class Topic(Generic[T]):
    """A value that is read from the store at most once per second, for all who want it."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._reading: asyncio.Task[T] | None = None
        self._until_s = 0.0

    async def get(self) -> T:
        """The last value, or a new one if that is too old. A read continues if a caller is cancelled. Raises
        what the read raises."""
        loop = asyncio.get_running_loop()
        if self._reading is None or (self._reading.done() and loop.time() >= self._until_s):
            self._reading = loop.create_task(self._timed())
            self._reading.add_done_callback(_taken)
        return await asyncio.shield(self._reading)

    async def _timed(self) -> T:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        wait_s = LOOK_S  # after a failure
        try:
            value = await self._read()
            wait_s = pause_s(loop.time() - began_s)
            return value
        finally:
            self._until_s = loop.time() + wait_s * 0.9  # so that a caller finds a new value every second


def _taken(reading: asyncio.Task[T]) -> None:
    """Retrieves the error of a read, so that asyncio does not log it if no caller waits any more."""
    if not reading.cancelled():
        reading.exception()


class Watch:
    """The state of the store that pages show."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.campaigns = CampaignWatch(store.campaigns)
        self.pulse = Pulse()
        self.failure = ""  # why the last sample could not be taken
        self.reads = 0
        self.reads_s = 0.0
        self.boot_id = clock.read_boot_id()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-reader")
        self._tracks: OrderedDict[str, RunTrack] = OrderedDict()
        self._topics: OrderedDict[str, Topic[object]] = OrderedDict()

    async def open(self) -> None:
        """Opens the store for reading. Raises StoreError."""
        await self.ask(self.store.open_to_read)

    async def ask(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `function`, which reads the store, in the thread, and returns or raises its result. Raises
        StoreError at once if the last sample could not be taken."""

        def answer() -> T:
            if self.failure:
                raise StoreError(self.failure)
            return self._timed(lambda: function(*args, **kwargs))

        return await asyncio.get_running_loop().run_in_executor(self._thread, answer)

    def _timed(self, read: Callable[[], T]) -> T:
        began_s = time.monotonic()
        try:
            return read()
        finally:
            self.reads += 1
            self.reads_s += time.monotonic() - began_s

    def feel(self, pulse: Pulse) -> None:
        """Records the server's pulse."""
        self.pulse = pulse

    def topic(self, name: str, read: Callable[[], Awaitable[T]]) -> Topic[T]:
        """The topic `name`, read by `read`. Topics that were not used lately are forgotten."""
        topic = self._topics.pop(name, None) or Topic(read)
        self._topics[name] = topic
        while len(self._topics) > TOPICS_MAX:
            self._topics.popitem(last=False)
        return topic  # type: ignore[return-value]

    def track(self, run: str) -> RunTrack | None:
        """The samples of a run, None if it was not live lately."""
        return self._tracks.get(run)

    async def sample_for_ever(self) -> None:
        """Samples the live runs every second. Never returns."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            try:
                live = await loop.run_in_executor(
                    self._thread, self._timed, lambda: self.store.live_runs(SAMPLED_RUNS_MAX)
                )
                self.failure = ""
            except StoreError as error:
                self.failure, live = str(error), ()
            now_ns = clock.now_ns()
            for run in live:
                self._look(run, now_ns)
            await asyncio.sleep(LOOK_S if self.failure else pause_s(loop.time() - began_s))

    def _look(self, run: RunNow, now_ns: int) -> None:
        try:
            track = self._tracks.pop(run.run, None) or RunTrack(Plan.decode(run.plan))
            track.look(run, now_ns=now_ns, boot_id=self.boot_id)
        except DurabilityError as error:
            log.warning("run %s cannot be watched: %s", run.run, error)
            return
        self._tracks[run.run] = track
        while len(self._tracks) > SAMPLED_RUNS_MAX:
            self._tracks.popitem(last=False)
