"""Proof: what cuts of its power have said of a drive that was measured.

A benchmark cannot tell a protected cache from an ignored flush; a campaign of cuts can. The cuts were counted
and bounded elsewhere; this puts them into words beside a rate. Refuses to call a drive proven by few cuts, or
by cuts that left the drive its power.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from durability.units import counted

ProofWord: TypeAlias = Literal["proven", "too few cuts", "lost data"]

BOUND_MAX = 0.05  # the share of cuts that may lose data, with 95 % confidence: 59 cuts without a loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """`losses` in `cuts` of the class `cut_class` ("power", "vm" or "os"). `bound`: the largest share of cuts
    with a loss that they do not exclude, None if nothing may be said. `source`: the campaign or run, in
    words; `lost_in`: where the first loss was, "" for none."""

    cuts: int
    losses: int
    bound: float | None
    cut_class: str
    source: str
    lost_in: str

    @property
    def word(self) -> ProofWord:
        """The outcome in a word or three."""
        if self.losses:
            return "lost data"
        enough = self.bound is not None and self.bound <= BOUND_MAX
        return "proven" if enough and self.cut_class == "power" else "too few cuts"

    @property
    def text(self) -> str:
        """The outcome for a row of a table."""
        if self.losses:
            return f"lost data in {self.lost_in or self.source}"
        if self.word == "proven":
            return f"proven in {counted(self.cuts, 'cut')}"
        kind = "" if self.cut_class == "power" else f" of class {self.cut_class}"
        none = f"no loss in {counted(self.cuts, 'cut')}{kind}"
        if self.bound is None:
            return f"{none}, others have no answer"
        if self.cut_class != "power":
            return f"{none}: the drive kept its power"
        return f"{none}; up to {self.bound:.0%} may lose"


def weightiest(proofs: list[Proof]) -> Proof | None:
    """The proof that counts of several on one drive: a loss, else the most cuts of the heaviest word."""
    order: dict[ProofWord, int] = {"lost data": 2, "proven": 1, "too few cuts": 0}
    return max(proofs, key=lambda one: (order[one.word], one.cut_class == "power", one.cuts), default=None)
