"""A run as it goes, second by second: rate, latencies and lag, from what the server has saved of it.

The server stores frontiers with the time of the newest frame every 50 ms, and the client's own statistics
about once per second. The differences between two looks are the figures of the time between them, so nothing
more is stored for a page. Refuses to smooth: a second without a receipt has the rate 0.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from durability.errors import DurabilityError
from durability.formats.histogram import Histogram, supported
from durability.formats.plan import Plan
from durability.formats.run_statistics import Statistics, statistics_from_value
from durability_server.store.live_rows import RunNow

SAMPLES_MAX = 180  # of a run
_P50, _P99 = 50.0, 99.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSample:
    """What a look showed. `rate`: operations per second since the look before. Latencies in microseconds, of
    the commits that the client counted since its statistics before; None for too few. `lag_s`: the age of the
    newest frame of the client that is stored, None if the store's times are of another boot."""

    rate: float
    p50_us: float | None
    p99_us: float | None
    lag_s: float | None


class RunTrack:
    """The newest samples of a run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.samples: deque[LiveSample] = deque(maxlen=SAMPLES_MAX)
        self.statistics: Statistics | None = None  # the newest
        self._counts: Histogram | None = None
        self._before: tuple[int, int, int] | None = None  # acked, its last receipt, our look
        self._p50_us: float | None = None
        self._p99_us: float | None = None

    @property
    def newest(self) -> LiveSample | None:
        """The last sample, None before the second look."""
        return self.samples[-1] if self.samples else None

    def look(self, run: RunNow, *, now_ns: int, boot_id: str) -> None:
        """Take in the run as it was at `now_ns` of the boot `boot_id`."""
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
                p50_us=self._p50_us,
                p99_us=self._p99_us,
                lag_s=None if lag_s is None else max(0.0, lag_s),
            )
        )

    def _read(self, run: RunNow) -> None:
        """The latencies since the statistics before, once there are newer ones."""
        try:
            new = statistics_from_value(run.statistics, writers=self.plan.writers) if run.statistics else None
        except DurabilityError:  # of a release that counts otherwise
            return
        if new is None or (self.statistics is not None and new.elapsed_s == self.statistics.elapsed_s):
            return
        self.statistics = new
        earlier, self._counts = self._counts, new.latencies()
        if earlier is None:
            return
        counted = self._counts.since(earlier)
        self._p50_us = _percentile_us(counted, _P50)
        self._p99_us = _percentile_us(counted, _P99)


def _percentile_us(counted: Histogram, percent: float) -> float | None:
    return counted.percentile(percent) / 1000 if supported(len(counted), percent) else None
