"""Common part of all writers: stamping, orders, credit, publishing, and the check that the parent process
still runs.

The subclasses write to the target: `slot_writer` has slots in files, `name_writer` has one file per slot. No
writer issues operations beyond its credit, publishes after a failure, or outlives the process that started
it.
"""

from __future__ import annotations

import mmap
import time

import numpy as np

from durability.formats.mixing import U64, Words
from durability.formats.plan import Plan
from durability.formats.record import SECTOR_WORDS, Stamper
from durability_client.run.shared_state import Order, SharedState, WriterState
from durability_client.system.processes import ParentWatch
from durability_client.target.storage import Storage

BATCH_BYTES = 1 << 20  # size of a stamped batch: 256 records of 4 KiB, which fit in the processor's cache
NAP_S = 0.0005  # interval between checks for credit, or for the order to start


class Writer:
    """One writer, or the control arm, from its start to the order to stop."""

    def __init__(self, plan: Plan, writer: int, storage: Storage, shared: SharedState) -> None:
        self._plan = plan
        self._writer = writer
        self._storage = storage
        self._shared = shared
        self._parent = ParentWatch()
        self._seq = 0
        record_bytes = plan.extent(writer).record_bytes
        self._batch = max(1, BATCH_BYTES // record_bytes)
        self._memory = mmap.mmap(-1, self._batch * record_bytes)  # page-aligned, as O_DIRECT needs it
        whole = memoryview(self._memory)
        self._views = [whole[at : at + record_bytes] for at in range(0, len(whole), record_bytes)]
        self._records: Words = np.frombuffer(whole, dtype=np.uint64).reshape(self._batch, -1, SECTOR_WORDS)
        self._stamper = Stamper(plan)

    def run(self) -> None:
        """Write until ordered to stop."""
        raise NotImplementedError

    @property
    def seq(self) -> int:
        """The newest operation that was issued."""
        return self._seq

    def _next_seqs(self, count: int) -> Words:
        """Sequence numbers of the next `count` operations."""
        return np.arange(self._seq + 1, self._seq + 1 + count, dtype=U64)

    def _wait_for_start(self) -> None:
        self._shared.set_state(self._writer, WriterState.READY)
        while self._shared.order == Order.WAIT and not self._shared.halted:
            self._nap(NAP_S)
        self._shared.set_state(self._writer, WriterState.RUNNING)

    def _nap(self, seconds: float) -> None:
        time.sleep(seconds)
        self._parent.look(time.monotonic_ns())


class AcknowledgingWriter(Writer):
    """A writer that syncs and acknowledges each group. It waits only if its credit is used up."""

    def __init__(self, plan: Plan, writer: int, storage: Storage, shared: SharedState) -> None:
        super().__init__(plan, writer, storage, shared)
        self._limit = 0  # the seq up to which this writer may issue: always the end of a group
        self._began_ns = 0  # when the first operation of the open group was issued

    def _wait_for_credit(self, seq: int) -> bool:
        """Wait until the limit allows operations after `seq`. Returns False if a stop was ordered first."""
        shared, plan = self._shared, self._plan
        grant_at = shared.grant_index(self._writer)
        while shared.order == Order.GO and not shared.halted:
            self._limit = plan.issue_limit(shared.words[grant_at])
            if self._limit > seq:
                shared.set_state(self._writer, WriterState.RUNNING)
                return True
            shared.set_state(self._writer, WriterState.OUT_OF_CREDIT)
            self._nap(NAP_S)
        return False
