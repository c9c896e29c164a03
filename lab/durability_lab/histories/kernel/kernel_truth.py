"""The truth about a history on rig B: the armed runs, the cuts, and the drive's promises, kept and broken.

`kernel_world` takes the steps and reports them here. The rest comes from the drive, which records when it
last promised an operation, by run and writer. This module judges nothing: `deserved` judges.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from durability.formats.plan import Plan
from durability.formats.workloads.registry import workload
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.storage import Storage
from durability_lab.drive.drive_log import Broken
from durability_lab.histories.assumed_runs import AssumedRuns
from durability_lab.histories.cuts_and_answers import PlayedCut, PlayedLook
from durability_lab.histories.figures import PromisedOperations
from durability_lab.histories.kernel.kernel_processes import BegunCommand
from durability_lab.histories.series import SeriesRuns
from durability_lab.histories.sound_runs import SoundRuns
from durability_lab.histories.steps import History, Step
from durability_lab.histories.store_copies import StoreCopies
from durability_lab.histories.stored_verdicts import StoredVerdict
from durability_lab.kernel_rig.block_rig import BlockRig

_UNHEARD_NS = 2_000_000_000  # a busy machine acknowledges late


@dataclass(slots=True, kw_only=True)
class MachineState:
    """The present state of the machine under test."""

    mounted: bool  # the file system is mounted, if there is one
    up: bool = True
    attached: bool = True  # the machine has a block device of the drive
    hung: bool = False  # the drive does not answer


class KernelTruth:
    """A `KnownTruth`. Only the methods `note_…` change its attributes."""

    def __init__(self, history: History, rig: BlockRig, state: MachineState, store: StoreCopies) -> None:
        self.history = history
        self.assumed = AssumedRuns()
        self.unheard_ns = _UNHEARD_NS
        self.mistakable = False
        self.load_known = False  # on a busy machine the writers may wait for their server
        self.cuts: list[PlayedCut] = []
        self.armed: list[int] = []
        self.plans: dict[int, Plan] = {}
        self._rig = rig
        self._state = state
        self._store = store
        self._clients: dict[int, BegunCommand] = {}  # by run
        self._broken: list[Broken] = []
        self._sound_runs = SoundRuns()
        self._begun_ns: dict[int, int] = {}  # by run: a time after the drive's first promise
        self._sizes: dict[int, int] = {}  # by run: size of the drive when the run was armed

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
    def newest_run(self) -> int:
        """The run that was registered last; 0 for none."""
        return next(reversed(self.plans), 0)

    @property
    def reachable(self) -> bool:
        """Whether the target can be read."""
        state = self._state
        ready = state.mounted or self._rig.file_system is None
        return state.up and state.attached and self._rig.powered and ready and not state.hung

    def promised_ns(self) -> Mapping[int, int]:
        """By run, when the drive last promised an operation while the run's client lived."""
        found: dict[int, int] = {}
        for (run, writer), at_ns in self._rig.events.promised_ns().items():
            plan = self.plans.get(run)
            if plan is not None and writer < plan.writers:  # promises for the control arm do not count
                found[run] = max(found.get(run, 0), at_ns)
        for run in set(found) | set(self._clients):
            if workload(self.plans[run].workload).absence_may_stall:  # a removal leaves no record
                found[run] = max(found.get(run, 0), self._rig.events.flushed_ns)
            ended_ns = self._clients[run].ended_ns if run in self._clients else None
            if ended_ns is not None and run in found:
                found[run] = min(found[run], ended_ns)
        return found

    def promised(self, run: int) -> PromisedOperations | None:
        """Always None: single operations are not recorded on this rig."""
        return None

    def broken(self) -> Sequence[Broken]:
        """The promises that the drive has broken at any cut."""
        return self._broken

    def broken_now(self) -> Sequence[Broken]:
        """As `broken`: the drive is checked only after a cut."""
        return self._broken

    def metadata_broken(self) -> Set[int]:
        """All runs if the drive broke a promise to the file system, since any file may be lost then."""
        broken = self._rig.file_system is not None and any(not one.promised for one in self._broken)
        return set(self.plans) if broken else set()

    def smaller(self, run: int) -> bool:
        """Whether the drive has power, and is smaller than it was when the run was armed."""
        return self._rig.powered and self._state.attached and self._size_bytes() < self._sizes.get(run, 0)

    def _size_bytes(self) -> int:
        return int(Path("/sys/block", Path(self._rig.loop).name, "size").read_text()) * 512

    def grown(self, run: int) -> bool:
        """Always false: this rig makes no drive larger."""
        return False

    @property
    def like_cuts(self) -> int:
        """Number of clean restarts, which a series may count if the network was dead."""
        return sum(step.kind == "reboot" for step in self.history.steps)

    def renamed(self, run: int) -> bool:
        """Always false: this rig renames nothing."""
        return False

    def left_behind(self, run: int) -> bool:
        """Always false: this rig moves nothing."""
        return False

    def series(self, run: int) -> SeriesRuns | None:
        """Always None: series are not counted on this rig."""
        return None

    def target(self) -> Storage:
        """The target as it can be read now."""
        return KernelStorage(self._rig.target)

    # Reports of events.

    def note_step(self, step: Step, *, client_alive: bool) -> None:
        """Note that a step is about to be played."""
        self._sound_runs.step(step, self.plans, client_alive=client_alive)

    def note_run(self, run: int, plan: Plan, client: BegunCommand | None) -> None:
        """Note that the server has registered a run of `client`."""
        self.plans[run] = plan
        if client is not None:
            self._clients[run] = client

    def note_armed(self, run: int) -> None:
        """Note that the server has armed a run."""
        self.armed.append(run)
        self.known.add(run)
        self._sizes[run] = self._size_bytes()

    def note_begun(self, runs: Set[int]) -> None:
        """Note the time for those of these runs for which the drive has promised an operation by now."""
        self._begun_ns.update(dict.fromkeys(runs & set(self.promised_ns()), time.monotonic_ns()))

    def note_load(self, what: str, client: BegunCommand | None, *, hears: bool) -> None:
        """Note whether the newest run is sound at the cut that is about to happen. `client`: the live client,
        if any. `hears`: the server runs, and the network is up."""
        run = self.newest_run
        if run:
            heard = hears and run in self.armed and run in self.known
            self._sound_runs.cut(
                what,
                self.plans[run],
                heard=heard and client is not None and self._clients.get(run) is client,
                at_ns=time.monotonic_ns(),
                begun_ns=self._begun_ns.get(run),
                promised_ns=self.promised_ns().get(run, 0),
            )

    async def note_cut(self, what: str, at_ns: int) -> None:
        """Note a cut that has happened, and the promises that the drive broke in it."""
        self.cuts.append(PlayedCut(at_ns=at_ns, what=what, promised_ns=dict(self.promised_ns())))
        if what != "guest":
            check = await asyncio.to_thread(self._rig.drive_check)
            assert check is not None
            self._broken += check.broken

    def note_start(self) -> None:
        """Note that the machine has started again."""
        self._sound_runs.machine_starts(self.plans)
