"""Which versions a slot has in the course of a run, and where it lies: the plan's arithmetic, for judging.

All workloads in the same terms, so that nothing above needs to tell them apart. An *event* is an operation
on a slot: it puts a version there, or takes the slot's name away. `overwrite` and `rename` give a slot one
version per pass; `unlink` takes its name away in the 1st, 3rd, ... pass and puts a version in the others;
`append` gives slot k-1 the single version k, and `create` does so too and takes the name away again in
operation k + slots. Refuses to know anything of what was found.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from durability.formats.mixing import U64, Words
from durability.formats.plan import ENDLESS_WORKLOADS, Plan
from durability.formats.schedule import Schedule

NEVER = U64((1 << 64) - 1)  # stands for the seq of an event that does not come


class Versions:
    """The versions of the slots of one plan; slots and seqs are uint64 arrays of one length."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._schedules: dict[int, Schedule] = {}
        self._last = (-1, -1, -1, False)  # the last answer of `is_version`

    def endless(self, writer: int) -> bool:
        """True where seq k of `writer` is slot k-1 for ever, and no slot has a prefill."""
        return self._plan.workload in ENDLESS_WORKLOADS and writer != self._plan.control_writer

    def place(self, writer: int, slot: int) -> tuple[str, int, int]:
        """File suffix, byte offset and record length of a slot."""
        extent = self._plan.extent_of(writer, slot)
        return extent.suffix, extent.offset_of(slot), extent.record_bytes

    def offsets(self, writer: int, slots: Words) -> Words:
        """The byte offset of each slot in its file."""
        extent = self._plan.extent(writer)
        return slots % U64(extent.slots) * U64(extent.record_bytes) + U64(extent.offset_bytes)

    def newest(self, writer: int, slots: Words, frontier: int) -> Words:
        """The newest event <= `frontier` of each slot; 0 where there is none, or only the prefill."""
        if not self.endless(writer):
            return self._schedule(writer).newest_at(slots, frontier)
        put = slots + U64(1)
        newest = np.where(slots < U64(frontier), put, U64(0))
        if self._plan.workload == "create":
            removal = put + U64(self._plan.slots)
            newest = np.where(removal <= U64(frontier), removal, newest)
        return newest

    def following(self, writer: int, slots: Words, seqs: Words) -> Words:
        """The event of each slot after event `seqs`, its first one for seq 0; NEVER where there is none."""
        if not self.endless(writer):
            schedule = self._schedule(writer)
            passes = np.where(seqs == 0, U64(0), (seqs - U64(1)) // U64(schedule.slots) + U64(1))
            return schedule.seq_in_pass(slots, passes)
        put = slots + U64(1)
        second = put + U64(self._plan.slots) if self._plan.workload == "create" else NEVER
        return np.where(seqs < put, put, np.where(seqs == put, second, NEVER))

    def removals(self, writer: int, slots: Words, seqs: Words) -> NDArray[np.bool_]:
        """Where the event `seqs` of `slots` takes the slot's name away; seq 0 does not."""
        removed = np.zeros(len(seqs), dtype=np.bool_)
        if writer == self._plan.control_writer:
            return removed
        if self._plan.workload == "create":
            np.logical_and(seqs > slots + U64(1), seqs != NEVER, out=removed)
        elif self._plan.workload == "unlink":
            passes = (seqs - U64(1)) // U64(self._plan.slots)
            np.logical_and(passes % U64(2) == 0, seqs != 0, out=removed)
        return removed

    def slots_of(self, writer: int, seqs: Words) -> Words:
        """The slot that each of `seqs` (all >= 1) works on: of `create` the one that it puts."""
        return seqs - U64(1) if self.endless(writer) else self._schedule(writer).slot_of(seqs)

    def touched(self, writer: int, seqs: Words) -> Words:
        """Every slot of which one of `seqs` is an event, ascending."""
        slots = self.slots_of(writer, seqs)
        if self._plan.workload == "create" and writer != self._plan.control_writer:
            removing = seqs[seqs > U64(self._plan.slots)]
            slots = np.concatenate((slots, removing - U64(self._plan.slots + 1)))
        return np.unique(slots)

    def are_versions(self, writer: int, slots: Words, seqs: Words) -> NDArray[np.bool_]:
        """Where `seqs` are versions that `slots` have at some time; the prefill is one, if there is any."""
        if self.endless(writer):
            matches: NDArray[np.bool_] = seqs == slots + U64(1)
            return matches
        prefill: NDArray[np.bool_] = seqs == 0
        at = self._schedule(writer).slot_of(np.where(prefill, U64(1), seqs))
        matches = (at == slots) & ~self.removals(writer, slots, seqs)
        return matches | prefill

    def is_version(self, writer: int, slot: int, seq: int) -> bool:
        """`are_versions` for one; the sectors of a record ask the same question one after the other."""
        if self._last[:3] != (writer, slot, seq):
            slots, seqs = np.array([slot], dtype=U64), np.array([seq], dtype=U64)
            self._last = (writer, slot, seq, bool(self.are_versions(writer, slots, seqs)[0]))
        return self._last[3]

    def after(self, writer: int, slot: int, seq: int) -> int:
        """The event that follows `seq` in the slot; the first one for `seq` 0 and less."""
        slots, seqs = np.array([slot], dtype=U64), np.array([max(0, seq)], dtype=U64)
        return int(self.following(writer, slots, seqs)[0])

    def _schedule(self, writer: int) -> Schedule:
        if writer not in self._schedules:
            self._schedules[writer] = self._plan.schedule(writer)
        return self._schedules[writer]
