"""Latencies as counts in log2-linear buckets: small, mergeable, and honest about percentiles.

Percentiles of many writers or many seconds cannot be averaged; their counts can be added. A value v below 32
has a bucket of its own; above, each power of two is cut into 32 buckets, so a percentile is at most 1/32 too
high and never too low. Values are nanoseconds (any unsigned unit would do); what is beyond 2^52 is counted
as 2^52.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from durability.errors import FormatError

_SUB_BITS = 5
_SUB = 1 << _SUB_BITS
_VALUE_MAX = 1 << 52  # exact in a float64, which is how numpy finds the power of two
BUCKETS = (52 - _SUB_BITS + 1) * _SUB + _SUB


def _bucket_of(values: NDArray[np.uint64]) -> NDArray[np.intp]:
    clipped: NDArray[np.uint64] = np.minimum(values, np.uint64(_VALUE_MAX))
    exponent = np.frexp(clipped.astype(np.float64))[1]
    shift = np.maximum(exponent - (_SUB_BITS + 1), 0).astype(np.uint64)
    bucket: NDArray[np.uint64] = (shift << np.uint64(_SUB_BITS)) + (clipped >> shift)
    return bucket.astype(np.intp)


def _highest_in(bucket: int) -> int:
    """The largest value that `bucket` counts."""
    if bucket < 2 * _SUB:
        return bucket
    shift, within = bucket // _SUB - 1, bucket % _SUB + _SUB
    return ((within + 1) << shift) - 1


class Histogram:
    """Counts of values per bucket, and the largest value exactly."""

    __slots__ = ("_counts", "max_value")

    def __init__(self) -> None:
        self._counts = np.zeros(BUCKETS, dtype=np.int64)
        self.max_value = 0

    def __len__(self) -> int:
        """How many values were recorded."""
        return int(self._counts.sum())

    def record(self, values: NDArray[np.uint64]) -> None:
        """Count each of `values`."""
        if len(values):
            self._counts += np.bincount(_bucket_of(values), minlength=BUCKETS)
            self.max_value = max(self.max_value, int(values.max()))

    def merge(self, other: Histogram) -> None:
        """Add what `other` counted."""
        self._counts += other._counts
        self.max_value = max(self.max_value, other.max_value)

    def percentile(self, percent: float) -> int:
        """The smallest value (to 1/32, upwards) that `percent` of all do not exceed; 0 if there is none."""
        total = len(self)
        if not total:
            return 0
        rank = max(1, int(np.ceil(total * percent / 100)))
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        return min(_highest_in(bucket), self.max_value)

    def to_value(self) -> dict[str, Sequence[int]]:
        """Plain values: the buckets that hold anything, their counts, and the largest value."""
        used = np.flatnonzero(self._counts)
        return {"buckets": used.tolist(), "counts": self._counts[used].tolist(), "max": [self.max_value]}

    @classmethod
    def from_value(cls, value: object) -> Histogram:
        """Reads what `to_value` made. Raises FormatError."""
        histogram = cls()
        if not isinstance(value, dict) or set(value) != {"buckets", "counts", "max"}:
            raise FormatError("a histogram has the fields buckets, counts and max")
        buckets, counts, largest = (_integers(value[name]) for name in ("buckets", "counts", "max"))
        if len(buckets) != len(counts) or len(largest) != 1 or any(bucket >= BUCKETS for bucket in buckets):
            raise FormatError(
                f"a histogram's {len(buckets)} buckets and {len(counts)} counts do not fit together"
            )
        histogram._counts[buckets] = counts
        histogram.max_value = largest[0]
        return histogram


def _integers(value: object) -> list[int]:
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < 1 << 62 for item in value):
        raise FormatError("a histogram's fields are lists of natural numbers")
    return value
