"""The server of a history: the product's own server and store, on a separate machine in virtual time."""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from durability.errors import DurabilityError
from durability.formats.case import Case, case_from_value
from durability.protocol.local_address import PORT, socket_name
from durability.protocol.messages import CaseFile, Export, List, Listing
from durability.units import parse_run
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import connect
from durability_lab.histories.simulated.virtual_loop import VirtualLoop
from durability_lab.histories.simulated.virtual_process import Process
from durability_lab.histories.store_copies import put_back
from durability_server.server import Server

_UP_FOR_NS: Final = 10**6 * 1_000_000_000  # clock lead of another machine that takes over the store


class HistoryServer:
    """The server, which can be started and killed many times; its store is in `directory`."""

    def __init__(self, directory: Path, loop: VirtualLoop) -> None:
        self._directory = directory
        self._loop = loop
        self._server: Server | None = None
        self._process: Process | None = None
        self._boots = 1
        self._ahead_ns = 0  # how far the clock of the server's machine is ahead of the history's

    @property
    def runs(self) -> bool:
        """Whether the server was started and not killed."""
        return self._server is not None

    @property
    def endpoint(self) -> Endpoint:
        """The local endpoint of the server, as for its operator: a history's network needs no protection."""
        return Endpoint(local=self._directory / socket_name(PORT))

    def armed(self) -> list[int]:
        """The runs that the server has as armed."""
        runs = self._server.runs if self._server is not None else ()
        return [one.id for one in runs if one.armed is not None]

    def live(self) -> set[int]:
        """The runs whose client the server considers live."""
        runs = self._server.runs if self._server is not None else ()
        return {one.id for one in runs if one.session_end == "live"}

    async def start(self) -> None:
        """Start the server, and wait until it listens."""
        process = Process("server", boot_id=f"server-boot-{self._boots}", ahead_ns=self._ahead_ns)

        async def started() -> Server:
            server = Server(store_url=f"sqlite:///{self._directory / 'store'}")
            await server.start_locally(self._directory, PORT)
            return server

        self._server, self._process = await process.begin(self._loop, started()), process

    def kill(self) -> None:
        """Kill the server; it sends nothing more."""
        assert self._server is not None and self._process is not None
        self._process.end()
        self._loop.network.kill(self._process)
        self._loop.network.close()
        self._server._store.close()
        self._server = None

    def machine_changes(self, *, moved: bool) -> None:
        """Note that the server's machine has just restarted, or, with `moved`, that the server will start on
        another machine with a long uptime."""
        self._boots += 1
        self._ahead_ns = _UP_FOR_NS if moved else -self._loop.now_ns

    def copy(self, to: Path) -> None:
        """Copy the store as it is now, like a snapshot of its file system."""
        to.mkdir()
        for file in self._directory.glob("store*"):
            shutil.copy(file, to / file.name)

    def restore(self, copy: Path) -> None:
        """Replace the store with a copy. The server must not run."""
        put_back(copy, self._directory)

    async def case_value(self, run: int) -> Any:
        """The case of a run, as a document's value; None if the server does not answer."""
        with suppress(DurabilityError):
            return (await self._ask(Export(run=run), CaseFile)).case
        return None

    async def case(self, run: int) -> Case | None:
        """The case of a run; None if the server does not answer."""
        value = await self.case_value(run)
        return None if value is None else case_from_value(value)

    async def listed(self) -> dict[int, str]:
        """The verdict that `runs` shows for each run; empty if the server does not answer."""
        with suppress(DurabilityError):
            rows = (await self._ask(List(limit=100), Listing)).rows
            return {parse_run(str(row["run"])): str(row["verdict"]) for row in rows}
        return {}

    async def _ask(self, message: Any, answer: Any) -> Any:
        if not self.runs or not self._loop.network.up:
            raise DurabilityError("no server")
        with closing(await connect(self.endpoint, "query")) as connection:
            return await connection.request(message, answer)
