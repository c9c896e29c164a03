"""Arm and random times of each cycle: the time to the cut and the time without power, from the seed.

The same settings give the same cycles, on any machine and in any release, whatever happens in the campaign.
"""

from __future__ import annotations

from durability.campaign.definition.settings import Arm, Settings
from durability.campaign.log_entries import CycleBegan
from durability.formats.mixing import combine

CHECK = 0  # the number of the cycle that is the check

_CUT_AFTER, _OFF, _AGAIN = range(3)


def arm_of(settings: Settings, cycle: int) -> Arm:
    """The arm of a cycle: arms take turns."""
    return settings.arms[(cycle - 1) % len(settings.arms)]


def draw_cycle(settings: Settings, cycle: int, drives: tuple[str, ...]) -> CycleBegan:
    """The entry that begins the cycle with the number `cycle` (0 for the check). `drives` take part."""
    if cycle == CHECK:
        return CycleBegan(
            cycle=CHECK, arm="", drives=drives, cut_after_s=0.0, off_s=settings.off_s[1], again_after_s=None
        )
    arm = arm_of(settings, cycle)
    return CycleBegan(
        cycle=cycle,
        arm=arm.name,
        drives=drives,
        cut_after_s=_draw(settings, cycle, _CUT_AFTER, arm.cut_after_s),
        off_s=_draw(settings, cycle, _OFF, arm.off_s),
        again_after_s=None
        if arm.again_after_s is None
        else _draw(settings, cycle, _AGAIN, arm.again_after_s),
    )


def _draw(settings: Settings, cycle: int, what: int, interval: tuple[float, float]) -> float:
    """A random value from the interval, in seconds, rounded to a millisecond."""
    low, high = interval
    share = combine(settings.seed, cycle, what) / 2**64
    return round(low + (high - low) * share, 3)
