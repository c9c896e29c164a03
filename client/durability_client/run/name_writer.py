"""The writer of names: an operation makes, replaces or removes one file; a group ends in one directory sync.

The files that a group has written stay open until they are synced. The kernel reports a writeback error only
once, to the file descriptions that are open at that time. For the same reason the writer opens the directory
with a description of its own. A name writer follows the rules of every writer (see `writer`). It writes only
to files that it made.
"""

from __future__ import annotations

import resource
import time

import numpy as np
from numpy.typing import NDArray

from durability import limits
from durability.formats.mixing import Words
from durability.formats.plan import TEMPORARY, Plan
from durability.formats.versions import Versions
from durability.formats.workloads.workload import NEVER
from durability_client.run.shared_state import RING, Order, SharedState
from durability_client.run.writer import AcknowledgingWriter
from durability_client.target.storage import Storage, TargetDirectory, TargetFile

_SPARE_DESCRIPTORS = 64  # besides a group's files: the directory, pipes and files of the interpreter


class NameWriter(AcknowledgingWriter):
    """Issue the operations of a group, sync its files and the directory, publish."""

    def __init__(self, plan: Plan, writer: int, storage: Storage, shared: SharedState) -> None:
        super().__init__(plan, writer, storage, shared)
        self._versions = Versions(plan)
        self._beside = plan.contract.whole_at_all_times  # write under a temporary name first
        self._written: dict[int, TargetFile] = {}  # unsynced files of the open group, by slot

    def run(self) -> None:
        """Make, replace or remove names batch by batch until a stop is ordered. Raises OSError."""
        _allow_descriptors(self._plan.group)
        directory = self._storage.open_directory()
        self._wait_for_start()
        while True:
            seqs = self._next_seqs(self._batch)
            slots = self._versions.slots_of(self._writer, seqs)
            removals = self._versions.removals(self._writer, slots, seqs)
            old = self._versions.removed_with(self._writer, slots)
            self._stamper.stamp(
                self._records, writer=self._writer, slots=slots, seqs=seqs, offsets=np.zeros_like(slots)
            )
            if not self._issue(directory, slots, removals, old):
                return

    def _issue(
        self, directory: TargetDirectory, slots: Words, removals: NDArray[np.bool_], old: Words
    ) -> bool:
        """Do the next operations, on `slots`, and commit each group. Returns False if a stop was ordered.

        `old`: per operation that puts a name, the slot whose name it removes first, or NEVER.
        """
        group, none = self._plan.group, int(NEVER)
        operations = zip(self._views, slots.tolist(), removals.tolist(), old.tolist(), strict=True)
        for view, slot, removal, also in operations:
            if self._seq == self._limit and not self._wait_for_credit(self._seq):
                return False
            if self._seq % group == 0:
                self._began_ns = time.monotonic_ns()
            self._seq += 1
            if removal:
                self._storage.unlink(self._suffix(slot))
            else:
                if also != none:
                    self._storage.unlink(self._suffix(also))
                self._put(slot, view)
            if self._seq % group == 0 and not self._commit(directory):
                return False
        return True

    def _put(self, slot: int, record: memoryview) -> None:
        """Write `record` to a new file, under its name or, for `rename`, a temporary name. Does not sync,
        unless this slot already has an unsynced file."""
        suffix = self._suffix(slot)
        if self._beside:
            suffix += TEMPORARY
            if slot in self._written:  # the next pass has begun within the group
                self._settle()
        file = self._storage.open(suffix, plan=self._plan, create=True)
        self._written[slot] = file
        file.pwrite(record, 0)

    def _settle(self) -> None:
        """Sync and close the group's written files. For `rename`, then rename them to their names."""
        for file in self._written.values():
            file.sync()
        for slot, file in self._written.items():
            file.close()
            if self._beside:
                self._storage.rename(self._suffix(slot) + TEMPORARY, self._suffix(slot))
        self._written.clear()

    def _commit(self, directory: TargetDirectory) -> bool:
        """Sync the open group and publish the frontier. Returns False if a stop was ordered."""
        self._settle()
        directory.sync()
        now_ns = time.monotonic_ns()
        shared, commit = self._shared, self._seq // self._plan.group - 1
        if shared.halted:
            return False
        shared.words[shared.ring_index(self._writer) + commit % RING] = now_ns - self._began_ns
        shared.words[shared.frontier_index(self._writer)] = self._seq
        self._parent.look(now_ns)
        return shared.order == Order.GO

    def _suffix(self, slot: int) -> str:
        return self._plan.extent(self._writer, slot).suffix


def group_max() -> int:
    """The largest group whose files this process may have open at once."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.GROUP_MAX if hard == resource.RLIM_INFINITY else max(1, hard - _SPARE_DESCRIPTORS)


def _allow_descriptors(group: int) -> None:
    """Raise this process's soft limit of open files for a group. `group_max` respects the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = group + _SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
