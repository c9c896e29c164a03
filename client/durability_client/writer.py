"""A writer: one process (or thread) with one descriptor that writes, syncs and publishes its frontier.

Everything that can be done before is done before: records are stamped some hundreds at a time, so that
between two syncs there is a pwrite, two words stored and two read. What it refuses: to acknowledge anything
but a sync that returned success, to go on after an error of the target (its own or another writer's), to
retry, to issue beyond its credit, to be interrupted by a signal, and to outlive the process that started it.
"""

from __future__ import annotations

import mmap
import multiprocessing
import signal
import time

import numpy as np

from durability.mixing import U64, Words
from durability.plan import Extent, Plan
from durability.record import SECTOR_WORDS, Stamper
from durability_client.io import Storage, TargetFile
from durability_client.ledger import RING, Ledger, Order, WriterFailure, WriterState
from durability_client.target import TargetFiles

BATCH_BYTES = 1 << 20  # stamped at a time: 256 records of 4 KiB, which stay in the processor's cache
_CHECK_NS = 20_000_000  # between looks at whether the parent is still there
_NAP_S = 0.0005  # between looks for credit, or for the order to start


def write_records(plan: Plan, writer: int, storage: Storage, ledger: Ledger) -> None:
    """The whole life of writer `writer`. Never raises: the ledger says how it ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    life = (_Control if writer == plan.control_writer else _Writer)(plan, writer, storage, ledger)
    try:
        life.run()
    except OSError as error:
        life.fail(error.errno or 0, str(error))
    except BaseException as error:  # MemoryError and SystemExit too: left unsaid, the others would write on
        life.fail(0, f"{type(error).__name__}: {error}")
    else:
        ledger.set_state(writer, WriterState.DONE)


class _OrphanedError(Exception):
    """The process that started this one is gone."""


class _Life:
    """What writers and the control arm share: stamping, waiting for orders, and noticing that nobody gives
    any."""

    def __init__(self, plan: Plan, writer: int, storage: Storage, ledger: Ledger) -> None:
        self._plan = plan
        self._writer = writer
        self._storage = storage
        self._ledger = ledger
        self._parent = multiprocessing.parent_process()
        self._look_at_ns = 0
        self._seq = 0  # the newest that was issued
        record_bytes = plan.extent(writer).record_bytes
        self._batch = max(1, BATCH_BYTES // record_bytes)
        self._memory = mmap.mmap(-1, self._batch * record_bytes)  # page-aligned, as O_DIRECT needs it
        whole = memoryview(self._memory)
        self._views = [whole[at : at + record_bytes] for at in range(0, len(whole), record_bytes)]
        self._records: Words = np.frombuffer(whole, dtype=np.uint64).reshape(self._batch, -1, SECTOR_WORDS)
        self._stamper = Stamper(plan)
        self._schedule = plan.schedule(writer)

    def run(self) -> None:
        """Write until ordered to stop."""
        raise NotImplementedError

    def fail(self, errno: int, text: str) -> None:
        """Say in the ledger why this writer ends."""
        self._ledger.fail(
            WriterFailure(
                at_ns=time.monotonic_ns(), writer=self._writer, errno=errno, seq=self._seq, text=text
            )
        )

    def _stamp(self, extent: Extent, count: int) -> list[int]:
        """Stamp the next `count` records; the offsets at which they are to be written."""
        seqs = np.arange(self._seq + 1, self._seq + 1 + count, dtype=U64)
        slots = seqs - U64(1) if self._plan.workload == "append" else self._schedule.slot_of(seqs)
        return self._stamp_slots(extent, slots, seqs)

    def _stamp_slots(self, extent: Extent, slots: Words, seqs: Words) -> list[int]:
        self._stamper.stamp_extent(self._records[: len(seqs)], extent, slots=slots, seqs=seqs)
        offsets = (slots - U64(extent.first_slot)) * U64(extent.record_bytes) + U64(extent.offset_bytes)
        return [int(offset) for offset in offsets.tolist()]

    def _wait_for_start(self) -> None:
        self._ledger.set_state(self._writer, WriterState.READY)
        while self._ledger.order == Order.WAIT and not self._ledger.halted:
            self._nap(_NAP_S)
        self._ledger.set_state(self._writer, WriterState.RUNNING)

    def _nap(self, seconds: float) -> None:
        time.sleep(seconds)
        self._look_for_parent(time.monotonic_ns())

    def _look_for_parent(self, now_ns: int) -> None:
        """Raises _OrphanedError once the parent process is gone; looks at most every `_CHECK_NS`."""
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + _CHECK_NS
            if self._parent is not None and not self._parent.is_alive():
                raise _OrphanedError("the process that started this writer is gone")


class _Writer(_Life):
    """Write, sync, publish; wait only where credit is used up."""

    def __init__(self, plan: Plan, writer: int, storage: Storage, ledger: Ledger) -> None:
        super().__init__(plan, writer, storage, ledger)
        self._limit = 0  # the seq up to which this writer may issue: always the end of a group
        self._began_ns = 0  # when the first write of the open group was issued

    def run(self) -> None:
        append = self._plan.workload == "append"
        generation = 0
        file, extent = self._open(generation)
        self._wait_for_start()
        count = self._batch
        while True:
            end = extent.first_slot + extent.slots
            if append and self._seq == end:
                if self._seq % self._plan.group:
                    file.sync()  # the group goes on in the next file, whose sync does not cover this one
                file.close()
                generation += 1
                file, extent = self._open(generation)
                continue
            if append:
                count = min(self._batch, end - self._seq)
            offsets = self._stamp(extent, count)
            if not self._write(file, offsets):
                return

    def _open(self, generation: int) -> tuple[TargetFile, Extent]:
        """The file to write to. A new generation of a log is durable as a name before it is written to."""
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

    def _write(self, file: TargetFile, offsets: list[int]) -> bool:
        """Write the stamped records, syncing and publishing at the end of each group; False when told to
        stop."""
        words, group, limit = self._ledger.words, self._plan.group, self._limit
        go, order_at, halt_at = int(Order.GO), Ledger.ORDER, Ledger.HALT
        frontier_at = self._ledger.frontier_index(self._writer)
        ring_at = self._ledger.ring_index(self._writer)
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
                    if now_ns >= self._look_at_ns:
                        self._look_for_parent(now_ns)
        finally:
            self._seq, self._began_ns = seq, began_ns
        return True

    def _wait_for_credit(self, seq: int) -> bool:
        """Move the limit so that the group after `seq` fits under it; False when told to stop before it
        does."""
        ledger, plan = self._ledger, self._plan
        grant_at = ledger.grant_index(self._writer)
        while ledger.order == Order.GO and not ledger.halted:
            self._limit = (ledger.words[grant_at] + plan.credit) // plan.group * plan.group
            if self._limit > seq:
                ledger.set_state(self._writer, WriterState.RUNNING)
                return True
            ledger.set_state(self._writer, WriterState.OUT_OF_CREDIT)
            self._nap(_NAP_S)
        return False


class _Control(_Life):
    """The control arm: paced, never synced, and only past the page cache.

    A write that completed in the page cache is lost by any cut and shows nothing of the drive, so without
    O_DIRECT this arm writes nothing.
    """

    def run(self) -> None:
        extent = self._plan.extent(self._writer)
        file = TargetFiles(self._storage, self._plan).open_writer(self._writer)
        self._wait_for_start()
        words, frontier_at = self._ledger.words, self._ledger.frontier_index(self._writer)
        due_ns = time.monotonic_ns()
        while file.direct:
            seqs = np.arange(self._seq + 1, self._seq + 1 + self._batch, dtype=U64)
            offsets = self._stamp_slots(extent, self._schedule.slot_of(seqs), seqs)
            for view, offset in zip(self._views, offsets, strict=True):
                if not self._wait_until(due_ns):
                    return
                self._seq += 1
                file.pwrite(view, offset)
                if self._ledger.halted:
                    return
                words[frontier_at] = self._seq
                due_ns = max(due_ns + self._plan.control_interval_us * 1000, time.monotonic_ns())

    def _wait_until(self, due_ns: int) -> bool:
        """Sleep until `due_ns`; False when told to stop before."""
        while self._ledger.order == Order.GO and not self._ledger.halted:
            left_ns = due_ns - time.monotonic_ns()
            if left_ns <= 0:
                return True
            self._nap(min(left_ns, _CHECK_NS) / 1e9)
        return False
