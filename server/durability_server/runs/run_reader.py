"""Reads runs from the store, several in one transaction.

When a server of several has ended, hundreds of clients resume their runs at the others in the same second. A
transaction has four round trips to the database, so one for each run would take the other servers seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from itertools import islice

from durability.errors import FormatError
from durability_server.runs.run import Run
from durability_server.store.records import StoredRun
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread

TOGETHER_MAX = 16  # runs in one transaction: decoding the timeline of a long run takes a tenth of a second


class RunReader:
    """Reads runs of `store`. `boot_id`: the boot of this server's machine."""

    def __init__(self, store: Store, thread: StoreThread, *, boot_id: str) -> None:
        self._store = store
        self._thread = thread
        self._boot_id = boot_id
        self._wanted: dict[int, asyncio.Future[Run]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def read(self, run_id: int) -> Run:
        """The run as it was last saved, read after this call. All callers at a time get the same object.
        Raises StoreError, and RefusedError "run-unknown"."""
        if run_id not in self._wanted:
            self._wanted[run_id] = asyncio.get_running_loop().create_future()
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_wanted())
        return await asyncio.shield(self._wanted[run_id])

    async def _read_wanted(self) -> None:
        """Those wanted during a transaction are read in the next one."""
        while self._wanted:
            several = {
                run_id: self._wanted.pop(run_id) for run_id in tuple(islice(self._wanted, TOGETHER_MAX))
            }
            found: dict[int, Run | Exception]
            try:
                found = await self._thread.look_up(self._load, several.keys())
            except Exception as error:
                found = dict.fromkeys(several, error)
            for run_id, answer in several.items():
                read = found[run_id]
                if isinstance(read, Run):
                    answer.set_result(read)
                else:
                    answer.set_exception(read)
                    answer.exception()  # the caller may have gone
        self._reading = None

    def _load(self, run_ids: Collection[int]) -> dict[int, Run | Exception]:
        """Runs in a thread of the store. A run that cannot be read is no error of the others. Raises
        StoreError."""
        try:
            stored = self._store.load_several(run_ids)
        except FormatError:  # in the row of one of them
            stored = {}
        return {run_id: self._run(run_id, stored.get(run_id)) for run_id in run_ids}

    def _run(self, run_id: int, stored: StoredRun | None) -> Run | Exception:
        try:
            return Run(stored or self._store.load(run_id), boot_id=self._boot_id)
        except Exception as error:
            return error
