"""What a world notes of its history: the cuts, and what each `verify` said of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from durability.formats.case import Case
from durability.units import parse_run
from durability_lab.histories.steps import Step

AT_RISK_NS = 1_000_000_000  # what the judge calls at risk
ATTESTATION = "the operator pulled the plug"
_HARDWARE = ("machine", "drive")
# What must have lost its power, or died, for a cut of a class to have happened.
_CUT_SUBJECTS = {"os": ("guest", *_HARDWARE), "vm": _HARDWARE, "power": _HARDWARE}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedCut:
    """Something lost its power, or its operating system. `promised_ns`: see `EventfulDrive`, at that time.
    `heard`: the server runs, and the network works, at that time. `in_guest`: it was a guest, or its drive:
    the host kept its power, and what that lost was its own."""

    at_ns: int
    what: str
    promised_ns: dict[int, int]
    heard: bool = False
    in_guest: bool = False

    def is_of(self, cut_class: str) -> bool:
        """Whether it was a cut of that class."""
        host_lost_power = not (self.in_guest and cut_class == "power")
        return self.what in _CUT_SUBJECTS.get(cut_class, ()) and host_lost_power

    def is_attested_as(self, cut_class: str) -> bool:
        """Whether an honest operator says so, who names every class but power: of a guest that was forced off
        as a whole its end is known to mean no more."""
        forced_off = self.in_guest and self.what == "machine"
        return self.is_of("vm" if cut_class == "power" and forced_off else cut_class)

    def hit(self, run: int) -> bool:
        """Whether the drive had promised something to the run."""
        return run in self.promised_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedLook:
    """A `verify` that told the server, between `began_ns` and `ended_ns`, what it found of the machine and
    the drive. `went_on`: that was still in the boot of the run, with the same drive; `attested`: the class
    of cut that its operator attested, "" for none, and `falsely`: what was not true. `certain`: else it
    may have told nothing."""

    began_ns: int
    ended_ns: int
    went_on: bool
    attested: str
    falsely: bool
    certain: bool


def attests(step: Step, cuts: Iterable[PlayedCut], judged: Iterable[int]) -> bool:
    """Whether the operator of a `verify` of the runs `judged` says that there was a cut."""
    if step["attest"] != "true":
        return step["attest"] == "false"
    runs = tuple(judged)
    return any(cut.is_attested_as(step["cut_class"]) and cut.hit(run) for cut in cuts for run in runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyAnswer:
    """What one `verify` said, and how the world was then, from `began_ns` to `at_ns`. `document` None:
    it refused, for the reason `why`. `case`: the log that it judged by; `older`: the operator asked
    for an older run by name, or for that of an export; `exported`: it was read from one, so the answer
    was not stored. `smaller`: the runs for which the drive was smaller than it had been, when verify
    began. `interrupted`: something happened while it went on. `recovered`: so did the drive, which
    gave back meanwhile what could not be read at first. `flipped`: where a read had a wrong bit in
    passing, what its sector begins with; b"" if none had. `beside`: what another `verify` said, which
    was begun meanwhile. `went_on`: the runs in whose boot the machine was
    when verify began, with the same drive."""

    step: Step
    began_ns: int
    at_ns: int
    document: dict[str, Any] | None
    why: str
    case: Case | None
    attested: bool
    older: bool
    exported: bool
    smaller: frozenset[int]
    interrupted: bool = False
    recovered: bool = False
    flipped: bytes = b""
    beside: VerifyAnswer | None = None
    went_on: frozenset[int] = frozenset()
    others: Mapping[int, bool] = field(default_factory=dict)
    looks: Mapping[int, Sequence[PlayedLook]] | None = None

    def look(self, run: int) -> PlayedLook:
        """What the server has learned by it of a run, even if the answer was not stored."""
        judged = None if self.document is None else parse_run(self.document["run"])
        said = judged in (None, run) or self.others.get(run, False)
        known = judged is not None and self.case is not None  # else perhaps
        return PlayedLook(
            began_ns=self.began_ns,
            ended_ns=self.at_ns,
            attested=self.step["cut_class"] if self.attested and said else "",
            went_on=judged is not None and run in self.went_on,
            falsely=self.step["attest"] == "false" and said,
            certain=known and (judged == run or run in self.others),
        )
