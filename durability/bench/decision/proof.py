"""Proof: what cuts of its power have said of a drive that was measured.

A benchmark cannot tell a protected cache from an ignored flush; a campaign of cuts can. The cuts were counted
and bounded elsewhere; this puts them into words beside a rate. Refuses to call a drive proven by few cuts, or
by cuts that left the drive its power.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from durability.bench.intervals import CONFIDENCE
from durability.bench.plausibility import Code
from durability.units import counted

ProofWord: TypeAlias = Literal["proven", "too few cuts", "lost data"]
# How pages show each word.
PROOF_CLASSES: dict[ProofWord, str] = {"proven": "yes", "too few cuts": "open", "lost data": "no"}

BOUND_MAX = 0.05  # the share of cuts that may lose data, with 95 % confidence
# The fewest without a loss that show so much: 59.
CUTS_NEEDED = math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - BOUND_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """`losses` in `cuts` of the class `cut_class` ("power", "vm" or "os"). `bound`: the largest share of cuts
    with a loss that they do not exclude, None if nothing may be said. `source`: the campaign or run, in
    words; `lost_in`: where the first loss was, "" for none. `unknown`: cuts with unknown outcome. `by_fua`:
    that the commits of all cuts were writes with FUA, which no flush followed. `but`: in what the cuts were
    of something else than the result beside which they stand, "" for nothing. `unanswered`: the cuts with
    unknown outcome of another series on the drive, in words, "" for none. `withheld`: that the cut stack sent
    no flush and the measured one does, so that a loss says nothing of it. `disputed`: what clients whose runs
    do not count say against the drive, in words, "" for nothing."""

    cuts: int
    losses: int
    bound: float | None
    cut_class: str
    source: str
    lost_in: str
    unknown: int = 0
    by_fua: bool = False
    but: str = ""
    unanswered: str = ""
    withheld: bool = False
    disputed: str = ""

    @property
    def word(self) -> ProofWord:
        """The outcome in a word or three."""
        if self.losses and not self.withheld:
            return "lost data"
        enough = self.bound is not None and self.bound <= BOUND_MAX and self.cut_class == "power"
        lacks = self.but or self.unanswered or self.disputed
        return "proven" if enough and not lacks else "too few cuts"

    @property
    def waits_for_answers(self) -> bool:
        """Whether cuts that may speak against the drive have no outcome, and none is known to have lost."""
        return not self.losses and bool(self.unanswered or (self.bound is None and not self.but))

    @property
    def cuts_missing(self) -> int:
        """How many more cuts of the power without a loss would prove the drive, if nothing else lacks."""
        return CUTS_NEEDED - self.cuts if self.cut_class == "power" else CUTS_NEEDED

    @property
    def voids(self) -> bool:
        """Whether its cuts, some of which have no outcome, keep others of the drive from proving it, of
        whatever stack they were: any of them may have lost data. Not if that would say nothing either."""
        return self.bound is None and not self.losses and not self.withheld and self.cut_class == "power"

    @property
    def text(self) -> str:
        """The outcome for a row of a table."""
        if self.losses:
            lost = f"lost data in {self.lost_in or self.source}"
            if self.withheld:
                return f"{lost}, but {self.but}"
            return f"{lost} ({self.but})" if self.but else lost
        if self.word == "proven":
            return f"proven in {counted(self.cuts, 'cut')}"
        kind = "" if self.cut_class == "power" else f" of class {self.cut_class}"
        if not self.cuts:
            return f"{counted(self.unknown, 'cut')}{kind} with unknown outcome"
        return f"no loss in {counted(self.cuts, 'cut')}{kind}{self._why_too_few}"

    @property
    def _why_too_few(self) -> str:
        # First what the next run on the same target would make unknowable.
        if lacks := self.unanswered or self.but or self.disputed:
            return f", but {lacks}"
        if self.bound is None:
            return f", {counted(self.unknown, 'other')} with unknown outcome"
        return ": the drive kept its power" if self.cut_class != "power" else f"; {CUTS_NEEDED} are needed"


def outweighs(proof: Proof | None, code: Code) -> bool:
    """Whether cuts outweigh the verdict `code` on what times can show: a drive that is proven keeps what it
    acknowledged, however fast it was. Not where no flush was sent, since then no drive was asked. What
    clients say whose runs do not count makes no times suspicious, else any of them could."""
    return proof is not None and replace(proof, disputed="").word == "proven" and code != "no-flush-sent"


def weightiest_proof(proofs: list[Proof]) -> Proof | None:
    """The proof that counts of several on one drive: a loss, else the most cuts of the heaviest word. Another
    series with cuts that have no answer keeps it from proving the drive, and it says so. Of too few cuts, it
    says how many of the same campaign were of another stack."""
    order: dict[ProofWord, int] = {"lost data": 2, "proven": 1, "too few cuts": 0}
    heaviest = max(
        proofs,
        key=lambda one: (order[one.word], one.cut_class == "power", not one.but, one.cuts),
        default=None,
    )
    if heaviest is None or heaviest.word == "lost data" or heaviest.bound is None:
        return heaviest
    if heaviest.word == "too few cuts" and not heaviest.but:
        heaviest = replace(heaviest, but=of_other_stacks(heaviest, proofs))
    # Of a weaker class they may have left the drive its power.
    void = next((one for one in proofs if one.voids), None)
    if void is None:
        return heaviest
    open_cuts = f"{counted(void.unknown, 'cut')} of {void.source} with unknown outcome"
    return replace(heaviest, unanswered=open_cuts)


def of_other_stacks(proof: Proof, others: Iterable[Proof]) -> str:
    """The cuts of the campaign of `proof` that were of other stacks than the measured one, in words; "" for
    none."""
    apart = (one for one in others if one.source == proof.source and one.but and one.cuts)
    return " and ".join(f"{counted(one.cuts, 'cut')} of {one.source} {one.but}" for one in apart)
