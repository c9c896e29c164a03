"""`create`: each operation makes a file under a new name, and removes the oldest name beyond the writer's
limit.

Promise: an acknowledged name exists, with its record. A name whose removal was acknowledged does not exist.
While the operation is in flight, the name is absent or holds anything.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from durability.formats.mixing import U64, Words
from durability.formats.schedule import Schedule
from durability.formats.workloads.workload import NEVER, EndlessWorkload


class _Create(EndlessWorkload):
    """With S slots a writer keeps S names. Operation k makes the name of slot k-1 and removes that of slot
    k-1-S."""

    __slots__ = ()

    def newest(self, schedule: Schedule, slots: Words, frontier: int) -> Words:
        removal = slots + U64(1) + U64(schedule.slots)
        return np.where(removal <= U64(frontier), removal, super().newest(schedule, slots, frontier))

    def following(self, schedule: Schedule, slots: Words, seqs: Words) -> Words:
        put = slots + U64(1)
        removal = put + U64(schedule.slots)
        return np.where(seqs == put, removal, super().following(schedule, slots, seqs))

    def removals(self, schedule: Schedule, slots: Words, seqs: Words) -> NDArray[np.bool_]:
        removed: NDArray[np.bool_] = (seqs > slots + U64(1)) & (seqs != NEVER)
        return removed

    def removed_with(self, schedule: Schedule, slots: Words) -> Words:
        kept = U64(schedule.slots)
        return np.where(slots >= kept, slots - kept, NEVER)

    def touched(self, schedule: Schedule, seqs: Words) -> Words:
        put = self.slots_of(schedule, seqs)
        removed = self.removed_with(schedule, put)
        return np.unique(np.concatenate((put, removed[removed != NEVER])))


CREATE = _Create(name="create", summary="create files", layout="names")
