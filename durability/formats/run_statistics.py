"""Statistics: figures about a run so far. They survive the machine under test.

The client sends them about once per second and at a clean stop. The server stores the newest, and the case
brings them to `verify` and `show`. So a run that ended in a power cut has statistics up to its last second.
They are not evidence of acknowledgements: only the frontiers are. Impossible figures, and a histogram that
contradicts itself, are rejected.
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
    """Flush requests of any program that completed on the leaf drive `name` since arming. None if the system
    does not count them, or if the drive was enumerated anew."""

    name: str
    flushes: Natural | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Conditions other than the target that affect the time of a commit. None if the system does not report a
    value."""

    cpu_model: str
    cpus: Natural
    governor: str  # CPU frequency governor; "" if there is none
    load: Finite | None  # load average over one minute
    busy_percent: Finite | None  # share of processor time that was busy since arming
    steal_percent: Finite | None  # share of processor time that the host took since arming


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """A run from its first record to `elapsed_s` later."""

    elapsed_s: Finite
    operations: tuple[int, ...]  # operations that the target acknowledged, per writer
    # Latencies of commits (write and sync), as `Histogram.to_value` returns them.
    latency_ns: dict[str, list[int]]
    drives: tuple[DriveFlushes, ...]  # in the order of the facts at arming
    conditions: Conditions | None = None  # None from a client that does not report them
    # Each drive's counter of power losses as last read in the run, None if it could not be read. () if no
    # counter could be read, or from a client that does not read them again.
    unsafe_shutdowns: tuple[Natural | None, ...] = ()

    def syncs(self, group: int) -> int:
        """The number of acknowledged syncs, with `group` operations each."""
        return sum(operations // group for operations in self.operations)

    def require_possible(self) -> None:
        """Raises FormatError for figures that are impossible for a run."""
        for operations in self.operations:
            if not 0 <= operations <= limits.SEQ_MAX:
                raise FormatError(
                    f"statistics have {operations} operations of a writer, expected 0 to {limits.SEQ_MAX}"
                )
        self.latencies()

    def latencies(self) -> Histogram:
        """The latencies of commits. Raises FormatError."""
        return Histogram.from_value(self.latency_ns)


# Fields of `Statistics` that the first release does not know and rejects.
NEWER_OF_STATISTICS = ("unsafe_shutdowns",)


def statistics_to_value(statistics: Statistics) -> dict[str, Value]:
    """The statistics as plain values, the content of `Progress` and `Stop`."""
    return to_value(statistics)


def statistics_from_value(value: object, *, writers: int) -> Statistics:
    """Read what `statistics_to_value` wrote for a run of `writers` writers. Raises FormatError."""
    statistics = from_value(Statistics, value)
    statistics.require_possible()
    if len(statistics.operations) != writers:
        raise FormatError(f"statistics of {len(statistics.operations)} writers, expected {writers}")
    return statistics
