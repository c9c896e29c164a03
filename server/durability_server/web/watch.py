"""What the process of the live page knows: it reads the store in one thread, and each thing once for all.

However many browsers are open, a page is made of the store at most once per second, and what takes long is
read less often. Samples of live runs are taken all the time, so a page that is opened has a past. Refuses to
keep more than is bounded: runs and pages that nobody looks at are forgotten.
"""

from __future__ import annotations

import asyncio
import logging
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

LOOK_S = 1.0
SAMPLED_RUNS_MAX = 64  # whose samples are kept
TOPICS_MAX = 256
_SHARE = 10  # reading takes at most this part of the time

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)


class Topic(Generic[T]):
    """Something that is read from the store at most once per second, for all who want it."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._lock = asyncio.Lock()
        self._until_s = 0.0
        self._value: T | None = None

    async def get(self) -> T:
        """What was read last, or now. Raises what reading raises."""
        async with self._lock:
            loop = asyncio.get_running_loop()
            if self._value is None or loop.time() >= self._until_s:
                began_s = loop.time()
                self._value = await self._read()
                now_s = loop.time()
                self._until_s = began_s + max(LOOK_S * 0.9, (now_s - began_s) * _SHARE)
            return self._value


class Watch:
    """The store, as far as it is looked at."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.campaigns = CampaignWatch(store.campaigns)
        self.pulse = Pulse()
        self.failure = ""  # why the store could not be read last
        self.reads = 0
        self.reads_s = 0.0
        self.boot_id = clock.read_boot_id()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-reader")
        self._tracks: OrderedDict[str, RunTrack] = OrderedDict()
        self._topics: OrderedDict[str, Topic[object]] = OrderedDict()

    async def open(self) -> None:
        """Opens the store to read it. Raises StoreError."""
        await self.ask(self.store.open_to_read)

    async def ask(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `function`, which reads the store, returns or raises."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            return await loop.run_in_executor(self._thread, lambda: function(*args, **kwargs))
        finally:
            self.reads += 1
            self.reads_s += loop.time() - began_s

    def feel(self, pulse: Pulse) -> None:
        """The server has said something."""
        self.pulse = pulse

    def topic(self, name: str, read: Callable[[], Awaitable[T]]) -> Topic[T]:
        """What is known as `name`; `read` makes it. One that nobody asked for lately is forgotten."""
        topic = self._topics.pop(name, None) or Topic(read)
        self._topics[name] = topic
        while len(self._topics) > TOPICS_MAX:
            self._topics.popitem(last=False)
        return topic  # type: ignore[return-value]

    def track(self, run: str) -> RunTrack | None:
        """The samples of a run, None for one that was not live lately."""
        return self._tracks.get(run)

    async def sample_for_ever(self) -> None:
        """Looks at the live runs every second."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            try:
                live = await self.ask(self.store.live_runs, SAMPLED_RUNS_MAX)
                self.failure = ""
            except StoreError as error:
                self.failure, live = str(error), ()
            now_ns = clock.now_ns()
            for run in live:
                self._look(run, now_ns)
            await asyncio.sleep(max(LOOK_S - (loop.time() - began_s), (loop.time() - began_s) * _SHARE, 0.1))

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
