"""Prefill of names: every name that must be there before the run is armed, a file of one record each.

A drive that syncs thousands of files one after the other takes minutes, so several threads do it, and the
files of a batch are all written before the first of them is synced: file systems then commit many at once.
Refuses to write to a file that exists. The directory is for the caller to sync.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from durability.formats.mixing import U64
from durability.formats.plan import Plan
from durability.formats.record import SECTOR_WORDS, Stamper
from durability_client.target.storage import Storage, TargetFile

_THREADS = 8
_FILES = 256  # open at once: enough for every thread, and less than any system lets a process have
_BATCH_BYTES = 8 << 20


def prefill_names(storage: Storage, plan: Plan, done: Callable[[int], None]) -> None:
    """Make and sync the names of every writer; `done` gets the bytes of each file that is synced.

    Raises OSError, FileExistsError for a name that is there already, and whatever `done` raises.
    """
    count = max(1, min(_FILES, _BATCH_BYTES // plan.record_bytes))
    whole = memoryview(mmap.mmap(-1, count * plan.record_bytes))
    records = np.frombuffer(whole, dtype=U64).reshape(count, -1, SECTOR_WORDS)
    views = [whole[at : at + plan.record_bytes] for at in range(0, len(whole), plan.record_bytes)]
    direct = plan.record_bytes % mmap.PAGESIZE == 0

    def write(suffix: str, record: memoryview) -> TargetFile:
        file = storage.open_bulk(suffix, create=True, direct=direct)
        file.pwrite(record, 0)
        return file

    stamper = Stamper(plan)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="prefill") as pool:
        for writer in range(plan.writers):
            for first in range(0, plan.prefilled_names, count):
                slots = np.arange(first, min(first + count, plan.prefilled_names), dtype=U64)
                nothing = np.zeros_like(slots)
                stamper.stamp(
                    records[: len(slots)], writer=writer, slots=slots, seqs=nothing, offsets=nothing
                )
                suffixes = [plan.extent(writer, slot).suffix for slot in slots.tolist()]
                for _ in pool.map(_sync, list(pool.map(write, suffixes, views))):
                    done(plan.record_bytes)


def _sync(file: TargetFile) -> None:
    try:
        file.sync()
    finally:
        file.close()
