"""A real server on this machine for the length of a session: SQLite in a directory that is removed with it,
or with this process.

It runs in the caller's event loop, so that the caller can see each acknowledgement as it comes and cut a
drive after a number of them. No part of it is a substitute: clients reach it through a socket and must know
its token.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from durability.units import format_address
from durability_lab.support.cleanup import watched_directory
from durability_server.connections.access import load_token
from durability_server.runs.run import Run
from durability_server.server import Server

_TIMEOUT_S = 300.0
_POLL_S = 0.001  # an event would cost the server's hot path something


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """A server that runs, and what its clients need to reach it."""

    server: Server
    address: str
    token: bytes
    token_file: Path

    def live_run(self, target: Path) -> Run | None:
        """The armed run whose client works on `target` now."""
        for run in self.server.runs:
            if run.armed is not None and run.armed.path == str(target) and run.session_end == "live":
                return run
        return None

    async def until_acked(
        self, target: Path, count: int, client: asyncio.Future[Any], *, timeout_s: float = _TIMEOUT_S
    ) -> bool:
        """Wait until the server has that run's `count` acknowledgements; False if `client` ends first. Raises
        TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while not client.done():
                run = self.live_run(target)
                if run is not None and sum(run.frontiers.acked) >= count:
                    return True
                await asyncio.sleep(_POLL_S)
        return False


@asynccontextmanager
async def local_server(listener: socket.socket | None = None) -> AsyncIterator[LocalServer]:
    """A server for the time of an `async with` block, on `listener` if that is given: a bound socket."""
    with watched_directory("durability-lab-") as directory:
        token, token_file = load_token(directory / "token")
        server = Server(store_url=f"sqlite:///{directory}/store.sqlite", token=token)
        host, port = await server.start("127.0.0.1", 0, listener=listener)
        try:
            yield LocalServer(
                server=server, address=format_address(host, port), token=token, token_file=token_file
            )
        finally:
            await server.stop()
