"""The truth about a history, on either rig: facts beyond those that any tester can know."""

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
    """The facts that a world knows about its history."""

    history: History
    cuts: list[PlayedCut]
    armed: list[int]  # runs that the server armed on the present drive
    assumed: AssumedRuns  # runs to which documented assumptions apply
    # The longest time, in total, between a promise and the receipt of its acknowledgement and between the
    # last frame and the cut.
    unheard_ns: int

    @property
    def known(self) -> Set[int]:
        """The runs that the server's store has as armed now."""

    @property
    def mistakable(self) -> bool:
        """Whether the system shows no difference between this drive and an earlier one that had runs."""

    @property
    def like_cuts(self) -> int:
        """Number of events that a series may count as cuts although they were not.

        Examples are a drive that became smaller, a clean restart while the network is dead, and, if drives
        look alike, a replaced drive.
        """

    @property
    def sound(self) -> Set[int]:
        """The runs to which nothing happened except one power cut under load and its consequences."""

    @property
    def load_known(self) -> bool:
        """Whether a run under load certainly did not wait for its server."""

    @property
    def stored(self) -> Mapping[int, Sequence[StoredVerdict]]:
        """By run, the verdicts in the server's store, oldest first, without those of `unanswered`."""

    @property
    def looks(self) -> Mapping[int, Sequence[PlayedLook]]:
        """By run, the reports of `verify` to the server's store, oldest first."""

    @property
    def unanswered(self) -> Set[int]:
        """The runs that may have a verdict in the store that no answer showed."""

    @property
    def plans(self) -> Mapping[int, Plan]:
        """The plans of the runs on the drive, in order."""

    @property
    def reachable(self) -> bool:
        """Whether the target can be read."""

    def promised_ns(self) -> Mapping[int, int]:
        """By run, when the drive last promised an operation."""

    def promised(self, run: int) -> PromisedOperations | None:
        """The operations that the drive promised to the run, with times; None if they were not recorded."""

    def broken(self) -> Sequence[Broken]:
        """The promises that the drive does not keep now, or did not keep earlier."""

    def broken_now(self) -> Sequence[Broken]:
        """The promises that the drive does not keep now."""

    def metadata_broken(self) -> Set[int]:
        """The runs whose files depend on a promise to the file system that the drive broke."""

    def smaller(self, run: int) -> bool:
        """Whether the drive has power, and is smaller than it was when the run was armed."""

    def grown(self, run: int) -> bool:
        """Whether the drive was made larger since the run was armed."""

    def renamed(self, run: int) -> bool:
        """Whether the target or its drive has another name than when the run began to write."""

    def left_behind(self, run: int) -> bool:
        """Whether the target was moved without the files that hold the run's records."""

    def series(self, run: int) -> SeriesRuns | None:
        """The series of an armed run; None if it is not known."""

    def target(self) -> Storage:
        """The target as it can be read now."""
