"""A server for the benchmarks in a separate process, on loopback, with its store in memory.

The drive under measurement therefore has only the load of `run`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from durability.units import format_address
from durability_client.link.endpoint import Endpoint, endpoint
from durability_lab.support.local_server import join_server

MEMORY = Path("/dev/shm")
RUNS_OF_ONE = 50  # concurrent runs of one client, limited by its connections


@contextmanager
def serving(
    instrument: Callable[[], Callable[[], object]] | None = None,
    *,
    clients: int = 1,
    web: str | None = None,
) -> Iterator[Server]:
    """A running server that `clients` clients have joined.

    `instrument` is called in the server's process before it starts. It returns a function that makes the
    result of `Server.stop`. `web`: address of the server's live page, None for none.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_serve, args=(directory, theirs, instrument, clients, web), daemon=True
        )
        process.start()
        server = Server(process, ours)
        try:
            yield server
        finally:
            server.stop()


class Server:
    """A running server, seen from the benchmark."""

    def __init__(self, process: multiprocessing.process.BaseProcess, pipe: Connection) -> None:
        self._process = process
        self._pipe = pipe
        self.address: str  # for `run --server`
        self.credentials: tuple[Path, ...]  # each for `run --credential`
        self.page: str  # address of the live page, "" for none
        self.address, self.credentials, self.page = pipe.recv()

    @property
    def credential(self) -> Path:
        """The credential of the first client."""
        return self.credentials[0]

    @property
    def endpoint(self) -> Endpoint:
        """The server's endpoint for the first client."""
        return self.endpoints[0]

    @property
    def endpoints(self) -> list[Endpoint]:
        """The server's endpoint for each client."""
        return [endpoint(self.address, credential) for credential in self.credentials]

    def stop(self) -> object:
        """End the server. The first call returns the result of its instrument, later calls None."""
        if not self._process.is_alive():
            return None
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGTERM)
        result: object = self._pipe.recv()
        self._process.join()
        return result


def _serve(
    directory: str,
    pipe: Connection,
    instrument: Callable[[], Callable[[], object]] | None,
    clients: int,
    web: str | None,
) -> None:
    import asyncio  # noqa: PLC0415 - only the child is a server

    from durability_server.server import serve  # noqa: PLC0415

    async def ready(server: Any, host: str, port: int) -> None:
        address = format_address(host, port)
        credentials = tuple(Path(directory, f"credential{number}.json") for number in range(clients))
        for credential in credentials:
            await join_server(await server.invite(), address, credential)
        pipe.send((address, credentials, server.page))

    collect = instrument() if instrument is not None else lambda: None
    asyncio.run(
        serve(
            listen="127.0.0.1:0",
            store_url=f"sqlite:///{directory}/store.db",
            directory=Path(directory),
            ready=ready,
            web=web,
        )
    )
    pipe.send(collect())
