"""A writer: one process (or thread) with one descriptor that writes, syncs and publishes its frontier.

Work is moved out of the commit where possible. Records are stamped some hundreds at a time, so that between
two syncs the writer does a pwrite, stores two words and reads two.

A writer acknowledges only operations whose sync returned success. It stops after an error of the target, its
own or another writer's, and never retries. It does not issue operations beyond its credit. Signals do not
interrupt it. It ends when the process that started it has ended.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from typing import cast

import numpy as np

from durability.formats.mixing import U64, Words
from durability.formats.plan import Extent, Plan
from durability.formats.versions import Versions
from durability.formats.workloads.workload import Layout
from durability_client.run.name_writer import NameWriter
from durability_client.run.shared_state import RING, Order, SharedState, WriterFailure, WriterState
from durability_client.run.writer import AcknowledgingWriter, Writer
from durability_client.system.processes import CHECK_NS
from durability_client.target.storage import Storage, TargetFile
from durability_client.target.target_files import TargetFiles

_SLOTS_AHEAD = 1024


def write_records(plan: Plan, writer: int, storage: Storage, shared: SharedState) -> None:
    """Run writer `writer` from start to end. Never raises: the shared state records how the writer ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    instance: Writer | None = None
    try:
        instance = _class_of(plan, writer)(plan, writer, storage, shared)
        instance.run()
    except BaseException as error:  # MemoryError, SystemExit, too: unreported, other writers would continue
        errno, text = 0, f"{type(error).__name__}: {error}"
        if isinstance(error, OSError):
            errno, text = error.errno or 0, str(error)
        shared.fail(
            WriterFailure(
                at_ns=time.monotonic_ns(),
                writer=writer,
                errno=errno,
                seq=instance.seq if instance is not None else 0,
                text=text,
            )
        )
    else:
        shared.set_state(writer, WriterState.DONE)


def _class_of(plan: Plan, writer: int) -> type[Writer]:
    return _ControlWriter if writer == plan.control_writer else _WRITERS[plan.contract.layout]


class _SlotWriter(AcknowledgingWriter):
    """Writer that overwrites slots in place: write, sync, publish."""

    def __init__(self, plan: Plan, writer: int, storage: Storage, shared: SharedState) -> None:
        super().__init__(plan, writer, storage, shared)
        self._versions = Versions(plan)
        self._slots = np.zeros(0, dtype=U64)  # slots of the operations from `_slots_from` + 1 on
        self._slots_from = 0

    def run(self) -> None:
        extent = self._plan.extent(self._writer)
        file = TargetFiles(self._storage, self._plan).open_writer(self._writer)
        self._wait_for_start()
        while self._write(file, self._stamp(extent, self._batch)):
            pass

    def _write(self, file: TargetFile, offsets: list[int]) -> bool:
        """Write the stamped records, syncing and publishing at the end of each group; False if ordered to
        stop."""
        words, group, limit = self._shared.words, self._plan.group, self._limit
        go, order_at, halt_at = int(Order.GO), SharedState.ORDER, SharedState.HALT
        frontier_at = self._shared.frontier_index(self._writer)
        ring_at = self._shared.ring_index(self._writer)
        pwrite, sync, clock = file.pwrite, file.sync, time.monotonic_ns
        seq = self._seq
        commit, group_end = seq // group, (seq // group + 1) * group
        began_ns = self._began_ns if seq % group else clock()
        try:
            for view, offset in zip(self._views, offsets, strict=False):
                if seq == limit:
                    if not self._wait_for_credit(seq):
                        return False
                    limit, began_ns = self._limit, clock()
                seq += 1
                pwrite(view, offset)
                if seq == group_end:
                    sync()
                    now_ns = clock()
                    if words[halt_at]:
                        return False
                    words[ring_at + commit % RING] = now_ns - began_ns
                    words[frontier_at] = seq
                    if words[order_at] != go:
                        return False
                    commit, group_end, began_ns = commit + 1, group_end + group, now_ns
                    if now_ns >= self._parent.look_at_ns:
                        self._parent.look(now_ns)
        finally:
            self._seq, self._began_ns = seq, began_ns
        return True

    def _stamp(self, extent: Extent, count: int) -> list[int]:
        """Stamp the next `count` records. Returns the offsets at which to write them."""
        seqs, slots = self._next_seqs(count), self._next_slots(count)
        self._stamper.stamp_extent(self._records[:count], extent, slots=slots, seqs=seqs)
        return _offsets(extent, slots)

    def _next_slots(self, count: int) -> Words:
        """The slots of the next `count` operations."""
        at = self._seq - self._slots_from
        if at + count > len(self._slots):
            # `slots_of` costs as much for a few operations as for hundreds, and a batch of large records has
            # few operations: 2.4 us per operation in a batch of 16.
            self._slots = self._versions.slots_of(self._writer, self._next_seqs(max(count, _SLOTS_AHEAD)))
            self._slots_from, at = self._seq, 0
        return self._slots[at : at + count]


class _LogWriter(_SlotWriter):
    """Like `_SlotWriter`, but appends to log files. When a file is full, the writer opens the next one."""

    def run(self) -> None:
        generation = 0
        file, extent = self._open(generation)
        self._wait_for_start()
        while True:
            end = extent.first_slot + extent.slots
            if self._seq == end:
                if self._seq % self._plan.group:
                    file.sync()  # the group goes on in the next file, whose sync does not cover this one
                file.close()
                generation += 1
                file, extent = self._open(generation)
                continue
            offsets = self._stamp(extent, min(self._batch, end - self._seq))
            if not self._write(file, offsets):
                return

    def _open(self, generation: int) -> tuple[TargetFile, Extent]:
        """Open the file of `generation`. The name of a new file is durable before records are written."""
        files, storage = TargetFiles(self._storage, self._plan), self._storage
        extent = self._plan.extent(self._writer, generation)
        if generation == 0:
            return files.open_writer(self._writer), extent
        file = files.open_writer(self._writer, generation, create=True)
        whole = storage.open_bulk(extent.suffix, direct=False)
        whole.sync()  # a full fsync, whatever the plan's sync method
        whole.close()
        storage.sync_directory()
        if generation >= 2:
            storage.unlink(self._plan.extent(self._writer, generation - 2).suffix)
        return file, extent


class _ControlWriter(Writer):
    """The control arm: writes at a fixed pace, never syncs, and always bypasses the page cache.

    Any cut loses a write that completed only in the page cache, which says nothing about the drive. So the
    control arm writes nothing without O_DIRECT.
    """

    def run(self) -> None:
        extent = self._plan.extent(self._writer)
        file = TargetFiles(self._storage, self._plan).open_writer(self._writer)
        self._wait_for_start()
        words, frontier_at = self._shared.words, self._shared.frontier_index(self._writer)
        schedule = self._plan.schedule(self._writer)
        due_ns = time.monotonic_ns()
        while file.direct:
            seqs = self._next_seqs(self._batch)
            slots = schedule.slot_of(seqs)
            self._stamper.stamp_extent(self._records, extent, slots=slots, seqs=seqs)
            for view, offset in zip(self._views, _offsets(extent, slots), strict=True):
                if not self._wait_until(due_ns):
                    return
                self._seq += 1
                file.pwrite(view, offset)
                if self._shared.halted:
                    return
                words[frontier_at] = self._seq
                due_ns = max(due_ns + self._plan.control_interval_us * 1000, time.monotonic_ns())

    def _wait_until(self, due_ns: int) -> bool:
        """Sleep until `due_ns`. Returns False if a stop was ordered before."""
        while self._shared.order == Order.GO and not self._shared.halted:
            left_ns = due_ns - time.monotonic_ns()
            if left_ns <= 0:
                return True
            self._nap(min(left_ns, CHECK_NS) / 1e9)
        return False


def _offsets(extent: Extent, slots: Words) -> list[int]:
    """Byte offsets of the slots in their file."""
    offsets = (slots - U64(extent.first_slot)) * U64(extent.record_bytes) + U64(extent.offset_bytes)
    return cast("list[int]", offsets.tolist())


_WRITERS: Mapping[Layout, type[Writer]] = {"region": _SlotWriter, "log": _LogWriter, "names": NameWriter}
