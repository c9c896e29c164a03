"""`unlink`: one pass removes every name, the next one makes every name anew.

Promise: a name whose removal was acknowledged is absent. A name whose making was acknowledged exists, with
its record. While a removal is in flight, the name is whole or absent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from durability.formats.mixing import U64, Words
from durability.formats.schedule import Schedule
from durability.formats.workloads.workload import NEVER, Workload


class _Unlink(Workload):
    """The 1st, 3rd, ... pass removes names; the others put them."""

    __slots__ = ()

    @property
    def always_writes(self) -> bool:
        return False

    def removals(self, schedule: Schedule, slots: Words, seqs: Words) -> NDArray[np.bool_]:
        passes = (seqs - U64(1)) // U64(schedule.slots)
        removed: NDArray[np.bool_] = (passes % U64(2) == 0) & (seqs != 0) & (seqs != NEVER)
        return removed


UNLINK = _Unlink(name="unlink", summary="unlink files", layout="names", absence_may_stall=True)
