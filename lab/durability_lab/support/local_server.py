"""A real server on this machine for the duration of a session.

Its SQLite store is in a directory that is removed with the session, or with this process. The server runs in
the caller's event loop, so the caller sees each acknowledgement at once and can cut a drive after a number of
them. No part of the server is simulated: clients reach it over TLS and must have joined it.
"""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from durability.evidence.at_risk import WINDOWS_MS, frontiers_at
from durability.protocol.messages import Invited
from durability.units import format_address
from durability_client.join_command import join
from durability_client.link.endpoint import Endpoint, endpoint
from durability_lab.support.cleanup import watched_directory
from durability_server.runs.run import Run
from durability_server.server import Server
from durability_server.store.records import NO_RELATIONS

_TIMEOUT_S = 300.0
_MS = 1_000_000
_POLL_S = 0.001  # polling, because an event would slow down the server's hot path


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """A running server, with the address and credential that its clients need."""

    server: Server
    address: str
    credential: Path

    @property
    def endpoint(self) -> Endpoint:
        """The server, for a client in this process."""
        return endpoint(self.address, self.credential)

    def live_run(self, target: Path) -> Run | None:
        """The armed run whose client works on `target` now."""
        for run in self.server.runs:
            if run.armed is not None and run.armed.path == str(target) and run.session_end == "live":
                return run
        return None

    async def until_acked(
        self, target: Path, count: int, client: asyncio.Future[Any], *, timeout_s: float = _TIMEOUT_S
    ) -> bool:
        """Wait until the server has `count` acknowledgements of the live run on `target`; False if `client`
        ends first. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while not client.done():
                run = self.live_run(target)
                if run is not None and sum(run.frontiers.acked) >= count:
                    return True
                await asyncio.sleep(_POLL_S)
        return False

    async def until_at_risk(
        self, target: Path, client: asyncio.Future[Any], *, timeout_s: float = _TIMEOUT_S
    ) -> bool:
        """Wait until a cut would find records at risk in the live run on `target`.

        Returns False if `client` ends first. Raises TimeoutError. After a pause of this machine, late
        acknowledgements may be old, and a cut would prove nothing.
        """
        async with asyncio.timeout(timeout_s):
            while not client.done():
                run = self.live_run(target)
                if run is not None and anything_new(run):
                    return True
                await asyncio.sleep(_POLL_S)
        return False


def anything_new(run: Run) -> bool:
    """Whether an acknowledgement is certainly at most a second old: a cut now finds records at risk."""
    case = run.case(now_ns=run.last_receipt_ns, relations=NO_RELATIONS)
    return case.frontiers != frontiers_at(case, run.plan, case.last_receipt_ns - max(WINDOWS_MS) * _MS)


def _run_here(act: Callable[[], None]) -> None:
    act()


@asynccontextmanager
async def local_server(
    listener: socket.socket | None = None, *, within: Callable[[Callable[[], None]], None] = _run_here
) -> AsyncIterator[LocalServer]:
    """A server for the duration of an `async with` block. `listener`: a bound socket to use, reachable for
    actions that `within` runs."""
    with watched_directory("durability-lab-") as directory:
        server = Server(store_url=f"sqlite:///{directory}/store.sqlite")
        address = format_address(*await server.start("127.0.0.1", 0, directory=None, listener=listener))
        try:
            credential = directory / "credential.json"
            invited = await server.invite()
            joining = join_server(invited, address, credential)
            await asyncio.to_thread(within, lambda: asyncio.run(joining))
            yield LocalServer(server=server, address=address, credential=credential)
        finally:
            await server.stop()


async def join_server(invited: Invited, address: str, credential: Path, *, name: str = "lab") -> None:
    """Join the server that sent `invited`, at `address`, and write the credential to a file."""
    code = invited.line.split()[-1]
    await join(address, code, name=name, credential=credential, force=False, out=io.StringIO())
