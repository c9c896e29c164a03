"""A workload: what its operations do to slots, where these lie, and what is promised of them.

One object says all of it. A workload is a module beside this one and a line in `registry`; nothing else knows
it by name. What writes and what scans it is chosen by `layout`, and asks the object for the rest.

Methods take the schedule of one writer and uint64 arrays of one length: `slots`, and `seqs`, which number the
operations of a writer from 1 and are 0 for the prefill. An *event* is an operation on a slot: it puts a
version there, or takes the slot's name away. A workload refuses to know a plan, or what was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from durability.formats.mixing import U64, Words
from durability.formats.schedule import Schedule

# region: slots lie side by side in the target itself. log: side by side in files beside it, which grow, one
# after the other. names: each slot is a file of one record beside the target.
Layout: TypeAlias = Literal["region", "log", "names"]

NEVER = U64((1 << 64) - 1)  # stands for the seq, or the slot, of an event that does not come

_LOG_FILES = 3  # a writer of logs has at most this many full files at once
_SIZE_BYTES = 1 << 30
_SIZE_OF_NAMES_BYTES = 64 << 20  # some 13,000 files of 4 KiB: made one by one in seconds, not minutes
_COMMITTING_METHODS = frozenset({"fsync", "osync"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload; as it stands, every operation puts a version, and each pass visits every slot once.

    `summary`: what its writers do, for help texts. `whole_at_all_times`: a name holds one whole version even
    while it is worked on, because the next one is written beside it and then put in its place.
    `absence_may_stall`: a name that is gone may be the last thing that its writer did, so that it may have
    waited there (rule 12).
    """

    name: str
    summary: str
    layout: Layout
    whole_at_all_times: bool = False
    absence_may_stall: bool = False

    # -- its slots -----------------------------------------------------------------------------------------

    @property
    def needs_file(self) -> bool:
        """Whether its slots lie in files beside the target, which no raw device has."""
        return self.layout != "region"

    @property
    def by_name(self) -> bool:
        """Whether each slot is a file of its own."""
        return self.layout == "names"

    @property
    def endless(self) -> bool:
        """Whether seq k always goes to slot k-1, in sequence, so that a slot is written only once."""
        return False

    @property
    def prefilled(self) -> bool:
        """Whether every slot holds a version of seq 0 before the run is armed; endless ones cannot."""
        return not self.endless

    @property
    def noun(self) -> str:
        """What a slot is called."""
        return "name" if self.by_name else "slot"

    # -- its events ----------------------------------------------------------------------------------------

    def schedule(self, *, seed: int, writer: int, slots: int, shuffled: bool) -> Schedule:
        """The order in which `writer` visits its `slots`; of no meaning for an endless workload."""
        return Schedule(seed=seed, writer=writer, slots=slots, shuffled=shuffled)

    def slots_of(self, schedule: Schedule, seqs: Words) -> Words:
        """The slot that each of `seqs` (all >= 1) is for."""
        return schedule.slot_of(seqs)

    def newest(self, schedule: Schedule, slots: Words, frontier: int) -> Words:
        """The newest event <= `frontier` of each slot; 0 where there is none, or only the prefill."""
        return schedule.newest_at(slots, frontier)

    def following(self, schedule: Schedule, slots: Words, seqs: Words) -> Words:
        """The event of each slot after event `seqs`, its first one for seq 0; NEVER where there is none."""
        passes = np.where(seqs == 0, U64(0), (seqs - U64(1)) // U64(schedule.slots) + U64(1))
        return schedule.seq_in_pass(slots, passes)

    def removals(self, schedule: Schedule, slots: Words, seqs: Words) -> NDArray[np.bool_]:
        """Where the event `seqs` of `slots` takes the slot's name away; seq 0 and NEVER do not."""
        return np.zeros(len(seqs), dtype=np.bool_)

    def removed_with(self, schedule: Schedule, slots: Words) -> Words:
        """The slot whose name the operation that puts each of `slots` takes away as well; NEVER for none."""
        return np.full(len(slots), NEVER, dtype=U64)

    def touched(self, schedule: Schedule, seqs: Words) -> Words:
        """Every slot with an event in `seqs`, ascending."""
        return np.unique(self.slots_of(schedule, seqs))

    def are_versions(self, schedule: Schedule, slots: Words, seqs: Words) -> NDArray[np.bool_]:
        """Where `seqs` are versions that `slots` have at some time; the prefill is one, if there is any."""
        prefill: NDArray[np.bool_] = seqs == 0
        at = self.slots_of(schedule, np.where(prefill, U64(1), seqs))
        matches: NDArray[np.bool_] = (at == slots) & ~self.removals(schedule, slots, seqs)
        return matches | prefill

    # -- what it takes -------------------------------------------------------------------------------------

    @property
    def default_size_bytes(self) -> int:
        """How much of the target a run uses unless told."""
        return _SIZE_OF_NAMES_BYTES if self.by_name else _SIZE_BYTES

    def room_needed(self, *, slots: int, group: int, record_bytes: int, name_bytes: int) -> tuple[int, int]:
        """Bytes, and files, that one writer takes beside the target at most. `name_bytes`: what a file of one
        record takes, with all that the file system needs for it."""
        if self.layout == "log":
            return _LOG_FILES * slots * record_bytes, _LOG_FILES
        if self.by_name:
            names = slots + group  # a group's temporaries, or what it has yet to sync
            return names * name_bytes, names
        return 0, 0

    def rests_on_commit(self, sync: str, *, in_journal: bool = False) -> bool:
        """Whether a `sync` of its files also waits for what others changed. `in_journal`: their data are in
        the file system's journal, which any sync commits. Names ask their directory."""
        if self.layout == "region":
            return in_journal or sync in _COMMITTING_METHODS
        return self.layout == "log"


class EndlessWorkload(Workload):
    """Seq k writes slot k-1, and nothing else does."""

    __slots__ = ()

    @property
    def endless(self) -> bool:
        """Always."""
        return True

    def slots_of(self, schedule: Schedule, seqs: Words) -> Words:
        """Seq k's is k-1."""
        return seqs - U64(1)

    def newest(self, schedule: Schedule, slots: Words, frontier: int) -> Words:
        """The one event of a slot, if it is within `frontier`."""
        return np.where(slots < U64(frontier), slots + U64(1), U64(0))

    def following(self, schedule: Schedule, slots: Words, seqs: Words) -> Words:
        """The one event of a slot, if it comes after `seqs`."""
        put = slots + U64(1)
        return np.where(seqs < put, put, NEVER)

    def are_versions(self, schedule: Schedule, slots: Words, seqs: Words) -> NDArray[np.bool_]:
        """Where `seqs` is the one event of the slot; there is no prefill."""
        matches: NDArray[np.bool_] = seqs == slots + U64(1)
        return matches
