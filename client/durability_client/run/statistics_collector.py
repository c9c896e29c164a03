"""Statistics of a run, sent to the server every second, so that they survive the cut.

The collector reads the commit latencies and the number of flushes that reached the drives. It never delays a
writer. Figures are totals since arming, so each report replaces an earlier one that did not reach the server.
Latencies that a full ring has dropped are not counted.
"""

from __future__ import annotations

import numpy as np

from durability.formats.facts import Drive, Facts
from durability.formats.histogram import Histogram
from durability.formats.plan import Plan
from durability.formats.run_statistics import Conditions, DriveFlushes, Statistics
from durability_client.run.power_loss_counters import PowerLossCounters
from durability_client.run.shared_state import SharedState
from durability_client.system import host
from durability_client.target.storage import Storage

_CPU_MODEL_CHARACTERS_MAX = 120  # limit of the CPU model and governor, which are sent every second


class StatisticsCollector:
    """Commit latencies, in total and of the last `second`, and flushes since `armed` was called."""

    def __init__(self, plan: Plan, storage: Storage, shared: SharedState) -> None:
        self._plan = plan
        self._storage = storage
        self._shared = shared
        self._drives: tuple[Drive, ...] = ()
        self.power_losses = PowerLossCounters((), storage.unsafe_shutdowns)
        self._machine = host.machine()
        self._ticks = host.ticks()  # at arming
        self._before = Histogram()  # latencies of all commits before the last second
        self.second = Histogram()
        self._digested = [0] * plan.writers  # number of commits digested, per writer

    def armed(self, facts: Facts) -> None:
        """Start counting: flushes and power losses from the counters in `facts`, processor time from now."""
        self._drives = facts.drives
        self.power_losses = PowerLossCounters(facts.drives, self._storage.unsafe_shutdowns)
        self._ticks = host.ticks()

    def digest(self) -> None:
        """Record the latencies of the commits since the last call."""
        fresh = []
        for writer, frontier in enumerate(self._shared.frontiers()[: self._plan.writers]):
            commits = frontier // self._plan.group
            fresh.append(self._shared.latencies(writer, self._digested[writer], commits))
            self._digested[writer] = commits
        self.second.record(np.concatenate(fresh))

    def next_second(self) -> None:
        """Begin a new `second`. Not called after an error of the target, whose drive may have lost power."""
        self.power_losses.next_second()
        self._before.merge(self.second)
        self.second = Histogram()

    def latencies(self) -> Histogram:
        """Latencies of all digested commits."""
        total = Histogram()
        total.merge(self._before)
        total.merge(self.second)
        return total

    def statistics(self, elapsed_s: float) -> Statistics:
        """Statistics of the run up to now, `elapsed_s` after its first record."""
        # Operations are read before the flushes, so that the flush of each counted operation is counted.
        operations = tuple(self._shared.frontiers()[: self._plan.writers])
        latencies = self.latencies().to_value()
        return Statistics(
            elapsed_s=round(elapsed_s, 3),
            operations=operations,
            latency_ns={name: list(numbers) for name, numbers in latencies.items()},
            drives=tuple(self._flushes(drive) for drive in self._drives),
            conditions=self._conditions(),
            unsafe_shutdowns=self.power_losses.newest,
        )

    def _conditions(self) -> Conditions:
        moment = host.machine_load(None, since=self._ticks)
        return Conditions(
            cpu_model=self._machine.cpu_model[:_CPU_MODEL_CHARACTERS_MAX],
            cpus=self._machine.cpus,
            governor=self._machine.governor[:_CPU_MODEL_CHARACTERS_MAX],
            load=_rounded(moment.load),
            busy_percent=_rounded(moment.busy_percent),
            steal_percent=_rounded(moment.steal_percent),
        )

    def _flushes(self, drive: Drive) -> DriveFlushes:
        now = self._storage.flushes(drive.name)
        since = None if now is None or drive.flushes is None else now - drive.flushes
        if since is not None and since < 0:  # the drive was detached and attached: the kernel restarted at 0
            since = None
        return DriveFlushes(name=drive.name, flushes=since)


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 2)
