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


@contextmanager
def serving(instrument: Callable[[], Callable[[], object]] | None = None) -> Iterator[Server]:
    """A running server. `instrument` is called in its process before it starts and returns what makes the
    result that `Server.stop` hands over."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(directory, theirs, instrument), daemon=True)
        process.start()
        server = Server(process, ours)
        try:
            yield server
        finally:
            server.stop()


class Server:
    """`address` is what `run --server` wants, and `credential` what `run --credential` wants."""

    def __init__(self, process: multiprocessing.process.BaseProcess, pipe: Connection) -> None:
        self._process = process
        self._pipe = pipe
        self.address: str
        self.credential: Path
        self.address, self.credential = pipe.recv()

    @property
    def endpoint(self) -> Endpoint:
        """The server, for a client in this process."""
        return endpoint(self.address, self.credential)

    def stop(self) -> object:
        """End the server; what its instrument measured, the first time."""
        if not self._process.is_alive():
            return None
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGTERM)
        result: object = self._pipe.recv()
        self._process.join()
        return result


def _serve(directory: str, pipe: Connection, instrument: Callable[[], Callable[[], object]] | None) -> None:
    import asyncio  # noqa: PLC0415 - only the child is a server

    from durability_server.server import serve  # noqa: PLC0415

    async def ready(server: Any, host: str, port: int) -> None:
        credential = Path(directory, "credential.json")
        await join_server(await server.invite(), format_address(host, port), credential)
        pipe.send((format_address(host, port), credential))

    collect = instrument() if instrument is not None else lambda: None
    asyncio.run(
        serve(
            listen="127.0.0.1:0",
            store_url=f"sqlite:///{directory}/store.db",
            directory=Path(directory),
            ready=ready,
        )
    )
    pipe.send(collect())
