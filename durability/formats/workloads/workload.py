"""A workload: the effect of its operations on slots, the place of the slots, and what is promised about them.

One object defines all of this. A workload is a module beside this one and a line in `registry`; no other
module uses its name. `layout` selects the code that writes and scans a workload, and that code asks the
object for the rest.

Methods take the schedule of one writer and uint64 arrays of one length: `slots`, and `seqs`. Seqs number the
operations of a writer from 1; seq 0 is the prefill. An *event* is an operation on a slot: it puts a version
there, or removes the slot's name. A workload does not know the plan or the content found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from durability.formats.mixing import U64, Words
from durability.formats.schedule import Schedule

# region: slots lie side by side in the target itself
# log: slots lie side by side in files beside the target, which grow one after the other
# names: each slot is a file of one record beside the target
Layout: TypeAlias = Literal["region", "log", "names"]

NEVER = U64((1 << 64) - 1)  # stands for the seq or slot of an event that does not happen

_LOG_FILES = 3  # largest number of files, each up to full length, that a writer of logs has at once
_SIZE_BYTES = 1 << 30
# Some 13,000 files of 4 KiB, which can be made one by one in seconds, not minutes.
_SIZE_OF_NAMES_BYTES = 64 << 20
_COMMITTING_METHODS = frozenset({"fsync", "osync"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload. In this base class, every operation puts a version, and each pass visits every slot
    once."""

    name: str
    summary: str  # what its writers do, for help texts
    layout: Layout
    # A name holds one whole version even during an operation on it, because the next version is written
    # beside it and then renamed.
    whole_at_all_times: bool = False
    # An absent name may come from its writer's last operation, so the writer may have waited there (rule 12).
    absence_may_stall: bool = False

    # -- its slots -----------------------------------------------------------------------------------------

    @property
    def needs_file(self) -> bool:
        """Whether its slots lie in files beside the target, which is impossible on a raw device."""
        return self.layout != "region"

    @property
    def by_name(self) -> bool:
        """Whether each slot is a file of its own."""
        return self.layout == "names"

    @property
    def endless(self) -> bool:
        """Whether seq k always goes to slot k-1, so that each slot is written only once."""
        return False

    @property
    def prefilled(self) -> bool:
        """Whether every slot holds a version of seq 0 before the run is armed. Slots of endless workloads
        cannot."""
        return not self.endless

    @property
    def always_writes(self) -> bool:
        """Whether every operation writes a record."""
        return True

    @property
    def noun(self) -> str:
        """The noun for a slot."""
        return "name" if self.by_name else "slot"

    # -- its events ----------------------------------------------------------------------------------------

    def schedule(self, *, seed: int, writer: int, slots: int, shuffled: bool) -> Schedule:
        """The order in which `writer` visits its `slots`. It has no meaning for an endless workload."""
        return Schedule(seed=seed, writer=writer, slots=slots, shuffled=shuffled)

    def slots_of(self, schedule: Schedule, seqs: Words) -> Words:
        """The slot of each of `seqs` (all >= 1)."""
        return schedule.slot_of(seqs)

    def newest(self, schedule: Schedule, slots: Words, frontier: int) -> Words:
        """The newest event <= `frontier` of each slot; 0 if there is none, or only the prefill."""
        return schedule.newest_at(slots, frontier)

    def following(self, schedule: Schedule, slots: Words, seqs: Words) -> Words:
        """The event of each slot after event `seqs`; for seq 0 the slot's first event. NEVER if there is
        none."""
        passes = np.where(seqs == 0, U64(0), (seqs - U64(1)) // U64(schedule.slots) + U64(1))
        return schedule.seq_in_pass(slots, passes)

    def removals(self, schedule: Schedule, slots: Words, seqs: Words) -> NDArray[np.bool_]:
        """Where the event `seqs` of `slots` removes the slot's name. Seq 0 and NEVER do not."""
        return np.zeros(len(seqs), dtype=np.bool_)

    def removed_with(self, schedule: Schedule, slots: Words) -> Words:
        """The slot whose name is removed by the operation that puts each of `slots`; NEVER if there is
        none."""
        return np.full(len(slots), NEVER, dtype=U64)

    def touched(self, schedule: Schedule, seqs: Words) -> Words:
        """Every slot with an event in `seqs`, ascending."""
        return np.unique(self.slots_of(schedule, seqs))

    def are_versions(self, schedule: Schedule, slots: Words, seqs: Words) -> NDArray[np.bool_]:
        """Where `seqs` are versions that `slots` have at some time. The prefill counts as a version if there
        is one."""
        prefill: NDArray[np.bool_] = seqs == 0
        at = self.slots_of(schedule, np.where(prefill, U64(1), seqs))
        matches: NDArray[np.bool_] = (at == slots) & ~self.removals(schedule, slots, seqs)
        return matches | prefill

    # -- what it takes -------------------------------------------------------------------------------------

    @property
    def default_size_bytes(self) -> int:
        """How much of the target a run uses by default."""
        return _SIZE_OF_NAMES_BYTES if self.by_name else _SIZE_BYTES

    def room_needed(self, *, slots: int, group: int, record_bytes: int, name_bytes: int) -> tuple[int, int]:
        """The most bytes and files that one writer needs beside the target. `name_bytes`: space for a file of
        one record, with everything that the file system needs for it."""
        if self.layout == "log":
            return _LOG_FILES * slots * record_bytes, _LOG_FILES
        if self.by_name:
            names = slots + group  # plus a group's temporary files, or names that are not synced yet
            return names * name_bytes, names
        return 0, 0

    def rests_on_commit(self, sync: str, *, in_journal: bool = False) -> bool:
        """Whether a `sync` of its files also waits for a commit of changes by other processes. `in_journal`:
        file data are in the file system's journal, which any sync commits. False for workloads on names,
        whose directory is checked instead."""
        if self.layout == "region":
            return in_journal or sync in _COMMITTING_METHODS
        return self.layout == "log"


class EndlessWorkload(Workload):
    """Each slot k-1 is written only by seq k."""

    __slots__ = ()

    @property
    def endless(self) -> bool:
        """Always."""
        return True

    def slots_of(self, schedule: Schedule, seqs: Words) -> Words:
        """The slot of seq k is k-1."""
        return seqs - U64(1)

    def newest(self, schedule: Schedule, slots: Words, frontier: int) -> Words:
        """The only event of a slot, if it is within `frontier`."""
        return np.where(slots < U64(frontier), slots + U64(1), U64(0))

    def following(self, schedule: Schedule, slots: Words, seqs: Words) -> Words:
        """The only event of a slot, if it comes after `seqs`; else NEVER."""
        put = slots + U64(1)
        return np.where(seqs < put, put, NEVER)

    def are_versions(self, schedule: Schedule, slots: Words, seqs: Words) -> NDArray[np.bool_]:
        """Where `seqs` is the only event of the slot. There is no prefill."""
        matches: NDArray[np.bool_] = seqs == slots + U64(1)
        return matches
