"""A run second by second: rate, latencies and lag, from the state that the server has saved.

The server stores frontiers with the time of the newest frame every 50 ms, and the client's statistics about
once per second. The differences between two looks give the values for the time between them, so a page needs
no more data in the store. A percentile covers a longer time if a second has too few commits for it: a p99 of
100 commits per second covers ten seconds. Values are not smoothed: a second without a receipt has the rate 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from durability.errors import DurabilityError
from durability.formats.histogram import Histogram, supported
from durability.formats.plan import Plan
from durability.formats.run_statistics import Statistics, statistics_from_value
from durability_server.store.live_rows import RunNow

SAMPLES_MAX = 180  # samples of a run
PERCENTILE_SPAN_S_MAX = 60  # longest span of a percentile, and maximum number of statistics kept for it
_P50, _P99 = 50.0, 99.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile:
    """A latency of the newest commits."""

    us: float  # microseconds
    span_s: float  # seconds in which these commits were made


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSample:
    """The values of one look at a run."""

    rate: float  # operations per second since the previous look
    p50: Percentile | None  # median of the newest commits that the client counted, None for too few
    p99: Percentile | None
    lag_s: float | None  # age of the newest stored frame, None if its time is of another boot


class RunTrack:
    """The newest samples of a run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.samples: deque[LiveSample] = deque(maxlen=SAMPLES_MAX)
        self.statistics: Statistics | None = None  # the newest statistics
        self._earlier: deque[_Counts] = deque(maxlen=PERCENTILE_SPAN_S_MAX)  # earlier counts for percentiles
        self._before: tuple[int, int, int] | None = None  # last look: acked, last receipt, its time
        self._p50: Percentile | None = None
        self._p99: Percentile | None = None

    @property
    def newest(self) -> LiveSample | None:
        """The last sample, None before the second look."""
        return self.samples[-1] if self.samples else None

    def look(self, run: RunNow, *, now_ns: int, boot_id: str) -> None:
        """Records the run as it was at `now_ns` of the boot `boot_id`."""
        self._read(run)
        lag_s = (
            (now_ns - run.last_receipt_ns) / 1e9 if run.boot_id == boot_id and run.last_receipt_ns else None
        )
        before, self._before = self._before, (run.acked, run.last_receipt_ns, now_ns)
        if before is None:
            return
        acked, receipt_ns, look_ns = before
        took_ns = run.last_receipt_ns - receipt_ns if run.last_receipt_ns > receipt_ns else now_ns - look_ns
        self.samples.append(
            LiveSample(
                rate=max(0, run.acked - acked) * 1e9 / max(1, took_ns),
                p50=self._p50,
                p99=self._p99,
                lag_s=None if lag_s is None else max(0.0, lag_s),
            )
        )

    def _read(self, run: RunNow) -> None:
        """Computes the percentiles of the newest commits if there are newer statistics."""
        try:
            new = statistics_from_value(run.statistics, writers=self.plan.writers) if run.statistics else None
        except DurabilityError:  # statistics of a release that counts differently
            return
        if new is None or (self.statistics is not None and new.elapsed_s == self.statistics.elapsed_s):
            return
        self.statistics = new
        latencies, earlier = new.latencies(), self._earlier
        now = _Counts(new.elapsed_s, len(latencies), latencies)
        while earlier and not 0 < now.elapsed_s - earlier[0].elapsed_s <= PERCENTILE_SPAN_S_MAX:
            earlier.popleft()
        while len(earlier) > 1 and supported(now.commits - earlier[1].commits, _P99):
            earlier.popleft()
        self._p50, self._p99 = (_newest(now, earlier, percent) for percent in (_P50, _P99))
        earlier.append(now)


@dataclass(frozen=True, slots=True)
class _Counts:
    """What the client had counted after `elapsed_s` seconds."""

    elapsed_s: float
    commits: int
    latencies: Histogram


def _newest(now: _Counts, earlier: Sequence[_Counts], percent: float) -> Percentile | None:
    """The percentile of the newest commits: those after the newest entry of `earlier` that gives enough of
    them."""
    for then in reversed(earlier):
        if supported(now.commits - then.commits, percent):
            us = now.latencies.since(then.latencies).percentile(percent) / 1000
            return Percentile(us=us, span_s=now.elapsed_s - then.elapsed_s)
    return None
