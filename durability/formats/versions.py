"""Which versions a slot has during a run, and where it lies: the plan's arithmetic, for judging.

All workloads use the same terms here, so that the modules above need not distinguish them. An *event* is an
operation on a slot: it puts a version there, or removes the slot's name. The workload defines the events
(`workloads`); this module gives them for any writer of a plan, including the control arm. It knows nothing
about the content found.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from durability.formats.mixing import U64, Words
from durability.formats.plan import Plan
from durability.formats.schedule import Schedule
from durability.formats.workloads.workload import NEVER, Workload


class Versions:
    """The versions of the slots of one plan. Slots and seqs are uint64 arrays of equal length. A slot that is
    not in the plan, such as the number of a stray file, has no events and no versions."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: dict[int, tuple[Workload, Schedule]] = {}
        self._last = (-1, -1, -1, False)  # the last answer of `is_version`

    def endless(self, writer: int) -> bool:
        """Whether seq k of `writer` is always slot k-1, and no slot has a prefill."""
        return self._plan.contract_of(writer).endless

    def place(self, writer: int, slot: int) -> tuple[str, int, int]:
        """File suffix, byte offset and record length of a slot."""
        extent = self._plan.extent_of(writer, slot)
        return extent.suffix, extent.offset_of(slot), extent.record_bytes

    def offsets(self, writer: int, slots: Words) -> Words:
        """The byte offset of each slot in its file."""
        extent = self._plan.extent(writer)
        return slots % U64(extent.slots) * U64(extent.record_bytes) + U64(extent.offset_bytes)

    def newest(self, writer: int, slots: Words, frontier: int) -> Words:
        """The newest event <= `frontier` of each slot; 0 if there is none, or only the prefill."""
        contract, schedule = self._of(writer)
        there, slots = self._in_plan(writer, slots)
        return np.where(there, contract.newest(schedule, slots, frontier), U64(0))

    def following(self, writer: int, slots: Words, seqs: Words) -> Words:
        """The event of each slot after event `seqs`; for seq 0 the slot's first event. NEVER if there is
        none."""
        contract, schedule = self._of(writer)
        there, slots = self._in_plan(writer, slots)
        return np.where(there, contract.following(schedule, slots, seqs), NEVER)

    def removals(self, writer: int, slots: Words, seqs: Words) -> NDArray[np.bool_]:
        """Where the event `seqs` of `slots` removes the slot's name. Seq 0 and NEVER do not."""
        contract, schedule = self._of(writer)
        return contract.removals(schedule, slots, seqs)

    def removed_with(self, writer: int, slots: Words) -> Words:
        """The slot whose name is removed in the operation that puts each of `slots`; NEVER if there is
        none."""
        contract, schedule = self._of(writer)
        return contract.removed_with(schedule, slots)

    def slots_of(self, writer: int, seqs: Words) -> Words:
        """The slot of each of `seqs` (all >= 1). For `create`, this is the slot that the operation puts."""
        contract, schedule = self._of(writer)
        return contract.slots_of(schedule, seqs)

    def touched(self, writer: int, seqs: Words) -> Words:
        """Every slot with an event in `seqs`, ascending."""
        contract, schedule = self._of(writer)
        return contract.touched(schedule, seqs)

    def are_versions(self, writer: int, slots: Words, seqs: Words) -> NDArray[np.bool_]:
        """Where `seqs` are versions that `slots` have at some time. The prefill counts as a version if there
        is one."""
        contract, schedule = self._of(writer)
        there, slots = self._in_plan(writer, slots)
        return there & contract.are_versions(schedule, slots, seqs)

    def prefilled(self, writer: int, slots: Words) -> NDArray[np.bool_]:
        """Where `slots` hold a version of seq 0 before the run is armed."""
        return self._in_plan(writer, slots)[0] & self._plan.contract_of(writer).prefilled

    def is_version(self, writer: int, slot: int, seq: int) -> bool:
        """`are_versions` for one slot. The last answer is stored, because the sectors of a record repeat the
        same question."""
        if self._last[:3] != (writer, slot, seq):
            slots, seqs = np.array([slot], dtype=U64), np.array([seq], dtype=U64)
            self._last = (writer, slot, seq, bool(self.are_versions(writer, slots, seqs)[0]))
        return self._last[3]

    def after(self, writer: int, slot: int, seq: int) -> int:
        """The event after `seq` in the slot; the first event if `seq` is 0 or less."""
        slots, seqs = np.array([slot], dtype=U64), np.array([max(0, seq)], dtype=U64)
        return int(self.following(writer, slots, seqs)[0])

    def _in_plan(self, writer: int, slots: Words) -> tuple[NDArray[np.bool_], Words]:
        """Which of `slots` are in the plan, and `slots` with slot 0 in place of the others. The inverse of a
        schedule is not defined for other slots, and may not even terminate."""
        contract, schedule = self._of(writer)
        if contract.endless:
            return np.ones(len(slots), dtype=np.bool_), slots
        there: NDArray[np.bool_] = slots < U64(schedule.slots)
        return there, np.where(there, slots, U64(0))

    def _of(self, writer: int) -> tuple[Workload, Schedule]:
        if writer not in self._known:
            self._known[writer] = self._plan.contract_of(writer), self._plan.schedule(writer)
        return self._known[writer]
