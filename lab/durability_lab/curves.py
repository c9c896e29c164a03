"""Detection curves: the share of a lying drive's cuts that the tester catches, against lie and load.

Each point is a scenario of rig A, cut many times. Beside the share stands what bounds it: in how many cuts
the drive had broken a promise for a record at all, and for what reasons the others could not be caught. The
points of one curve differ in what it is about and in nothing else.

Refuses to explain a miss away: a cut in which the tester and the truth do not agree is counted as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from durability.stats import upper_bound
from durability_lab.simulation import Scenario, simulate
from durability_lab.truth import Reason

DELAYS_MS = (1, 10, 100, 1000)
RATES = (50.0, 500.0, 5000.0)  # commits per second of the one writer
ONE_IN = (10, 100, 1000)
PACED_RATE = 50.0
CREWS = ((1, PACED_RATE), (1, 0.0), (4, 0.0), (16, 0.0))  # writers, and the rate of each (0: flat out)

_CONFIDENCE = 0.95
# One sector to a record and a target that no run covers: neither changes what is caught, both save time.
_LOAD = Scenario(record_bytes=512, slots=1024, operations=(100, 400), control=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """`caught` of `cuts` cuts of a scenario were found to be a loss; `damaged`: in so many of them the drive
    had broken a promise for a record.

    `low`, `high`: the two-sided 95 % interval of the share caught (Clopper-Pearson). `missed`: the seeds of
    the damaged cuts that were not caught; `uncaught`: how many of these there are by reason (one may have
    several). `defects`: the seeds of cuts in which tester and truth do not agree.
    """

    scenario: Scenario
    cuts: int
    damaged: int
    caught: int
    low: float
    high: float
    uncaught: Mapping[Reason, int]
    missed: tuple[int, ...]
    defects: tuple[int, ...]


def measure(scenario: Scenario, *, cuts: int, seed: int) -> Point:
    """Cut `scenario` with each of the seeds from `seed` on."""
    damaged = caught = 0
    uncaught = Counter[Reason]()
    missed: list[int] = []
    defects: list[int] = []
    for number in range(seed, seed + cuts):
        result = simulate(scenario, seed=number)
        truth = result.truth
        loss = result.document["verdict"] == "loss"
        caught += loss
        damaged += truth.damaged > 0
        if truth.damaged and not loss:
            missed.append(number)
            uncaught.update(truth.unclaimed.keys())
        if truth.defects:
            defects.append(number)
    low, high = interval(caught, cuts)
    return Point(
        scenario=scenario,
        cuts=cuts,
        damaged=damaged,
        caught=caught,
        low=low,
        high=high,
        uncaught=dict(uncaught),
        missed=tuple(missed),
        defects=tuple(defects),
    )


def interval(count: int, cuts: int) -> tuple[float, float]:
    """Where the probability lies, two-sided at 95 %, of what happened in `count` of `cuts` cuts."""
    one_sided = (1 + _CONFIDENCE) / 2
    return 1 - upper_bound(cuts - count, cuts, one_sided), upper_bound(count, cuts, one_sided)


def early_ack_scenarios() -> Iterator[Scenario]:
    """The drive that acknowledges a flush and has it on media d ms later: d against the rate of writes.

    A cut shows it if a record was acknowledged within the last d ms whose acknowledgement had time to reach
    the server: the share is about the chance that one falls between the ack lag and d before the cut.
    """
    for delay_ms in DELAYS_MS:
        for rate in RATES:
            yield replace(_LOAD, model=f"early-ack:delay_ms={delay_ms}", rate=rate)


def flush_skipped_scenarios() -> Iterator[Scenario]:
    """The drive that skips a flush now and then: how often, against who writes.

    The next honoured flush of anybody makes up for a skipped one. So a cut shows the drive only if the very
    last flush was skipped, and only if its acknowledgement had time to reach the server: a paced writer has
    that time, writers flat out do not, and the more there are the sooner one of them covers the lie.
    """
    for one_in in ONE_IN:
        for writers, rate in CREWS:
            yield replace(_LOAD, model=f"flush-skipped:one_in={one_in}", writers=writers, rate=rate)


def early_ack(*, cuts: int, seed: int) -> Iterator[Point]:
    """The points of `early_ack_scenarios`."""
    return (measure(scenario, cuts=cuts, seed=seed) for scenario in early_ack_scenarios())


def flush_skipped(*, cuts: int, seed: int) -> Iterator[Point]:
    """The points of `flush_skipped_scenarios`."""
    return (measure(scenario, cuts=cuts, seed=seed) for scenario in flush_skipped_scenarios())
