"""Requests about kept benchmark results.

A client keeps and sees its own results. Viewers list and read all results. A body that is not whole is
refused, and the server does not read the results in it.
"""

from __future__ import annotations

from durability.bench.kept_result import KeptSummary, digest_of
from durability.errors import ProtocolError
from durability.formats.documents import from_value
from durability.protocol import messages
from durability.protocol.messages import Message
from durability_server import clock
from durability_server.access.caller import Caller
from durability_server.store.result_store import NewResult
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread

REQUESTS = (messages.KeepResult, messages.ListResults, messages.FetchResult)


class KeptResults:
    """Answers requests about kept results."""

    def __init__(self, store: Store, thread: StoreThread) -> None:
        self._store = store
        self._thread = thread

    async def answer(self, caller: Caller, message: Message) -> Message:
        """The answer to a request. Raises RefusedError, FormatError or StoreError."""
        results = self._store.results
        match message:
            case messages.KeepResult():
                return messages.ResultKept(result=await self._keep(caller, message))
            case messages.ListResults():
                rows = await self._thread.ask(
                    results.listing,
                    message.limit,
                    client=caller.only_of,
                    drive=message.drive,
                    identity=message.identity,
                    host=message.host,
                )
                return messages.Listing(rows=rows)
            case messages.FetchResult():
                row, body = await self._thread.ask(results.find, message.result, client=caller.only_of)
                return messages.KeptResult(row=row, body=body)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not a request")

    async def _keep(self, caller: Caller, message: messages.KeepResult) -> str:
        new = NewResult(
            client=caller.client,
            wall=clock.wall(),
            summary=from_value(KeptSummary, message.summary),
            body=message.body,
            digest=await self._thread.ask(digest_of, message.body),
        )
        return await self._thread.call(self._store.keep_result, new)
