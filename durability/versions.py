"""Which versions a slot has in the course of a run, and where it lies: the plan's arithmetic, for judging.

Both workloads in the same terms, so that nothing above needs to tell them apart: `overwrite` gives a slot
one version per pass, `append` gives slot k-1 the single version k. Refuses to know anything of what was
found.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from durability.mixing import U64, Words
from durability.plan import Plan
from durability.schedule import Schedule


class Versions:
    """The versions of the slots of one plan; slots and seqs are uint64 arrays of one length."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._schedules: dict[int, Schedule] = {}
        self._last = (-1, -1, -1, False)  # the last answer of `is_version`

    def appends(self, writer: int) -> bool:
        """True where seq k of `writer` is slot k-1 for ever."""
        return self._plan.workload == "append" and writer != self._plan.control_writer

    def place(self, writer: int, slot: int) -> tuple[str, int, int]:
        """File suffix, byte offset and record length of a slot."""
        extent = self._plan.extent(writer, slot // self._plan.slots if self.appends(writer) else 0)
        return extent.suffix, extent.offset_of(slot), extent.record_bytes

    def newest(self, writer: int, slots: Words, frontier: int) -> Words:
        """The newest version <= `frontier` of each slot; 0 where there is none."""
        if self.appends(writer):
            return np.where(slots < U64(frontier), slots + U64(1), U64(0))
        return self._schedule(writer).newest_at(slots, frontier)

    def slots_of(self, writer: int, seqs: Words) -> Words:
        """The slot that each of `seqs` (all >= 1) is written to."""
        return seqs - U64(1) if self.appends(writer) else self._schedule(writer).slot_of(seqs)

    def are_versions(self, writer: int, slots: Words, seqs: Words) -> NDArray[np.bool_]:
        """Where `seqs` are versions that `slots` have at some time; the prefill is one, but for `append`."""
        if self.appends(writer):
            matches: NDArray[np.bool_] = seqs == slots + U64(1)
            return matches
        prefill: NDArray[np.bool_] = seqs == 0
        at = self._schedule(writer).slot_of(np.where(prefill, U64(1), seqs))
        matches = at == slots
        return matches | prefill

    def is_version(self, writer: int, slot: int, seq: int) -> bool:
        """`are_versions` for one; the sectors of a record ask the same question one after the other."""
        if self._last[:3] != (writer, slot, seq):
            slots, seqs = np.array([slot], dtype=U64), np.array([seq], dtype=U64)
            self._last = (writer, slot, seq, bool(self.are_versions(writer, slots, seqs)[0]))
        return self._last[3]

    def after(self, writer: int, slot: int, seq: int) -> int:
        """The version that follows `seq` in the slot; the first one for `seq` 0 and less."""
        if self.appends(writer):
            return slot + 1
        schedule = self._schedule(writer)
        following = 0 if seq <= 0 else (seq - 1) // schedule.slots + 1
        slots, passes = np.array([slot], dtype=U64), np.array([following], dtype=U64)
        return int(schedule.seq_in_pass(slots, passes)[0])

    def _schedule(self, writer: int) -> Schedule:
        if writer not in self._schedules:
            self._schedules[writer] = self._plan.schedule(writer)
        return self._schedules[writer]
