"""The truth about a history in virtual time: the cuts, the drive's promises, and changes to the target.

`world` plays the steps and reports them here; the rest is read from the drive. This module causes no events
and judges nothing: `deserved` judges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from durability.formats.plan import Plan
from durability_lab.drive.drive_log import Broken
from durability_lab.histories.assumed_runs import AssumedRuns
from durability_lab.histories.cuts_and_answers import PlayedCut, PlayedLook
from durability_lab.histories.figures import PromisedOperations
from durability_lab.histories.series import SeriesRuns
from durability_lab.histories.simulated.eventful_drive import HistoryStorage
from durability_lab.histories.simulated.history_machine import HistoryMachine
from durability_lab.histories.simulated.history_server import HistoryServer
from durability_lab.histories.simulated.unheard_clients import UNHEARD_NS
from durability_lab.histories.simulated.virtual_loop import VirtualLoop
from durability_lab.histories.sound_runs import SoundRuns
from durability_lab.histories.steps import History, Step
from durability_lab.histories.store_copies import StoreCopies
from durability_lab.histories.stored_verdicts import StoredVerdict


class HistoryTruth:
    """A `KnownTruth`. Only the methods `note_…` change its attributes."""

    def __init__(
        self,
        history: History,
        machine: HistoryMachine,
        server: HistoryServer,
        store: StoreCopies,
        loop: VirtualLoop,
        *,
        assumed: AssumedRuns,
    ) -> None:
        self.history = history
        self.assumed = assumed
        self.unheard_ns = UNHEARD_NS
        self.cuts: list[PlayedCut] = []
        self.armed: list[int] = []
        self.like_cuts = 0
        self.mistakable = False
        self._machine = machine
        self._server = server
        self._store = store
        self._loop = loop
        self._sound_runs = SoundRuns()
        self._names: dict[int, tuple[Path, str]] = {}  # by run: path of its target, serial of its drive
        self._begun_in: dict[int, tuple[str, int]] = {}  # by run: the boot, and generation of the drive
        self._replaced = False
        self._broken_before: list[Broken] = []  # promises that this drive broke at its cuts
        self._left_behind: set[int] = set()  # runs whose files beside the target are elsewhere
        self._metadata_lost: set[int] = set()  # runs whose file system lost metadata of their files

    # Facts.

    @property
    def known(self) -> set[int]:
        """The runs that the server's store has as armed now."""
        return self._store.known

    @property
    def stored(self) -> Mapping[int, Sequence[StoredVerdict]]:
        """By run, the verdicts in the server's store."""
        return self._store.stored

    @property
    def looks(self) -> Mapping[int, Sequence[PlayedLook]]:
        """By run, the reports of `verify` to the server's store."""
        return self._store.looks

    @property
    def unanswered(self) -> Set[int]:
        """The runs that may have a verdict in the store that no answer showed."""
        return self._store.unanswered

    @property
    def sound(self) -> set[int]:
        """The runs that were cut under load and to which nothing else happened."""
        return self._sound_runs.sound

    @property
    def load_known(self) -> bool:
        """Always true: the simulated drive takes its own time, and virtual time keeps to it."""
        return True

    @property
    def plans(self) -> Mapping[int, Plan]:
        """The plans of the runs that wrote to the drive, in order."""
        return self._machine.plans

    @property
    def reachable(self) -> bool:
        """Whether the target can be read."""
        return self._machine.reachable

    def promised_ns(self) -> Mapping[int, int]:
        """By run, when the drive last promised an operation."""
        return self._machine.drive.promised_ns

    def promised(self, run: int) -> PromisedOperations | None:
        """The operations that the drive promised to the run, with times."""
        return self._machine.drive.operations.get(run, PromisedOperations())

    def broken(self) -> Sequence[Broken]:
        """The promises that the drive broke at one of its cuts or does not keep now.

        The end state alone is not enough: later runs may have overwritten broken promises.
        """
        return [*self._broken_before, *self.broken_now()]

    def broken_now(self) -> Sequence[Broken]:
        """The promises that the drive does not keep now."""
        return self._machine.drive.broken(self._machine.storage.log)

    def metadata_broken(self) -> Set[int]:
        """The runs whose files depend on a journal record of the file system that the drive lost.

        A run depends on records of its own time and earlier ones. The loss of a later record does not move
        the run's data.
        """
        return self._metadata_lost | self._metadata_lost_now()

    def _metadata_lost_now(self) -> set[int]:
        if self.history.target == "device":
            return set()
        broken = [one.offset for one in self.broken_now() if not one.promised]
        lost, end = set(), 0
        for one in (0, *self.plans):
            end = max(end, self._machine.drive.nameless_bytes.get(one, 0))
            if any(offset < end for offset in broken):
                lost.add(one)
        return lost

    def smaller(self, run: int) -> bool:
        """Whether the drive has power, and is smaller than it was when the run began."""
        drive = self._machine.drive
        return drive.powered and drive.size_bytes < drive.sizes.get(run, 0)

    def grown(self, run: int) -> bool:
        """Whether the drive was made larger since the run began."""
        drive = self._machine.drive
        sizes = [*drive.sizes.values(), drive.size_bytes][list(drive.sizes).index(run) :]
        return any(before < after for before, after in pairwise(sizes))

    def renamed(self, run: int) -> bool:
        """Whether the target's path or the drive's serial has changed since the run began to write."""
        return self._names.get(run, self._names_now) != self._names_now

    def went_on(self, run: int) -> bool:
        """Whether the machine is still in the boot of the run, and the drive was not enumerated again."""
        return self._begun_in[run] == (self._machine.boot_id, self._machine.drive.generation)

    def others_seen(self, run: int) -> dict[int, bool]:
        """The other runs whose machine and drive a verify of this run certainly reports on.

        The drive must have the same size and name as for the other run, and the verify must not be too early
        for it. The value tells whether both runs began in the same boot with the same drive generation.
        """
        live, drive = self._server.live(), self._machine.drive
        others = [one for one in self.plans if one != run and one in self.known and one in self.armed]
        as_it_was = [
            one for one in others if drive.sizes.get(one) == drive.size_bytes and not self.renamed(one)
        ]
        seen = [one for one in as_it_was if one not in live or not self.went_on(one)]
        return {one: self._begun_in[one] == self._begun_in[run] for one in seen}

    def left_behind(self, run: int) -> bool:
        """Whether the target was moved without the files that hold the run's records. If such files are
        beside the target, the move did not happen, or the drive has undone it."""
        if run not in self._left_behind:
            return False
        try:
            return not self._machine.storage.suffixes()
        except OSError:
            return True

    @property
    def _names_now(self) -> tuple[Path, str]:
        storage = self._machine.storage
        return storage.path, storage.serial

    def series(self, run: int) -> SeriesRuns | None:
        """The series of an armed run; None if it is not known."""
        serials = self.history.serials
        if self._replaced and serials == "same":  # runs of the earlier drive may belong to the series
            return None
        armed = [one for one in self.plans if one in self.known and one in self.armed]
        alike = [] if serials == "none" else [one for one in armed if self._stack(one) == self._stack(run)]
        ended_in = {one: self._begun_in[one] for one in {*alike, run}}
        return SeriesRuns(ended_in=ended_in, cut=self._store.cut, counts=serials != "none")

    def _stack(self, run: int) -> Any:
        """The values that runs of one series share: plan, and size and serial of the drive."""
        own = ("run", "seed", "target")
        plan = self.plans[run]
        shared = [getattr(plan, one.name) for one in fields(plan) if one.name not in own]
        return shared, self._machine.drive.sizes[run], self._names[run][1]

    def target(self) -> HistoryStorage:
        """The target in its present state."""
        return self._machine.storage

    # Reports of events.

    def note_runs(self) -> None:
        """Note the facts about each run that the next step may change."""
        self.note_armed()
        for run in self.plans:
            self._names.setdefault(run, self._names_now)
            self._begun_in.setdefault(run, (self._machine.boot_id, self._machine.drive.generation))

    def note_armed(self) -> bool:
        """Note which runs are armed. Returns whether the newest run is."""
        new = [run for run in self._server.armed() if run not in self.armed]
        self.armed += new
        self.known.update(new)
        return self._machine.newest_run in self.armed

    def note_step(self, step: Step) -> None:
        """Note that a step is about to be played."""
        self._sound_runs.step(step, self.plans, client_alive=self._machine.client_alive)

    def note_cut(self, what: str) -> None:
        """Note that the machine or its drive is about to lose power, or that the system is about to die."""
        self.cuts.append(
            PlayedCut(
                at_ns=self._loop.now_ns,
                what=what,
                promised_ns=dict(self.promised_ns()),
                heard=self._server.runs and self._loop.network.up,
                in_guest=self.history.in_guest,
            )
        )

    def note_load(self, what: str) -> None:
        """Note whether the newest run is sound at the cut that is about to happen."""
        run, drive = self._machine.newest_run, self._machine.drive
        if run:
            hears = self._server.runs and self._loop.network.up
            self._sound_runs.cut(
                what,
                self.plans[run],
                heard=hears and run in self.armed and run in self.known and self._machine.client_alive,
                at_ns=self._loop.now_ns,
                begun_ns=drive.begun_ns.get(run),
                promised_ns=drive.promised_ns.get(run, 0),
            )
            if what == "machine" and run in self.sound:
                self._store.cut.add(run)

    def note_power_going(self) -> None:
        """Note the promises that the drive has broken before it loses its power. Without power, these can no
        longer be read."""
        if self._machine.drive.powered:
            self.note_broken(self.broken_now())

    def note_power_gone(self) -> None:
        """Note the promises that the drive broke when it lost its power."""
        self.note_broken(self.broken_now())
        self._metadata_lost |= self._metadata_lost_now()

    def note_broken(self, broken: Sequence[Broken]) -> None:
        """Note promises that the drive did not keep, although it may seem to keep them later."""
        self._broken_before += broken

    def note_start(self) -> None:
        """Note that the machine has started again."""
        self._sound_runs.machine_starts(self.plans)

    def note_nothing_due(self) -> None:
        """Note that no verdict is due for any run any more."""
        self._sound_runs.spoil(self.plans)

    def note_left_behind(self) -> None:
        """Note that the target was moved without the files beside it."""
        self._left_behind |= {run for run, plan in self.plans.items() if plan.contract.needs_file}

    def note_like_cut(self) -> None:
        """Note an event that is not a cut, but that a series may count as one."""
        self.like_cuts += 1

    def note_replaced(self, *, copied: bool) -> None:
        """Note that another drive has replaced the earlier one; `copied`: with a copy of its content."""
        serials = self.history.serials
        self._replaced = True
        self.like_cuts += serials in ("same", "none")
        # Both drives show the same serial, or no serial but the same content.
        self.mistakable = serials == "same" or (serials == "none" and copied)
        self._broken_before = []
        self.armed = []
