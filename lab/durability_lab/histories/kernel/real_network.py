"""The network of a history on a real kernel: a proxy on loopback that holds what is sent while it is dead.

As `virtual_network`, it keeps the bytes of a connection in order and loses none while both ends live: what is
sent into a dead network, the end of a stream included, arrives when it is back, as TCP sends it again. A
machine that loses its power says nothing, and one that has started anew resets what it no longer knows.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from durability.units import format_address
from durability_lab.support import tcp_proxy

_CHUNK_BYTES = 1 << 16


@dataclass(slots=True, eq=False)
class _Connection:
    """One connection of the machine under test. `dark`: the machine that had it lost its power."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    dark: asyncio.Event = field(default_factory=asyncio.Event)


class RealNetwork:
    """Between the machine under test and the server. `address`: where the machine finds the server."""

    def __init__(self) -> None:
        self.address = ""
        self._up = asyncio.Event()
        self._up.set()
        self._listener: asyncio.Server | None = None
        self._port = 0
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def up(self) -> bool:
        """Whether it carries anything."""
        return self._up.is_set()

    async def open(self) -> None:
        """Take connections from now on."""
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = format_address(*self._listener.sockets[0].getsockname()[:2])

    async def close(self) -> None:
        """Take and carry no more."""
        if self._listener is not None:
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lead_to(self, port: int) -> None:
        """The server listens there, on loopback."""
        self._port = port

    def turn(self, *, up: bool) -> None:
        """The network dies, or is back."""
        if up:
            self._up.set()
        else:
            self._up.clear()

    def darken(self) -> None:
        """The machine lost its power: of what it has, nothing is carried any more."""
        for connection in self._connections:
            connection.dark.set()

    def reset_dark(self) -> None:
        """The machine has started anew, and knows nothing of the connections that it had."""
        for connection in self._connections:
            if connection.dark.is_set() and connection.server is not None:
                tcp_proxy.reset(connection.server)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = _Connection(writer)
        self._connections.add(connection)
        try:
            await self._up.wait()
            server_reader, connection.server = await asyncio.open_connection("127.0.0.1", self._port)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._carry(reader, connection.server, connection))
                ways.create_task(self._carry(server_reader, writer, connection))
        except* (OSError, asyncio.CancelledError):
            pass  # one side is gone, and the other learns it; or it is over
        finally:
            self._connections.discard(connection)
            self._tasks.discard(task)
            for end in filter(None, (connection.client, connection.server)):
                tcp_proxy.reset(end)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection
    ) -> None:
        data = b"anything"
        while data:
            error = None
            try:
                data = await reader.read(_CHUNK_BYTES)
            except OSError as reset:
                error = reset
            await self._up.wait()
            if connection.dark.is_set():
                await asyncio.Event().wait()  # until `reset_dark` ends the other way, or `close` both
            if error is not None:
                raise error
            if data:
                writer.write(data)
                await writer.drain()
            elif writer.can_write_eof():
                writer.write_eof()
