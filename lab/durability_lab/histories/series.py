"""Checks a verdict's statements about its series (rule 16) with a second count of the standing verdicts.

The verdicts are those that `verify` gave and the server stored. The truth knows which runs are of one series.
The bound is compared with the plain sum of a binomial distribution. This module shares no code with the
judge. Its caller does not use it if a run may have a stored verdict that no answer showed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import comb, isclose
from typing import Any, Final

from durability_lab.histories.stored_verdicts import CLASSES, OTHER_CUTS, StoredVerdict, standing

_CONFIDENCE: Final = 0.95
# Inconclusive verdicts with one of these reasons may hide a loss.
_HIDING: Final = frozenset(
    {"superseded", "tainted", "log-behind", "scan-unfinished", "unstable", "earlier-unstable"}
    | {"drive-changed", "drive-missing", "copied", "emptied-at-boot", "smaller-or-copy"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRuns:
    """The armed runs of one series that the server knows."""

    # By run: a key that all runs share that one cut ended, such as the machine's boot and the drive's number
    # of power-ons.
    ended_in: Mapping[int, Hashable]
    cut: Set[int]  # runs that met a cut whose traces the server must have seen
    counts: bool  # the drive can be distinguished from others


def untrue_bound(strength: Mapping[str, Any]) -> Iterator[str]:
    """A sentence if the bound does not follow from the numbers of losses and cuts."""
    cuts, losses, bound = strength["cuts"], strength["losses"], strength["bound"]
    if bound is None:
        return
    if not 0 <= losses <= cuts or not cuts:
        yield f"a bound of {bound} after {losses} losses in {cuts} cuts"
    elif losses == cuts:
        if bound != 1.0:
            yield f"a bound of {bound}, and each of {cuts} cuts lost"
    else:
        # If the bound were the true probability, so few losses would have the probability 1 - confidence.
        few = sum(comb(cuts, k) * bound**k * (1 - bound) ** (cuts - k) for k in range(losses + 1))
        if not isclose(few, 1 - _CONFIDENCE, rel_tol=1e-6):
            yield f"a bound of {bound} after {losses} losses in {cuts} cuts: so few have probability {few}"


def untrue_series(
    document: Mapping[str, Any], run: int, runs: SeriesRuns, stored: Mapping[int, Sequence[StoredVerdict]]
) -> Iterator[str]:
    """Each false statement about the series in a document on `run`, as a sentence. `run` is one of `runs`.
    `stored`: all verdicts that the server had before."""
    strength = document["strength"]
    others = [one for one in runs.ended_in if one != run]
    outcome = StoredVerdict.of_document(document)
    if outcome.codes and outcome.codes <= OTHER_CUTS:
        outcome = StoredVerdict(
            word="durable", cut_class=outcome.cut_class, at_risk=outcome.at_risk, codes=frozenset()
        )
    standing_of = {one: standing(stored[one]) for one in others if stored.get(one)}
    standing_of[run] = standing([*stored.get(run, ()), outcome])
    cuts, losses = _counted(standing_of, standing_of[run], runs)
    if (strength["cuts"], strength["losses"]) != (cuts, losses):
        yield (
            f"a series of {strength['cuts']} cuts, {strength['losses']} with a loss, and the verdicts that"
            f" stand are of {cuts} cuts, {losses} with a loss"
        )
    hidden = any(
        one.word == "inconclusive" and not _HIDING.isdisjoint(one.codes) for one in standing_of.values()
    )
    unverified = [one for one in others if one not in standing_of]
    void = hidden or not runs.counts or any(one in runs.cut for one in unverified)
    if void and strength["bound"] is not None:
        yield f"a bound of {strength['bound']}, though a cut of the series may hide a loss"
    if cuts and not (void or unverified) and strength["bound"] is None:
        yield f"no bound after {cuts} cuts that were all verified"


def _counted(
    standing_of: Mapping[int, StoredVerdict], this: StoredVerdict, runs: SeriesRuns
) -> tuple[int, int]:
    """Number of cuts behind the standing verdicts, and number of those cuts that lost data.

    Only cuts of the class of `this` count; if that class is `none`, those of the strongest class. Losses of
    weaker classes count too.
    """

    def counts(one: StoredVerdict) -> bool:
        return one.word == "loss" or (one.kept_all and one.at_risk)

    verified = [CLASSES.index(one.cut_class) for one in standing_of.values() if counts(one)]
    its = CLASSES.index(this.cut_class) or max(verified, default=0)
    lost_by: dict[Hashable, bool] = {}  # by the key that the runs of one cut share
    for run, one in standing_of.items():
        shown, lost = CLASSES.index(one.cut_class), one.word == "loss"
        if counts(one) and (shown == its or (lost and shown < its)):
            ended_in = runs.ended_in.get(run)
            lost_by[ended_in] = lost or lost_by.get(ended_in, False)
    return len(lost_by), sum(lost_by.values())
