"""Measurement: the data of one round of one cell, as measured and as stored in the result file.

Latencies are stored as counts, never as percentiles, so that rounds can be merged. Data that contradict each
other are refused. Nothing is judged here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, TypeAlias

import numpy as np

from durability import limits
from durability.errors import FormatError
from durability.formats.documents import Count, Finite, Natural, Text, shown
from durability.formats.histogram import FineHistogram

Engine: TypeAlias = Literal["durability", "fio"]

BINS_MAX = 200_000
SPAN_MIN_S, SPAN_MAX_S = 1e-9, 1e9  # limits for a round, a bin or an idle interval; clocks count nanoseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """A `FineHistogram` of nanoseconds in a short form."""

    gaps: tuple[Natural, ...]  # number of each used bucket minus that of the previous one (first: minus 0)
    counts: tuple[Count, ...]  # count of each used bucket
    max_ns: Natural  # the exact largest value

    def __post_init__(self) -> None:
        """Raises FormatError if the parts contradict each other or are out of bounds."""
        if len(self.gaps) != len(self.counts) or 0 in self.counts or 0 in self.gaps[1:]:
            raise FormatError(f"latencies: {len(self.gaps)} gaps and {len(self.counts)} counts do not fit")
        if sum(self.counts) > limits.COUNT_MAX:
            raise FormatError(f"latencies: {sum(self.counts)} of them, at most {limits.COUNT_MAX} can be")
        if sum(self.gaps) >= FineHistogram.buckets():
            raise FormatError(f"latencies: there is no bucket {sum(self.gaps)}")
        if sum(self.gaps) != int(FineHistogram.bucket_of(np.array([self.max_ns], dtype=np.uint64))[0]):
            raise FormatError(f"latencies: the largest, {self.max_ns} ns, is not in the last bucket")

    @classmethod
    def of(cls, histogram: FineHistogram) -> Latencies:
        """The latencies that `histogram` counted."""
        value = histogram.to_value()
        buckets = value["buckets"]
        gaps = (bucket - before for bucket, before in zip(buckets, (0, *buckets[:-1]), strict=False))
        return cls(gaps=tuple(gaps), counts=tuple(value["counts"]), max_ns=histogram.max_value)

    def histogram(self) -> FineHistogram:
        """The latencies as a histogram."""
        return FineHistogram.from_value(
            {"buckets": list(accumulate(self.gaps)), "counts": list(self.counts), "max": [self.max_ns]}
        )

    def __len__(self) -> int:
        """The number of latencies."""
        return sum(self.counts)


NO_LATENCIES = Latencies(gaps=(), counts=(), max_ns=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskWork:
    """Requests to a leaf drive, minus its requests when idle. A count is None if the system does not count
    it. Counts are fractions, because the idle part is one, and never negative."""

    name: Text  # name of the drive
    flushes: Finite | None
    writes: Finite | None
    write_kib: Finite | None
    reads: Finite | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Processor time and requests for some operations. Times are in microseconds, None if unknown. The time
    of an interrupt counts for the process that it interrupts."""

    operations: Count  # may include operations of the warm-up
    user_us: Finite | None  # user time of the jobs
    system_us: Finite | None  # system time of the jobs
    kernel_us: Finite | None  # time of the kernel's threads, minus their time when idle
    disks: tuple[DiskWork, ...]

    @property
    def cpu_us(self) -> float | None:
        """The sum of the known processor times, None if all are unknown."""
        known = [part for part in (self.user_us, self.system_us, self.kernel_us) if part is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of a cell, all jobs together, without its warm-up."""

    started_s: Finite  # seconds from the first round of the run to the start of this round
    seconds: Finite  # duration
    commits: Count  # commits: the writes of one commit and their sync; without syncs, single writes
    writes: Count  # completed calls
    reads: Count  # completed calls
    # Latency of each commit from the first write to the return of the sync. In an open loop: from the due
    # time.
    commit_ns: Latencies
    sync_ns: Latencies  # latency of the sync call alone; empty if the write syncs itself or nothing syncs
    read_ns: Latencies  # latency of each read
    bin_s: Finite  # length of a bin
    bins: tuple[Count, ...]  # commits and reads that completed in each whole bin since `started_s`
    work: Work | None

    def __post_init__(self) -> None:
        """Raises FormatError if the counts contradict each other or are out of bounds."""
        if not _is_span(self.seconds) or not _is_span(self.bin_s):
            raise FormatError(f"a round: {self.seconds} seconds in bins of {self.bin_s}")
        if len(self.bins) > BINS_MAX:
            raise FormatError(f"a round: {len(self.bins)} bins, at most {BINS_MAX} are allowed")
        for what, counted, latencies in (
            ("commits", self.commits, self.commit_ns),
            ("commits", self.commits, self.sync_ns),
            ("reads", self.reads, self.read_ns),
        ):
            if len(latencies) not in (0, counted):
                raise FormatError(f"a round: {counted} {what} and {len(latencies)} latencies of them")

    @property
    def operations(self) -> int:
        """Number of commits and reads, which the rate counts."""
        return self.commits + self.reads

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Requests to a leaf drive while this tool was idle."""

    name: Text
    seconds: Finite  # length of the interval
    flushes: Natural | None
    writes: Natural | None
    write_kib: Natural | None
    reads: Natural | None

    def __post_init__(self) -> None:
        """Raises FormatError for an interval that cannot be measured."""
        if self.seconds and not _is_span(self.seconds):
            raise FormatError(f"idle drive {shown(self.name)}: left alone for {self.seconds} seconds")


def _is_span(seconds: float) -> bool:
    """Whether a time of this length can be measured and used as a divisor."""
    return SPAN_MIN_S <= seconds <= SPAN_MAX_S
