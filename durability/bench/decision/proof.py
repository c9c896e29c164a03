"""Proof: the evidence of power cuts on a drive that was measured.

A benchmark cannot distinguish a protected cache from an ignored flush; a campaign of cuts can. Other modules
count the cuts and compute the bound; this module puts them into words. A drive is not called proven after few
cuts, or after cuts in which the drive kept its power.
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
# The style in which pages show each word.
PROOF_CLASSES: dict[ProofWord, str] = {"proven": "yes", "too few cuts": "open", "lost data": "no"}

# A drive is proven if, with 95 % confidence, at most this share of cuts loses data.
BOUND_MAX = 0.05
# The fewest cuts without a loss that give this bound: 59.
CUTS_NEEDED = math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - BOUND_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Outcomes of the power cuts of one campaign or series of runs on a drive."""

    cuts: int  # cuts with a known outcome
    losses: int
    bound: float | None  # largest share of cuts with a loss that the cuts do not exclude, None if unknown
    cut_class: str  # "power", "vm" or "os"
    source: str  # the campaign or run, in words
    lost_in: str  # where the first loss was, in words, "" for none
    unknown: int = 0  # cuts with unknown outcome
    by_fua: bool = False  # the commits of all cuts were writes with FUA, without a flush after them
    but: str = ""  # how the cut stack differs from the measured stack, in words, "" for no difference
    unanswered: str = ""  # cuts with unknown outcome in another series on the drive, in words, "" for none
    withheld: bool = False  # the cut stack sent no flush and the measured one does: a loss says nothing of it
    disputed: str = ""  # claims against the drive by clients whose runs do not count, in words, "" for none
    unsearched: str = ""  # what was not searched and may know a loss, in words, "" for nothing
    # The losses in words, arm by arm, if an arm that does not cut under load lost data. Else "".
    lost_by_arm: str = ""

    @property
    def word(self) -> ProofWord:
        """The outcome in one to three words."""
        if self.losses and not self.withheld:
            return "lost data"
        enough = self.bound is not None and self.bound <= BOUND_MAX and self.cut_class == "power"
        lacks = self.but or self.unanswered or self.disputed or self.unsearched
        return "proven" if enough and not lacks else "too few cuts"

    @property
    def losses_text(self) -> str:
        """The losses and the cuts that they were seen in, in words."""
        return self.lost_by_arm or losses_in(self.losses, self.cuts)

    @property
    def waits_for_answers(self) -> bool:
        """Whether no loss is known, but cuts that may count against the drive have no outcome yet."""
        return not self.losses and bool(self.unanswered or (self.bound is None and not self.but))

    @property
    def cuts_missing(self) -> int:
        """Number of further power cuts without a loss that would prove the drive, if nothing else is
        missing."""
        return CUTS_NEEDED - self.cuts if self.cut_class == "power" else CUTS_NEEDED

    @property
    def voids(self) -> bool:
        """Whether the cuts without an outcome keep other cuts of the drive from proving it, in any stack:
        each may have lost data. False if a loss would say nothing about the measured stack, and for cuts that
        may have left the drive powered."""
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
        # Unanswered cuts come first: the next run on the same target would destroy their evidence.
        if lacks := self.unanswered or self.but or self.disputed or self.unsearched:
            return f", but {lacks}"
        if self.bound is None:
            return f", {counted(self.unknown, 'other')} with unknown outcome"
        return ": the drive kept its power" if self.cut_class != "power" else f"; {CUTS_NEEDED} are needed"


def losses_in(losses: int, cuts: int) -> str:
    """Losses and cuts, in words."""
    return f"{counted(losses, 'loss', 'losses')} in {counted(cuts, 'cut')}"


def outweighs(proof: Proof | None, code: Code) -> bool:
    """Whether the cuts outweigh the plausibility verdict `code`: a proven drive keeps acknowledged data
    however fast it is. Cuts never outweigh "no-flush-sent", because no drive got the flush. Claims of clients
    whose runs do not count are ignored here: otherwise any client could make a drive suspicious. So is what
    was not searched: it changes nothing about the cuts that are known."""
    if proof is None or code == "no-flush-sent":
        return False
    return replace(proof, disputed="", unsearched="").word == "proven"


def weightiest_proof(proofs: list[Proof]) -> Proof | None:
    """The proof that counts among several on one drive: a loss first, then the proof with the best word and
    the most cuts. If another series has cuts without an outcome, the proof names them and does not prove the
    drive. A proof of too few cuts says how many cuts of the same campaign were of another stack."""
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
    # Only series of class "power" void others: cuts of weaker classes may have left the drive powered.
    void = next((one for one in proofs if one.voids), None)
    if void is None:
        return heaviest
    open_cuts = f"{counted(void.unknown, 'cut')} of {void.source} with unknown outcome"
    return replace(heaviest, unanswered=open_cuts)


def of_other_stacks(proof: Proof, others: Iterable[Proof]) -> str:
    """The cuts of the same campaign in other stacks than the measured one, in words. "" for none."""
    apart = (one for one in others if one.source == proof.source and one.but and one.cuts)
    return " and ".join(f"{counted(one.cuts, 'cut')} of {one.source} {one.but}" for one in apart)
