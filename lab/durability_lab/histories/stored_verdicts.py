"""The verdicts in the server's store, from the answers of `verify`: which one stands, and what `runs` shows.

This is the truth's own reading of rule 9: it shares no code with the judge or the server.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

# Classes of a cut, as in a document, in rising order.
CLASSES: Final = ("none", "os", "vm", "power")
_WORDS: Final = ("", "inconclusive", "durable", "loss")  # in rising order
# With only these reasons, a verdict lacks further or other cuts; its own cut is complete.
OTHER_CUTS: Final = frozenset({"too-few-cuts", "series-has-loss", "series-incomplete"})
_OF_THE_QUESTION = OTHER_CUTS | {"cut-class"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict:
    """One verdict."""

    word: str
    cut_class: str
    at_risk: bool  # any record was acknowledged within a second before the cut
    codes: frozenset[str]  # codes of its reasons

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> StoredVerdict:
        """The verdict in a document of `verify`."""
        return cls(
            word=str(document["verdict"]),
            cut_class=str(document["cut"]["class"]),
            at_risk=document["at_risk"]["ms1000"] > 0,
            codes=frozenset(reason["code"] for reason in document["reasons"]),
        )

    @property
    def by_reads(self) -> bool:
        """Whether this is a loss that a later `verify` withdraws if it can read everything."""
        grave = "unreadable-only" not in self.codes and self.codes & {"findings", "device-smaller"}
        return self.word == "loss" and not grave

    @property
    def kept_all(self) -> bool:
        """Whether the cut lost nothing, even if the verdict lacks something else that was asked."""
        lacking = self.codes - {"loss-withdrawn"}
        asked_more = self.word == "inconclusive" and bool(lacking) and lacking <= _OF_THE_QUESTION
        return self.word == "durable" or asked_more

    @property
    def _weight(self) -> tuple[int, int]:
        if self.word == "loss":
            return 3, 0
        if not self.kept_all:
            return 0, 0
        return 2 if self.word == "durable" else 1, CLASSES.index(self.cut_class)


def standing(given: Sequence[StoredVerdict]) -> StoredVerdict:
    """The weightiest of the verdicts on a run, the newest of equals. `given`: at least one, oldest first."""
    read_since = max((number for number, one in enumerate(given) if "loss-withdrawn" in one.codes), default=0)
    left = [one for number, one in enumerate(given) if number >= read_since or not one.by_reads]
    return max(reversed(left), key=lambda one: one._weight)


def listing(
    stored: Mapping[int, Sequence[StoredVerdict]], unanswered: Container[int], listed: Mapping[int, str]
) -> Iterator[str]:
    """A sentence for each run for which `runs` does not show the weightiest stored verdict.

    `unanswered`: runs with a possible stored verdict that no answer showed. It may be a heavier one, or one
    that withdraws a loss.
    """
    for run, given in stored.items():
        word, shown = standing(given).word, listed.get(run, "")
        may_fall = word == "loss" and all(one.by_reads for one in given if one.word == "loss")
        unseen = run in unanswered and (may_fall or _WORDS.index(shown) > _WORDS.index(word))
        if shown != word and not unseen:
            yield f"`runs` shows {shown or 'nothing'}, though the weightiest verdict was {word}"
