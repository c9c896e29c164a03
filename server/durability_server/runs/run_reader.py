"""Reads runs from the store, several in one transaction."""

from __future__ import annotations

from collections.abc import Collection

from durability.errors import FormatError
from durability_server.runs.run import Run
from durability_server.store.joint_reads import JointReads
from durability_server.store.records import StoredRun
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread


class RunReader:
    """Reads runs of `store`. `boot_id`: the boot of this server's machine."""

    def __init__(self, store: Store, thread: StoreThread, *, boot_id: str) -> None:
        self._store = store
        self._boot_id = boot_id
        self._reads = JointReads(thread, self._load)

    async def read(self, run_id: int) -> Run:
        """The run as it was last saved, read after this call. All callers at a time get the same object.
        Raises StoreError, and RefusedError "run-unknown"."""
        return await self._reads.read(run_id)

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
