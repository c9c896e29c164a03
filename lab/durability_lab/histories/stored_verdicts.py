"""The verdicts that the server's store has of a history, by what `verify` answered: which of a run's stands,
and what `runs` must show.

The truth's own reading of rule 9: it shares no code with the judge or the server.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

# Classes of a cut, as said in a document, in rising order.
CLASSES: Final = ("none", "os", "vm", "power")
_WORDS: Final = ("", "inconclusive", "durable", "loss")  # in rising order
# What a verdict lacks then is further cuts, or other ones, and nothing of its own.
OTHER_CUTS: Final = frozenset({"too-few-cuts", "series-has-loss", "series-incomplete"})
_OF_THE_QUESTION = OTHER_CUTS | {"cut-class"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict:
    """One verdict. `codes`: of its reasons; `at_risk`: whether any record was, within a second."""

    word: str
    cut_class: str
    at_risk: bool
    codes: frozenset[str]

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> StoredVerdict:
        """That of a document of `verify`."""
        return cls(
            word=str(document["verdict"]),
            cut_class=str(document["cut"]["class"]),
            at_risk=document["at_risk"]["ms1000"] > 0,
            codes=frozenset(reason["code"] for reason in document["reasons"]),
        )

    @property
    def by_reads(self) -> bool:
        """Whether it is a loss that a pass that reads everything withdraws."""
        grave = "unreadable-only" not in self.codes and self.codes & {"findings", "device-smaller"}
        return self.word == "loss" and not grave

    @property
    def kept_all(self) -> bool:
        """Whether its cut lost nothing, whatever else was asked."""
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
    """The weightiest verdict of at least one on a run, oldest first; the newest of equals."""
    read_since = max((number for number, one in enumerate(given) if "loss-withdrawn" in one.codes), default=0)
    left = [one for number, one in enumerate(given) if number >= read_since or not one.by_reads]
    return max(reversed(left), key=lambda one: one._weight)


def listing(
    stored: Mapping[int, Sequence[StoredVerdict]], unanswered: Container[int], listed: Mapping[int, str]
) -> Iterator[str]:
    """Where `runs` does not show the weightiest verdict that was stored. `unanswered`: runs of which a verify
    may have stored one that nobody has seen: a heavier one, or one that withdraws a loss."""
    for run, given in stored.items():
        word, shown = standing(given).word, listed.get(run, "")
        may_fall = word == "loss" and all(one.by_reads for one in given if one.word == "loss")
        unseen = run in unanswered and (may_fall or _WORDS.index(shown) > _WORDS.index(word))
        if shown != word and not unseen:
            yield f"`runs` shows {shown or 'nothing'}, though the weightiest verdict was {word}"
