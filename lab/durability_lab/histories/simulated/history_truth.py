"""The truth about a history in virtual time: what was cut, what the drive promised and broke, and what
anybody did to the target.

`world` plays the steps, and says here what it does; the rest is read from the drive. Nothing is made to
happen here, and nothing is judged: `deserved` does that.
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
    """What `KnownTruth` says of its attributes holds here; only the methods `note_…` change them."""

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
        self._names: dict[int, tuple[Path, str]] = {}  # by run: of its target and its drive
        self._begun_in: dict[int, tuple[str, int]] = {}  # by run: the boot, and how often the drive was there
        self._replaced = False
        self._broken_before: list[Broken] = []  # by this drive, at its cuts
        self._left_behind: set[int] = set()  # runs whose files beside the target are elsewhere
        self._metadata_lost: set[int] = set()  # runs whose file system lost what they rest on

    # What is read.

    @property
    def known(self) -> set[int]:
        """The runs that the server's store has as armed, as it is now."""
        return self._store.known

    @property
    def stored(self) -> Mapping[int, Sequence[StoredVerdict]]:
        """By run, the verdicts that the server's store has."""
        return self._store.stored

    @property
    def looks(self) -> Mapping[int, Sequence[PlayedLook]]:
        """By run, what calls of `verify` have told the server's store."""
        return self._store.looks

    @property
    def unanswered(self) -> Set[int]:
        """The runs of which the store may have a verdict that nobody has seen."""
        return self._store.unanswered

    @property
    def sound(self) -> set[int]:
        """The runs that were cut under load, and nothing else happened to."""
        return self._sound_runs.sound

    @property
    def load_known(self) -> bool:
        """True: the drive has a pace of its own, and virtual time keeps it."""
        return True

    @property
    def plans(self) -> Mapping[int, Plan]:
        """Of the runs that wrote to the drive, in order."""
        return self._machine.plans

    @property
    def reachable(self) -> bool:
        """Whether the target can be read."""
        return self._machine.reachable

    def promised_ns(self) -> Mapping[int, int]:
        """By run, when the drive last promised an operation."""
        return self._machine.drive.promised_ns

    def promised(self, run: int) -> PromisedOperations | None:
        """What the drive promised of the run, and when."""
        return self._machine.drive.operations.get(run, PromisedOperations())

    def broken(self) -> Sequence[Broken]:
        """The promises that the drive did not keep at one of its cuts, or does not keep now. What a later run
        wrote over them may hide them from a look at the end."""
        return [*self._broken_before, *self.broken_now()]

    def broken_now(self) -> Sequence[Broken]:
        """The promises that the drive does not keep now."""
        return self._machine.drive.broken(self._machine.storage.log)

    def metadata_broken(self) -> Set[int]:
        """The runs for which the drive broke a promise to the file system, in a record that what they wrote
        rests on: their own, or an earlier one. What a run wrote stays where it is when a later record is
        lost."""
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
        """Whether the target, or its drive, has another name than when the run began to write."""
        return self._names.get(run, self._names_now) != self._names_now

    def went_on(self, run: int) -> bool:
        """Whether the machine is in the boot of the run, and the drive was not attached anew."""
        return self._begun_in[run] == (self._machine.boot_id, self._machine.drive.generation)

    def others_seen(self, run: int) -> dict[int, bool]:
        """The runs but this one of which a verify of this one finds machine and drive, which is surely
        recognised, and is not too early. Whether nothing had happened between the two."""
        live, drive = self._server.live(), self._machine.drive
        others = [one for one in self.plans if one != run and one in self.known and one in self.armed]
        as_it_was = [
            one for one in others if drive.sizes.get(one) == drive.size_bytes and not self.renamed(one)
        ]
        seen = [one for one in as_it_was if one not in live or not self.went_on(one)]
        return {one: self._begun_in[one] == self._begun_in[run] for one in seen}

    def left_behind(self, run: int) -> bool:
        """Whether the target was moved without the files in which the run has its records. If some are beside
        it, the move did not happen, or the drive has undone it."""
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
        """What an armed run is in one series with; None where that is not known."""
        serials = self.history.serials
        if self._replaced and serials == "same":  # the drive of before may have runs of it
            return None
        armed = [one for one in self.plans if one in self.known and one in self.armed]
        alike = [] if serials == "none" else [one for one in armed if self._stack(one) == self._stack(run)]
        ended_in = {one: self._begun_in[one] for one in {*alike, run}}
        return SeriesRuns(ended_in=ended_in, cut=self._store.cut, counts=serials != "none")

    def _stack(self, run: int) -> Any:
        """What runs of one series share: plan, size and serial of the drive."""
        own = ("run", "seed", "target")
        plan = self.plans[run]
        shared = [getattr(plan, one.name) for one in fields(plan) if one.name not in own]
        return shared, self._machine.drive.sizes[run], self._names[run][1]

    def target(self) -> HistoryStorage:
        """The target, whatever became of it."""
        return self._machine.storage

    # What is noted.

    def note_runs(self) -> None:
        """Note of each run what the next step may change."""
        self.note_armed()
        for run in self.plans:
            self._names.setdefault(run, self._names_now)
            self._begun_in.setdefault(run, (self._machine.boot_id, self._machine.drive.generation))

    def note_armed(self) -> bool:
        """Note which runs are armed; whether the newest is."""
        new = [run for run in self._server.armed() if run not in self.armed]
        self.armed += new
        self.known.update(new)
        return self._machine.newest_run in self.armed

    def note_step(self, step: Step) -> None:
        """A step is about to be played."""
        self._sound_runs.step(step, self.plans, client_alive=self._machine.client_alive)

    def note_cut(self, what: str) -> None:
        """Something is about to lose its power, or its operating system."""
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
        """The cut of a step is about to come: whether the newest run is a sound one."""
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
        """The drive is about to lose its power: what it has lost by now. One without power gives nothing back
        that shows it."""
        if self._machine.drive.powered:
            self.note_broken(self.broken_now())

    def note_power_gone(self) -> None:
        """The drive has lost its power: what it has broken by that."""
        self.note_broken(self.broken_now())
        self._metadata_lost |= self._metadata_lost_now()

    def note_broken(self, broken: Sequence[Broken]) -> None:
        """The drive did not keep these promises, and may seem to later."""
        self._broken_before += broken

    def note_start(self) -> None:
        """The machine has started anew."""
        self._sound_runs.machine_starts(self.plans)

    def note_nothing_due(self) -> None:
        """Of no run a verdict is due any more."""
        self._sound_runs.spoil(self.plans)

    def note_left_behind(self) -> None:
        """The target was moved without the files beside it."""
        self._left_behind |= {run for run, plan in self.plans.items() if plan.contract.needs_file}

    def note_like_cut(self) -> None:
        """Something happens that is no cut, and that a series may count."""
        self.like_cuts += 1

    def note_replaced(self, *, copied: bool) -> None:
        """Another drive has taken the place of the one before; `copied`: with a copy of it."""
        serials = self.history.serials
        self._replaced = True
        self.like_cuts += serials in ("same", "none")
        # They have one serial, or none and what was written.
        self.mistakable = serials == "same" or (serials == "none" and copied)
        self._broken_before = []
        self.armed = []
