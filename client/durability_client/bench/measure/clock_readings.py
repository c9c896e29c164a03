"""Times of operations: kept as they are read while a job works, counted when there are thousands.

The timed loops store raw clock readings and nothing else; histograms and bins are made of them a few thousand
at a time, so that recording costs an operation some hundredths of a microsecond. Judges nothing.

A row is three readings in ns of CLOCK_MONOTONIC: when the operation began (open loop: was due), when its last
write had returned, when all of it had. The second is 0 for a read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from durability.bench.measurement import Latencies
from durability.formats.histogram import FineHistogram

ROWS = 8192
COLUMNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What one job did from the start to `ended_ns`. `syncs`: empty where no sync was timed apart from its
    write; `bins`: operations that completed in each bin since the start."""

    commits: Latencies
    syncs: Latencies
    reads: Latencies
    bins: NDArray[np.int64]
    ended_ns: int


class Recorder:
    """Takes the rows of one job; bins of `bin_ns` are counted from `start_ns`. `syncs`: whether the time of
    the sync alone is wanted."""

    def __init__(self, *, start_ns: int, bin_ns: int, syncs: bool) -> None:
        # What the loops write to, row after row.
        self.words = memoryview(bytearray(ROWS * COLUMNS * 8)).cast("q")
        self._rows = np.frombuffer(self.words, dtype=np.int64).reshape(ROWS, COLUMNS)
        self.at = 0  # the index in `words` of the next row
        self._start_ns = start_ns
        self._bin_ns = bin_ns
        self._with_syncs = syncs
        self._commits, self._syncs, self._reads = FineHistogram(), FineHistogram(), FineHistogram()
        self._bins = np.zeros(0, dtype=np.int64)
        self._ended_ns = start_ns

    def room_for(self, operations: int) -> int:
        """How many of `operations` can be recorded now, at least one."""
        if self.at == len(self.words):
            self.digest()
        return min(operations, (len(self.words) - self.at) // COLUMNS)

    def digest(self) -> None:
        """Count all rows, and make room for new ones."""
        rows = self._rows[: self.at // COLUMNS]
        self.at = 0
        if not len(rows):
            return
        began, wrote, ended = rows.T
        is_commit = wrote > 0
        whole = _durations(ended - began)
        self._commits.record(whole[is_commit])
        self._reads.record(whole[~is_commit])
        if self._with_syncs:
            self._syncs.record(_durations(ended - wrote)[is_commit])
        counts = np.bincount(np.maximum(ended - self._start_ns, 0) // self._bin_ns)
        if len(counts) > len(self._bins):
            counts[: len(self._bins)] += self._bins
            self._bins = counts
        else:
            self._bins[: len(counts)] += counts
        self._ended_ns = max(self._ended_ns, int(ended.max()))

    def finish(self) -> Recorded:
        """Everything since the start."""
        self.digest()
        return Recorded(
            commits=Latencies.of(self._commits),
            syncs=Latencies.of(self._syncs),
            reads=Latencies.of(self._reads),
            bins=self._bins,
            ended_ns=self._ended_ns,
        )


def _durations(differences: NDArray[np.int64]) -> NDArray[np.uint64]:
    return differences.astype(np.uint64)
