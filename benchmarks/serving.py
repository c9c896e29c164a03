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

from durability.units import format_address

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
    """`address` is what `run --server` wants."""

    def __init__(self, process: multiprocessing.process.BaseProcess, pipe: Connection) -> None:
        self._process = process
        self._pipe = pipe
        self.address: str = pipe.recv()

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

    collect = instrument() if instrument is not None else lambda: None
    asyncio.run(
        serve(
            listen="127.0.0.1:0",
            store_url=f"sqlite:///{directory}/store.db",
            token=b"",
            ready=lambda host, port: pipe.send(format_address(host, port)),
        )
    )
    pipe.send(collect())
