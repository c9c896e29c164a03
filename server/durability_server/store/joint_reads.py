"""Reads that are wanted at the same time, done in one transaction.

When a server of several has ended, hundreds of clients come to the others in the same second. A transaction
has four round trips to the database, so one for each client would take the other servers seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Mapping
from itertools import islice
from typing import Generic, TypeVar

from durability_server.store.store_thread import StoreThread

TOGETHER_MAX = 16  # in one transaction: decoding the timeline of a long run takes a tenth of a second

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class JointReads(Generic[K, V]):
    """Reads of one kind. `read_several` runs in the thread of look-ups. For each of its keys it returns what
    it has found, or the error of the callers that want this key. If it raises, all its keys have failed."""

    def __init__(
        self, thread: StoreThread, read_several: Callable[[Collection[K]], Mapping[K, V | Exception]]
    ) -> None:
        self._thread = thread
        self._read_several = read_several
        self._wanted: dict[K, asyncio.Future[V]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def read(self, key: K) -> V:
        """What the store has of `key`, read after this call. All callers at a time get the same object.
        Raises StoreError and the errors of `read_several`."""
        if key not in self._wanted:
            self._wanted[key] = asyncio.get_running_loop().create_future()
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_wanted())
        return await asyncio.shield(self._wanted[key])

    async def _read_wanted(self) -> None:
        """Keys that are wanted during a transaction are read in the next one."""
        while self._wanted:
            several = {key: self._wanted.pop(key) for key in tuple(islice(self._wanted, TOGETHER_MAX))}
            found: Mapping[K, V | Exception]
            try:
                found = await self._thread.look_up(self._read_several, several.keys())
            except Exception as error:
                found = dict.fromkeys(several, error)
            for key, answer in several.items():
                read = found[key]
                if isinstance(read, Exception):
                    answer.set_exception(read)
                    answer.exception()  # the caller may have gone
                else:
                    answer.set_result(read)
        self._reading = None
