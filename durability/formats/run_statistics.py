"""Statistics: what a run did so far, in figures that outlive the machine under test.

The client sends them about once per second and at a clean stop, the server keeps the newest, and the case
brings them to `verify` and `show`. So a run that ended in a power cut has them up to its last second. They
are not evidence of what was acknowledged: only the frontiers are. Refuses figures that cannot be, and a
histogram that contradicts itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from durability import limits
from durability.errors import FormatError
from durability.formats.documents import Finite, Natural, from_value, to_value
from durability.formats.histogram import Histogram
from durability.formats.packing import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveFlushes:
    """Flush requests that completed on the leaf drive `name` since arming, of any program; None where
    the system does not count them, or the drive was enumerated anew."""

    name: str
    flushes: Natural | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a commit's price depends on beside the target: the processor, its `governor` ("" where there is
    none), the `load` average of one minute, and how much of the processors' time was busy since arming or
    taken by the host. None where the system does not say."""

    cpu_model: str
    cpus: Natural
    governor: str
    load: Finite | None
    busy_percent: Finite | None
    steal_percent: Finite | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """A run from its first record to `elapsed_s` later. `operations`: acknowledged by the target, per writer.
    `latency_ns`: the latencies of commits (write and sync) as `Histogram.to_value` gives them. `drives`: in
    the order of the facts at arming. `conditions`: None from a client that does not tell them.
    `unsafe_shutdowns`: the drives' counters of power losses as they were last read in the run, each in the
    place of its drive, None where it could not be read; () from a client that does not read them again."""

    elapsed_s: Finite
    operations: tuple[int, ...]
    latency_ns: dict[str, list[int]]
    drives: tuple[DriveFlushes, ...]
    conditions: Conditions | None = None
    unsafe_shutdowns: tuple[Natural | None, ...] = ()

    def syncs(self, group: int) -> int:
        """How many syncs were acknowledged, `group` operations to each."""
        return sum(operations // group for operations in self.operations)

    def require_possible(self) -> None:
        """Raises FormatError for figures that no run can have."""
        for operations in self.operations:
            if not 0 <= operations <= limits.SEQ_MAX:
                raise FormatError(
                    f"statistics have {operations} operations of a writer, expected 0 to {limits.SEQ_MAX}"
                )
        self.latencies()

    def latencies(self) -> Histogram:
        """The latencies of commits. Raises FormatError."""
        return Histogram.from_value(self.latency_ns)


# Fields of `Statistics` that the first release does not have, and refuses.
NEWER_OF_STATISTICS = ("unsafe_shutdowns",)


def statistics_to_value(statistics: Statistics) -> dict[str, Value]:
    """The statistics as plain values: what `Progress` and `Stop` carry."""
    return to_value(statistics)


def statistics_from_value(value: object, *, writers: int) -> Statistics:
    """Reads what `statistics_to_value` wrote for a run of `writers` writers. Raises FormatError."""
    statistics = from_value(Statistics, value)
    statistics.require_possible()
    if len(statistics.operations) != writers:
        raise FormatError(f"statistics of {len(statistics.operations)} writers, expected {writers}")
    return statistics
