"""Clients that were started, and when their runs are armed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from durability.protocol.messages import List, Listing
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import connect

DEADLINE_S = 120


async def armed_runs(where: Endpoint, clients: Sequence[asyncio.Task[Any]]) -> list[int]:
    """The runs of all `clients`, in the order of their targets' paths, once all are armed. Raises what a
    client ended with before."""
    async with asyncio.timeout(DEADLINE_S):
        with closing(await connect(where, "query")) as query:
            while True:
                rows = (await query.request(List(limit=10), Listing)).rows
                armed = sorted(
                    (str(row["path"]), int(str(row["run"]), 16)) for row in rows if row["state"] == "armed"
                )
                if len(armed) == len(clients):
                    return [run_id for _, run_id in armed]
                for client in clients:
                    assert not client.done(), client.result()
