"""What is known of a history beyond what any tester can know, on either rig."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Protocol

from durability.formats.plan import Plan
from durability_client.target.storage import Storage
from durability_lab.drive.drive_log import Broken
from durability_lab.histories.assumed_runs import AssumedRuns
from durability_lab.histories.cuts_and_answers import PlayedCut, PlayedLook
from durability_lab.histories.figures import PromisedOperations
from durability_lab.histories.series import SeriesRuns
from durability_lab.histories.steps import History
from durability_lab.histories.stored_verdicts import StoredVerdict


class KnownTruth(Protocol):
    """What a world knows of its history. `armed`: the runs that the server armed on the drive as it is, and
    `known`: those that the store has as it is now; `assumed`: those that documented assumptions are about;
    `sound`: those that nothing happened to but one cut of the power under load, and what follows it;
    `like_cuts`: what a series may count though it was no cut (a drive that became smaller, a clean restart in
    a dead network, where drives look alike one in the place of another); `mistakable`: nothing that a system
    shows tells the drive as it is from one before it, on which there were runs; `load_known`: a run under
    load is known not to have waited for its server. `unheard_ns`: the most that may lie between a promise
    and the receipt of its acknowledgement, and between the last frame and the cut, together."""

    history: History
    cuts: list[PlayedCut]
    armed: list[int]
    assumed: AssumedRuns
    unheard_ns: int

    @property
    def known(self) -> Set[int]:
        """See above."""

    @property
    def mistakable(self) -> bool:
        """See above."""

    @property
    def like_cuts(self) -> int:
        """See above."""

    @property
    def sound(self) -> Set[int]:
        """See above."""

    @property
    def load_known(self) -> bool:
        """See above."""

    @property
    def stored(self) -> Mapping[int, Sequence[StoredVerdict]]:
        """By run, the verdicts that the server's store has, oldest first; `unanswered` aside."""

    @property
    def looks(self) -> Mapping[int, Sequence[PlayedLook]]:
        """By run, what calls of `verify` have told the server's store, oldest first."""

    @property
    def unanswered(self) -> Set[int]:
        """The runs of which the store may have a verdict that nobody has seen."""

    @property
    def plans(self) -> Mapping[int, Plan]:
        """Of the runs on the drive, in order."""

    @property
    def reachable(self) -> bool:
        """Whether the target can be read."""

    def promised_ns(self) -> Mapping[int, int]:
        """By run, when the drive last promised an operation."""

    def promised(self, run: int) -> PromisedOperations | None:
        """What the drive promised of the run, and when; None where nobody noted it."""

    def broken(self) -> Sequence[Broken]:
        """The promises that the drive does not keep, or did not."""

    def broken_now(self) -> Sequence[Broken]:
        """Those that it does not keep now."""

    def metadata_broken(self) -> Set[int]:
        """The runs for which the drive broke a promise to the file system that what they wrote rests on."""

    def smaller(self, run: int) -> bool:
        """Whether the drive has power, and is smaller than it was when the run was armed."""

    def grown(self, run: int) -> bool:
        """Whether the drive was made larger since the run was armed."""

    def renamed(self, run: int) -> bool:
        """Whether the target, or its drive, has another name than when the run began to write."""

    def left_behind(self, run: int) -> bool:
        """Whether the target was moved without the files in which the run has its records."""

    def series(self, run: int) -> SeriesRuns | None:
        """What an armed run is in one series with; None where that is not known."""

    def target(self) -> Storage:
        """The target as it can be read now."""
