"""Published drives: the range of commit rates of each kind of drive, for comparison with a measured rate.

A range gives commits per second of one writer, with 4 or 8 KiB and a sync each. It reaches from the lowest to
the highest published figure of the kind. docs/explanation/published-drives.md lists every figure with its
source, and the figures that were left out. The kinds overlap, a cache that ignores flushes is as fast as a
protected one, and a range says nothing about a single drive. So this module does not say what a drive is. It
only says which kinds commit at a rate.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveClass:
    """A kind of drive and its published range in commits per second."""

    name: str
    short: str  # label of at most 14 characters
    low: float  # lowest published rate, rounded to two digits
    high: float  # highest published rate, rounded to two digits

    def holds(self, rate: float) -> bool:
        """Whether a rate, rounded to two digits, lies in the range. Without the rounding, a drive whose
        figure is an end of the range could lie outside the range."""
        return self.low <= float(f"{rate:.1e}") <= self.high


KINDS = (
    DriveClass(name="hard disk", short="hard disk", low=80, high=240),
    DriveClass(name="consumer SSD", short="consumer SSD", low=380, high=1_500),
    DriveClass(name="cloud volume", short="cloud volume", low=710, high=1_100),
    DriveClass(
        name="datacenter SSD with power-loss protection", short="datacenter SSD", low=1_600, high=34_000
    ),
)


def kinds_at(rate: float) -> tuple[DriveClass, ...]:
    """The kinds whose published range contains `rate` commits per second. () if no range contains it."""
    return tuple(kind for kind in KINDS if kind.holds(rate))


def standing(rate: float) -> str:
    """Compare `rate` commits per second with the kinds: the end of a sentence about the target."""
    if found := kinds_at(rate):
        return f"commits at the rate of {' and of '.join(map(_with_range, found))}"
    slower = [kind for kind in KINDS if kind.high < rate]
    faster = [kind for kind in KINDS if kind.low > rate]
    if not slower:
        return f"commits slower than every published kind; the slowest are {_with_range(KINDS[0])}"
    fastest = max(slower, key=lambda kind: kind.high)
    if not faster:
        return f"commits faster than every published kind; the fastest are {_with_range(fastest)}"
    slowest = min(faster, key=lambda kind: kind.low)
    return f"commits at a rate between {_with_range(fastest)} and {_with_range(slowest)}"


def _with_range(kind: DriveClass) -> str:
    return f"{kind.short}s ({kind.low:,.0f} to {kind.high:,.0f}/s)"
