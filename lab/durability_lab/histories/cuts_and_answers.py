"""A world's records of its history: the cuts, and the answers of each `verify`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from durability.formats.case import Case
from durability.units import parse_run
from durability_lab.histories.steps import Step

AT_RISK_NS = 1_000_000_000  # the judge calls records at risk for this time after their acknowledgement
ATTESTATION = "the operator pulled the plug"
_HARDWARE = ("machine", "drive")
# The subjects whose power loss or death is a cut of a class.
_CUT_SUBJECTS = {"os": ("guest", *_HARDWARE), "vm": _HARDWARE, "power": _HARDWARE}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedCut:
    """A cut: a machine or drive lost its power, or an operating system died."""

    at_ns: int
    what: str  # "machine", "drive" or "guest" (the operating system alone)
    promised_ns: dict[int, int]  # by run: when the drive had last promised an operation
    heard: bool = False  # at that time the server ran and the network worked; not set on rig B
    in_guest: bool = False  # the machine is a guest, whose host kept its power

    def is_of(self, cut_class: str) -> bool:
        """Whether this was a cut of that class."""
        host_lost_power = not (self.in_guest and cut_class == "power")
        return self.what in _CUT_SUBJECTS.get(cut_class, ()) and host_lost_power

    def is_attested_as(self, cut_class: str) -> bool:
        """Whether an honest operator attests this cut as one of that class.

        For a whole guest that was forced off, an attestation of `power` means no more than `vm`.
        """
        forced_off = self.in_guest and self.what == "machine"
        return self.is_of("vm" if cut_class == "power" and forced_off else cut_class)

    def hit(self, run: int) -> bool:
        """Whether the drive had promised an operation to the run."""
        return run in self.promised_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedLook:
    """The facts that one `verify` reported to the server about the machine and the drive of a run."""

    began_ns: int
    ended_ns: int
    went_on: bool  # the machine was still in the boot of the run, with the same drive
    attested: str  # the class of cut that the operator attested, "" for none
    falsely: bool  # the attestation was false
    certain: bool  # the server has certainly received the report


def attests(step: Step, cuts: Iterable[PlayedCut], judged: Iterable[int]) -> bool:
    """Whether the operator attests a cut in a `verify` of the runs `judged`."""
    if step["attest"] != "true":
        return step["attest"] == "false"
    runs = tuple(judged)
    return any(cut.is_attested_as(step["cut_class"]) and cut.hit(run) for cut in cuts for run in runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyAnswer:
    """The answer of one `verify`, and the state of the world meanwhile."""

    step: Step
    began_ns: int
    at_ns: int  # when `verify` ended
    document: dict[str, Any] | None  # None: `verify` gave no verdict
    why: str  # why there is no verdict
    case: Case | None  # the log by which the run was judged
    attested: bool  # the operator attested a cut
    older: bool  # the operator asked for an older run by its number, or for the run of an export
    exported: bool  # the log came from an export, so the answer was not stored
    smaller: frozenset[int]  # when `verify` began, the drive was smaller than it had been for these runs
    interrupted: bool = False  # an event disturbed this `verify`
    recovered: bool = False  # the drive became able to read sectors that it could not read at first
    flipped: bytes = b""  # the label of the sector in which a read had one wrong bit; b"" without one
    beside: VerifyAnswer | None = None  # the answer of another `verify` that began meanwhile
    went_on: frozenset[int] = frozenset()  # when `verify` began: runs of this boot with this drive
    # By run: other runs whose machine and drive this `verify` reports on; whether nothing happened between.
    others: Mapping[int, bool] = field(default_factory=dict)
    looks: Mapping[int, Sequence[PlayedLook]] | None = None  # if `exported`: the reports in that export

    def look(self, run: int) -> PlayedLook:
        """What this `verify` reported to the server about a run, even if the answer was not stored."""
        judged = None if self.document is None else parse_run(self.document["run"])
        said = judged in (None, run) or self.others.get(run, False)
        known = judged is not None and self.case is not None  # otherwise the report is only possible
        return PlayedLook(
            began_ns=self.began_ns,
            ended_ns=self.at_ns,
            attested=self.step["cut_class"] if self.attested and said else "",
            went_on=judged is not None and run in self.went_on,
            falsely=self.step["attest"] == "false" and said,
            certain=known and (judged == run or run in self.others),
        )
