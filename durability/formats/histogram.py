"""Latencies as counts in log2-linear buckets: small, mergeable, and with a known error of percentiles.

Percentiles of many writers or seconds cannot be averaged, but their counts can be added. Each value below 32
has its own bucket. Above, each power of two is divided into 32 buckets, so a percentile is at most 1/32 too
high and never too low. A `FineHistogram` has 128 buckets per power of two, because a benchmark compares
differences of a few per cent: its percentiles are at most 1/128 (0.8 %) too high. Values are nanoseconds (any
unsigned unit would do). Values above 2^52 are counted as 2^52.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from durability import limits
from durability.errors import FormatError

PERCENTS = (50.0, 95.0, 99.0, 99.9)
SAMPLES_BEYOND_MIN = 10  # with fewer, a single stall more or less changes the percentile

_VALUE_BITS = 52
_VALUE_MAX = 1 << _VALUE_BITS  # exact in a float64; numpy finds the power of two by way of float64


class Histogram:
    """Counts of values per bucket, and the largest value exactly."""

    __slots__ = ("_counts", "max_value")
    sub_bits: ClassVar[int] = 5  # leading bits of a value, after the first; the protocol uses only this class

    def __init__(self) -> None:
        self._counts = np.zeros(self.buckets(), dtype=np.int64)
        self.max_value = 0

    def __len__(self) -> int:
        """The number of values recorded."""
        return int(self._counts.sum())

    @classmethod
    def buckets(cls) -> int:
        """The number of buckets."""
        return (_VALUE_BITS - cls.sub_bits + 2) << cls.sub_bits

    @classmethod
    def bucket_of(cls, values: NDArray[np.uint64]) -> NDArray[np.intp]:
        """The bucket that counts each of `values`."""
        clipped: NDArray[np.uint64] = np.minimum(values, np.uint64(_VALUE_MAX))
        exponent = np.frexp(clipped.astype(np.float64))[1]
        shift = np.maximum(exponent - (cls.sub_bits + 1), 0).astype(np.uint64)
        bucket: NDArray[np.uint64] = (shift << np.uint64(cls.sub_bits)) + (clipped >> shift)
        return bucket.astype(np.intp)

    def record(self, values: NDArray[np.uint64]) -> None:
        """Count each of `values`."""
        if len(values):
            self._counts += np.bincount(self.bucket_of(values), minlength=self.buckets())
            self.max_value = max(self.max_value, int(values.max()))

    def merge(self, other: Self) -> None:
        """Add the counts of `other`, a histogram of the same class."""
        self._counts += other._counts
        self.max_value = max(self.max_value, other.max_value)

    def since(self, earlier: Self) -> Self:
        """The values counted since `earlier`, an older state of the same histogram. If `earlier` is not that,
        all values. The largest value is then known only to the accuracy of its bucket."""
        later = type(self)()
        later._counts = self._counts - earlier._counts
        if (later._counts < 0).any():
            later._counts, later.max_value = self._counts.copy(), self.max_value
        elif len(later):
            highest = int(np.flatnonzero(later._counts)[-1])
            later.max_value = min(self._highest_in(highest), self.max_value)
        return later

    def percentile(self, percent: float) -> int:
        """The smallest value that `percent` of all values do not exceed, rounded up to the end of its bucket.
        0 if there are no values."""
        total = len(self)
        if not total:
            return 0
        rank = max(1, int(np.ceil(total * percent / 100)))
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        return min(self._highest_in(bucket), self.max_value)

    def to_value(self) -> dict[str, Sequence[int]]:
        """Plain values: the buckets in use, their counts, and the largest value."""
        used = np.flatnonzero(self._counts)
        return {"buckets": used.tolist(), "counts": self._counts[used].tolist(), "max": [self.max_value]}

    @classmethod
    def from_value(cls, value: object) -> Self:
        """Read what `to_value` made. Raises FormatError."""
        histogram = cls()
        if not isinstance(value, dict) or set(value) != {"buckets", "counts", "max"}:
            raise FormatError("a histogram has the fields buckets, counts and max")
        buckets, counts, largest = (_integers(value[name]) for name in ("buckets", "counts", "max"))
        if (
            len(buckets) != len(counts)
            or len(largest) != 1
            or any(bucket >= cls.buckets() for bucket in buckets)
        ):
            raise FormatError(
                f"a histogram's {len(buckets)} buckets and {len(counts)} counts do not fit together"
            )
        if sum(counts) > limits.COUNT_MAX:
            raise FormatError(f"a histogram counts at most {limits.COUNT_MAX} values")
        histogram._counts[buckets] = counts
        histogram.max_value = largest[0]
        return histogram

    @classmethod
    def _highest_in(cls, bucket: int) -> int:
        """The largest value that `bucket` counts."""
        sub = 1 << cls.sub_bits
        if bucket < 2 * sub:
            return bucket
        shift, within = bucket // sub - 1, bucket % sub + sub
        return ((within + 1) << shift) - 1


class FineHistogram(Histogram):
    """A histogram with four times the resolution."""

    __slots__ = ()
    sub_bits: ClassVar[int] = 7

    def steps(self) -> tuple[tuple[int, int], ...]:
        """The distribution: for each used bucket, its largest value and the number of values not above it."""
        used = np.flatnonzero(self._counts)
        below = np.cumsum(self._counts[used])
        return tuple(
            (min(self._highest_in(bucket), self.max_value), count)
            for bucket, count in zip(used.tolist(), below.tolist(), strict=True)
        )


def _integers(value: object) -> list[int]:
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < 1 << 62 for item in value):
        raise FormatError("a histogram's fields are lists of natural numbers")
    return value


def supported(samples: int, percent: float) -> bool:
    """Whether `samples` are enough to print the percentile `percent`: at least 10 of them must lie beyond it.
    So p50 needs 20 samples, p95 200, p99 1000 and p99.9 10,000."""
    return round(samples * (100 - percent) / 100, 6) >= SAMPLES_BEYOND_MIN
