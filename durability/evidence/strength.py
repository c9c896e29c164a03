"""What n cuts without, or with, a loss say about the next one (rule 16).

One-sided Clopper-Pearson bounds, by bisection on the binomial sum, so that no statistics package is needed.
Refuses to speak of a probability where runs were left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from durability.evidence.cut import CUT_CLASSES, CutClass
from durability.formats.case import Case, PastVerdict

CONFIDENCE = 0.95
# An inconclusive verdict for one of these may hide a loss; the others only lack the proof of a cut.
HIDE_LOSSES = frozenset(
    {"superseded", "tainted", "log-behind", "drive-changed"}
    | {"scan-unfinished", "unstable", "earlier-unstable"}
)
_STEPS = 60  # bisections: far below the precision of a float


def at_most_probability(losses: int, cuts: int, probability: float) -> float:
    """The probability of at most `losses` losses in `cuts` cuts if each loses with `probability`."""
    if probability <= 0 or losses >= cuts:
        return 1.0
    if probability >= 1:
        return 0.0
    log_p, log_q = math.log(probability), math.log1p(-probability)
    total = math.lgamma(cuts + 1)
    return math.fsum(
        math.exp(total - math.lgamma(k + 1) - math.lgamma(cuts - k + 1) + k * log_p + (cuts - k) * log_q)
        for k in range(losses + 1)
    )


def upper_bound(losses: int, cuts: int, confidence: float = CONFIDENCE) -> float:
    """The largest per-cut loss probability that `losses` in `cuts` cuts do not exclude at `confidence`,
    one-sided. 1 - (1 - confidence)^(1/n) for no loss; 1.0 for no cut at all, or if every cut lost."""
    if not 0 <= losses <= cuts:
        raise ValueError(f"{losses} losses in {cuts} cuts are impossible")
    if losses == cuts:
        return 1.0
    if losses == 0:
        return -math.expm1(math.log1p(-confidence) / cuts)
    low, high = losses / cuts, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if at_most_probability(losses, cuts, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """What the series says: `losses` in `cuts`, and the bound on the per-cut loss probability. `bound` None:
    there is no cut to speak of, or `left_out` runs of the series were cut but never verified, or so that a
    loss may be hidden."""

    cuts: int
    losses: int
    bound: float | None
    left_out: int


def strength(
    case: Case, *, cut_class: CutClass, verdict: str, at_risk_ms1000: int, reasons: tuple[str, ...] = ()
) -> Strength:
    """The series of `case` with this run, whose outcome is given. A cut counts if it was of the same class,
    verified, and had records at risk. A loss counts also if its cut was of a lesser class, or had no record
    at risk: it was lost all the same."""
    this = PastVerdict(
        run=case.run,
        verdict=verdict,
        cut_class=cut_class,
        at_risk_ms1000=at_risk_ms1000,
        wall="",
        reasons=reasons,
    )
    every = (*case.series, this)
    shown = [past for past in every if past.cut_class in CUT_CLASSES]
    losses = sum(
        past.verdict == "loss" and CUT_CLASSES.index(past.cut_class) <= CUT_CLASSES.index(cut_class)
        for past in shown
    )
    kept = sum(
        past.verdict == "durable" and past.cut_class == cut_class and past.at_risk_ms1000 > 0
        for past in shown
    )
    left_out = sum(
        past.verdict == "unverified"
        or (past.verdict == "inconclusive" and not HIDE_LOSSES.isdisjoint(past.reasons))
        for past in every
    )
    cuts = kept + losses
    bound = upper_bound(losses, cuts) if cuts and not left_out else None
    return Strength(cuts=cuts, losses=losses, bound=bound, left_out=left_out)
