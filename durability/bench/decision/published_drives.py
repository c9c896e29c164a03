"""Published drives: in which range drives of a kind commit, so that a rate has something to stand beside.

Each range is one writer's commits per second, 4 or 8 KiB and a sync each, from the least to the largest that
was published of the kind; docs/explanation/published-drives.md has every figure with its source, and says
which were left out. The kinds overlap, a cache that ignores flushes is as fast as a protected one, and a
range says nothing about a single drive. So this refuses to tell what a drive is: it says which kinds commit
at such a rate.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveClass:
    """Drives of one kind: `name` as people say it, `short` for a label of at most 14 characters; the
    published range in commits per second, its ends rounded to two digits."""

    name: str
    short: str
    low: float
    high: float

    def holds(self, rate: float) -> bool:
        """Whether a rate lies in the range once it has two digits as well: else the very drives from which
        the range was taken would lie outside of it."""
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
    """The kinds whose published drives commit at `rate` per second; () between two ranges and beyond all."""
    return tuple(kind for kind in KINDS if kind.holds(rate))


def standing(rate: float) -> str:
    """Where `rate` commits per second stand among the kinds, as the rest of a sentence on the target."""
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
