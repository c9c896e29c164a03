"""What n cuts, with or without a loss, show about the probability of loss at the next cut (rule 16).

The bounds are one-sided Clopper-Pearson bounds, computed by bisection on the binomial sum, so no statistics
package is needed. No probability is given if runs were left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from durability.evidence.cut import CUT_CLASSES, CutClass
from durability.evidence.drive_identity import enumerations, own_serials
from durability.formats.case import PERHAPS_CUT, PROVABLE_CUT_CLASSES, Case, PastVerdict, SessionEnd
from durability.formats.facts import Facts

CONFIDENCE = 0.95
# An inconclusive verdict with one of these reasons may hide a loss. Others only lack the proof of a cut.
HIDE_LOSSES = frozenset(
    {"superseded", "tainted", "log-behind", "drive-changed", "copied", "emptied-at-boot"}
    | {"drive-missing", "smaller-or-copy", "scan-unfinished", "unstable", "earlier-unstable"}
)
# With only these reasons, a verdict is inconclusive because of what was asked: the options and other runs.
OF_THE_QUESTION = frozenset({"cut-class", "too-few-cuts", "series-has-loss", "series-incomplete"})
# Reasons that accompany any verdict and do not make it inconclusive.
_REMARKS = frozenset({"loss-withdrawn"})
_UNKNOWN = ""  # stands for the enumerations of a run if they are unknown
_STEPS = 60  # number of bisections: enough to reach the precision of a float


def at_most_probability(losses: int, cuts: int, probability: float) -> float:
    """The probability of at most `losses` losses in `cuts` cuts if each cut loses data with `probability`."""
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
    one-sided. This is 1 - (1 - confidence)^(1/n) without a loss. It is 1.0 without a cut, or if every cut
    lost data. Raises ValueError for impossible counts."""
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


def interval(losses: int, cuts: int, *, unknown: int = 0) -> tuple[float, float]:
    """The two-sided interval at `CONFIDENCE` of the per-cut loss probability, after `losses` in `cuts` cuts.
    `unknown` further cuts may each have been a loss or not."""
    one_sided, made = (1 + CONFIDENCE) / 2, cuts + unknown
    return 1 - upper_bound(made - losses, made, one_sided), upper_bound(losses + unknown, made, one_sided)


def weightiest(given: Sequence[PastVerdict]) -> PastVerdict | None:
    """The verdict that counts, of those given on one run, oldest first (rule 9): loss, then durable by class
    of cut, then inconclusive; of equals the newest. None if there is none.

    A loss that depends only on unreadable data is dropped if a later verdict withdraws it."""
    withdrawn_before = max(
        (number for number, past in enumerate(given) if "loss-withdrawn" in past.reasons), default=0
    )
    standing = (
        past for number, past in enumerate(given) if number >= withdrawn_before or not _may_be_withdrawn(past)
    )
    # `max` takes the first of equals, so the newest comes first.
    return max(reversed(list(standing)), key=_weight, default=None)


def unverified(run: str, session_end: SessionEnd, wall: str) -> PastVerdict | None:
    """The substitute verdict of a run that has no verdict and was cut, or may have been cut while no server
    saw it (rule 16). None for other runs. `wall`: when the run was last heard from."""
    if session_end not in PERHAPS_CUT:
        return None
    return PastVerdict(run=run, verdict="unverified", cut_class="none", at_risk_ms1000=0, wall=wall)


def _may_be_withdrawn(past: PastVerdict) -> bool:
    """Whether the verdict is a loss by unreadable data alone, or one that only repeats an earlier loss."""
    repeats = "earlier-loss" in past.reasons and {"findings", "device-smaller"}.isdisjoint(past.reasons)
    return past.verdict == "loss" and ("unreadable-only" in past.reasons or repeats)


def _weight(past: PastVerdict) -> tuple[int, int]:
    if past.verdict == "loss":
        return 3, 0
    if not shows_durable(past) or past.cut_class not in CUT_CLASSES:
        return 0, 0
    return 2 if past.verdict == "durable" else 1, CUT_CLASSES.index(past.cut_class)


def shows_durable(past: PastVerdict) -> bool:
    """Whether the verdict's cut lost nothing: the verdict is durable, or only the question or other runs keep
    it from being durable."""
    lacking = set(past.reasons) - _REMARKS
    answered = past.verdict == "inconclusive" and bool(lacking)
    return past.verdict == "durable" or (answered and lacking <= OF_THE_QUESTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """What the series shows: `losses` in `cuts`, and the bound on the per-cut loss probability."""

    cuts: int
    losses: int
    bound: float | None  # None without a series or a cut, or if `left_out` is not 0
    # Whether there is a series (`has_series`); if not, only this run of the drives is known.
    is_series: bool = True
    # Runs of the series that were cut but never verified, or verified in a way that may hide a loss.
    left_out: int
    cut_class: CutClass = "none"  # class of the cuts


def has_series(armed: Facts) -> bool:
    """Whether the cuts of a run's drives can be distinguished from those of other drives: each drive has a
    serial of its own. Otherwise two drives of one model would count as one series."""
    return own_serials(armed.drives, armed.host.machine_id) is not None


def strength(
    case: Case, *, cut_class: CutClass, verdict: str, at_risk_ms1000: int, reasons: tuple[str, ...] = ()
) -> Strength:
    """The series of `case`, including this run with the given outcome. The run counts with its weightiest
    verdict and that verdict's class. A cut counts if it was of the same class, verified, and had records at
    risk. A loss also counts if its cut was of a lower class, or had no record at risk, because data were lost
    all the same. If no cut is shown, the strongest class that was verified in the series is used."""
    outcome = PastVerdict(
        run=case.run,
        verdict=verdict,
        cut_class=cut_class,
        at_risk_ms1000=at_risk_ms1000,
        wall="",
        reasons=reasons,
    )
    this = weightiest((*case.verdicts, outcome)) or outcome
    if case.armed is not None:
        this = replace(this, enumerations=enumerations(case.armed))
    every = (*case.series, this)
    shown = next((name for name in PROVABLE_CUT_CLASSES if name == this.cut_class), None)
    return _counted(every, shown or _strongest(every))


def strength_of_drive(standing: Sequence[PastVerdict]) -> Strength:
    """What the verdicts in effect on a drive's runs show, whatever the plans of the runs. The cuts are of the
    strongest class that was verified."""
    return _counted(standing, _strongest(standing))


def _strongest(every: Iterable[PastVerdict]) -> CutClass:
    classes = [past.cut_class for past in every if past.verdict == "loss" or _kept(past)]
    verified = [CUT_CLASSES.index(name) for name in CUT_CLASSES if name in classes]
    return CUT_CLASSES[max(verified, default=0)]


def _kept(past: PastVerdict) -> bool:
    return shows_durable(past) and past.at_risk_ms1000 > 0


def _counted(every: Sequence[PastVerdict], its_class: CutClass) -> Strength:
    """The cuts of `its_class`, and the losses in cuts of that class or a weaker one."""
    shown = [past for past in every if past.cut_class in CUT_CLASSES]
    lost = [
        past
        for past in shown
        if past.verdict == "loss" and CUT_CLASSES.index(past.cut_class) <= CUT_CLASSES.index(its_class)
    ]
    kept = [past for past in shown if _kept(past) and past.cut_class == its_class]
    ended = _by_cut((*lost, *kept))
    losses = sum(any(past.verdict == "loss" for past in runs) for runs in ended)
    left_out = sum(
        past.verdict == "unverified"
        or (past.verdict == "inconclusive" and not HIDE_LOSSES.isdisjoint(past.reasons))
        for past in every
    )
    cuts = len(ended)
    bound = upper_bound(losses, cuts) if cuts and not left_out else None
    return Strength(cuts=cuts, losses=losses, bound=bound, left_out=left_out, cut_class=its_class)


def _by_cut(ended: Iterable[PastVerdict]) -> list[list[PastVerdict]]:
    """The runs grouped by the cut that ended them. Runs that share an enumeration of a drive met one cut.
    Runs with unknown enumerations may all have met one cut, which may also be another run's."""
    same_as: dict[str, str] = {}

    def first_of(enumeration: str) -> str:
        while (other := same_as.setdefault(enumeration, enumeration)) != enumeration:
            enumeration = other
        return enumeration

    runs: list[tuple[str, PastVerdict]] = []
    for past in ended:
        one, *others = past.enumerations or (_UNKNOWN,)
        for other in others:
            same_as[first_of(other)] = first_of(one)
        runs.append((one, past))
    cuts: defaultdict[str, list[PastVerdict]] = defaultdict(list)
    for enumeration, past in runs:
        cuts[first_of(enumeration)].append(past)
    if len(cuts) > 1 and all(past.verdict != "loss" for past in cuts.get(_UNKNOWN, ())):
        cuts.pop(_UNKNOWN, None)
    return list(cuts.values())
