"""Measurement: what one round of one cell gave, as the measuring code saw it and the result file keeps it.

Latencies are kept as counts, never as percentiles, so that rounds can be merged. Refuses what contradicts
itself; judges nothing.
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
SPAN_MIN_S, SPAN_MAX_S = 1e-9, 1e9  # of a round, a bin, an idle interval: no clock tells less


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """A `FineHistogram` of nanoseconds in few characters: its used buckets as gaps (the first from 0, each
    other from the one before), what each counts, and the largest value exactly."""

    gaps: tuple[Natural, ...]
    counts: tuple[Count, ...]
    max_ns: Natural

    def __post_init__(self) -> None:
        """Raises FormatError."""
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
        """What `histogram` counted."""
        value = histogram.to_value()
        buckets = value["buckets"]
        gaps = (bucket - before for bucket, before in zip(buckets, (0, *buckets[:-1]), strict=False))
        return cls(gaps=tuple(gaps), counts=tuple(value["counts"]), max_ns=histogram.max_value)

    def histogram(self) -> FineHistogram:
        """The histogram again."""
        return FineHistogram.from_value(
            {"buckets": list(accumulate(self.gaps)), "counts": list(self.counts), "max": [self.max_ns]}
        )

    def __len__(self) -> int:
        """How many latencies were counted."""
        return sum(self.counts)


NO_LATENCIES = Latencies(gaps=(), counts=(), max_ns=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskWork:
    """What the leaf drive `name` did, less what it does when idle; None where the system does not count it. A
    fraction, since the idle share is one; never below 0."""

    name: Text
    flushes: Finite | None
    writes: Finite | None
    write_kib: Finite | None
    reads: Finite | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the machine did for `operations` operations, which may include those of the warm-up. Processor
    time in microseconds: `user_us` and `system_us` of the jobs, `kernel_us` of the kernel's threads, less
    their idle share (interrupts are charged to whom they interrupt); None where unknown."""

    operations: Count
    user_us: Finite | None
    system_us: Finite | None
    kernel_us: Finite | None
    disks: tuple[DiskWork, ...]

    @property
    def cpu_us(self) -> float | None:
        """Processor time as far as it is known."""
        known = [part for part in (self.user_us, self.system_us, self.kernel_us) if part is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of a cell, without its warm-up, of all jobs together.

    It began `started_s` after the first round of the run and took `seconds`. `commits`: what was committed,
    each as many writes as the cell puts into one and their sync; where nothing is synced, a write. `writes`
    and `reads`: calls that completed. `commit_ns`: latency of each commit from the first write to the return
    of the sync (open loop: from when it was due). `sync_ns`: of the sync call alone, empty where the write
    syncs itself or nothing syncs. `read_ns`: of each read. `bins`: operations (commits and reads) that
    completed in each `bin_s` since `started_s`, whole bins only.
    """

    started_s: Finite
    seconds: Finite
    commits: Count
    writes: Count
    reads: Count
    commit_ns: Latencies
    sync_ns: Latencies
    read_ns: Latencies
    bin_s: Finite
    bins: tuple[Count, ...]
    work: Work | None

    def __post_init__(self) -> None:
        """Raises FormatError where the counts contradict each other."""
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
        """Commits and reads: what the rate counts."""
        return self.commits + self.reads

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """What a leaf drive did in `seconds` in which this tool left it alone."""

    name: Text
    seconds: Finite
    flushes: Natural | None
    writes: Natural | None
    write_kib: Natural | None
    reads: Natural | None

    def __post_init__(self) -> None:
        """Raises FormatError for an interval that no clock tells."""
        if self.seconds and not _is_span(self.seconds):
            raise FormatError(f"idle drive {shown(self.name)}: left alone for {self.seconds} seconds")


def _is_span(seconds: float) -> bool:
    """Whether so long a time can be measured, and be a divisor."""
    return SPAN_MIN_S <= seconds <= SPAN_MAX_S
