"""The server: listens, keeps the store open, and ends in an orderly way.

`Server` is one running server; `serve` runs one until a signal says stop. It refuses to listen beyond
loopback without a token, because any host could then write into the evidence.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from durability import limits, plain_text
from durability.errors import SetupError, UsageError
from durability.units import format_address, is_loopback, parse_address
from durability_server import clock
from durability_server.connections.client_connection import ClientConnection
from durability_server.connections.connection_manager import ConnectionManager
from durability_server.runs.registry import Registry
from durability_server.runs.requests import Requests
from durability_server.runs.run import Run
from durability_server.runs.session import Session
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread

BACKLOG = 512
GRACE_S = 2.0  # for connections to take what was sent to them, when the server ends

log = logging.getLogger(__name__)


class Server:
    """One server on one store. `start`, then `stop` (a second does nothing); not to be used again."""

    def __init__(self, *, store_url: str, token: bytes, tls: ssl.SSLContext | None = None) -> None:
        self._store = Store(store_url)
        self._token = token
        self._tls = tls
        self._thread = StoreThread()
        self._manager = ConnectionManager()
        self._registry = Registry(self._store, self._thread, boot_id=clock.read_boot_id())
        self._requests = Requests(self._store, self._thread, self._registry)
        self._listener: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._manager)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs in memory, to be watched from within the process; read only."""
        return self._registry.runs

    @property
    def sessions(self) -> tuple[Session, ...]:
        """Which clients speak for which runs, to be watched as `runs` are."""
        return self._registry.sessions

    async def start(self, host: str, port: int, *, listener: socket.socket | None = None) -> tuple[str, int]:
        """Opens the store and listens; port 0 means any. `listener`: a bound socket, in place of `host` and
        `port`. Returns the address. Raises StoreError and SetupError."""
        try:
            failure = await self._thread.call(self._store.open)
            self._listener = await self._listen(host, port, listener)
        except SetupError:
            await self._close_store()
            raise
        if failure is not None:
            self._registry.committer.begin_without(failure)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._manager.watch()),
            loop.create_task(self._registry.committer.work()),
        ]
        bound: tuple[str, int] = self._listener.sockets[0].getsockname()[:2]
        log.info("listening on %s, store %s", format_address(*bound), self._store.name)
        return bound

    async def stop(self) -> None:
        """Takes no more connections, makes everything durable that was received, and closes."""
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        watch, work = self._tasks
        watch.cancel()
        await self._manager.close(GRACE_S)
        self._registry.committer.close()
        await work
        with suppress(asyncio.CancelledError):
            await watch
        await self._close_store()
        log.info("stopped")

    async def _listen(self, host: str, port: int, listener: socket.socket | None) -> asyncio.Server:
        listen = partial(
            asyncio.get_running_loop().create_server,
            self._connection,
            backlog=BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=limits.HANDSHAKE_TIMEOUT_S if self._tls else None,
        )
        try:
            return await (listen(host, port) if listener is None else listen(sock=listener))
        except OSError as error:
            # asyncio's own words only repeat the address
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            raise SetupError(f"cannot listen on {format_address(host, port)}: {why}") from error

    async def _close_store(self) -> None:
        await self._thread.call(self._store.close)
        self._thread.close()

    def _connection(self) -> ClientConnection:
        return ClientConnection(
            self._requests, self._manager, token=self._token, server_id=self._store.server_id
        )


class _PlainFormatter(logging.Formatter):
    """Makes each message one plain line, so that a peer's words forge no line of the log."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        return plain_text.as_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return plain_text.as_text(super().formatException(ei))


async def serve(
    *,
    listen: str,
    store_url: str,
    token: bytes,
    tls: ssl.SSLContext | None = None,
    ready: Callable[[str, int], None] | None = None,
) -> None:
    """Runs a server on `listen`, HOST:PORT, until SIGTERM or SIGINT. `ready` gets the address it listens on.
    Raises UsageError, SetupError or StoreError if it cannot start."""
    host, port = parse_address(listen)
    if not token and not is_loopback(host):
        raise UsageError(
            f"{listen} can be reached from other machines, which needs a token: add --token-file FILE"
        )
    handler = logging.StreamHandler()
    handler.setFormatter(_PlainFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    _raise_file_limit()
    server = Server(store_url=store_url, token=token, tls=tls)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        bound = await server.start(host, port)
        gc.collect()
        gc.freeze()  # what was loaded to start with need not be gone through while receipts wait
        if ready is not None:
            ready(*bound)
        await stop.wait()
        await server.stop()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _raise_file_limit() -> None:
    """Each connection needs a descriptor; systems give a process few at first."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
