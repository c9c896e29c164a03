"""A server in a process of its own for the benchmarks: on loopback, its store in memory, so that only
`run`'s own drive is measured."""

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
RUNS_OF_ONE = 50  # of one client at the same time: it may have so many connections


@contextmanager
def serving(
    instrument: Callable[[], Callable[[], object]] | None = None,
    *,
    clients: int = 1,
    web: str | None = None,
) -> Iterator[Server]:
    """A running server which so many clients have joined. `instrument` is called in its process before it
    starts and returns what makes the result that `Server.stop` hands over. `web`: where its live page is."""
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
    """`address` is what `run --server` wants, and each of `credentials` what `run --credential` wants.
    `page`: the address of its live page, "" for none."""

    def __init__(self, process: multiprocessing.process.BaseProcess, pipe: Connection) -> None:
        self._process = process
        self._pipe = pipe
        self.address: str
        self.credentials: tuple[Path, ...]
        self.page: str
        self.address, self.credentials, self.page = pipe.recv()

    @property
    def credential(self) -> Path:
        """That of the first client."""
        return self.credentials[0]

    @property
    def endpoint(self) -> Endpoint:
        """The server, for the first client in this process."""
        return self.endpoints[0]

    @property
    def endpoints(self) -> list[Endpoint]:
        """The server, for each client in this process."""
        return [endpoint(self.address, credential) for credential in self.credentials]

    def stop(self) -> object:
        """End the server; what its instrument measured, the first time."""
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
