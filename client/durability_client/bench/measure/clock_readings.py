"""Times of operations: stored as raw clock readings while a job works, and counted some thousand at a time.

The timed loops store only clock readings. Histograms and bins are made from thousands of them at a time, so
that recording costs some hundredths of a microsecond per operation. This module judges nothing.

A row is three readings in ns of CLOCK_MONOTONIC: the start of the operation (in the open loop, its due time),
the return of its last write, and its end. The second reading is 0 for a read.
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
    """The operations of one job from the start to `ended_ns`."""

    commits: Latencies
    syncs: Latencies  # empty if syncs were not timed separately from writes
    reads: Latencies
    bins: NDArray[np.int64]  # operations completed in each bin since the start
    ended_ns: int


class Recorder:
    """Records the rows of one job. Bins of `bin_ns` start at `start_ns`. `syncs`: also record the time of
    each sync separately."""

    def __init__(self, *, start_ns: int, bin_ns: int, syncs: bool) -> None:
        # The loops write to this, row after row.
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
        """The number of `operations` that can be recorded now, at least one."""
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
        """All operations since the start."""
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
