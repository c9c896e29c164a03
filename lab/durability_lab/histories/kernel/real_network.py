"""The network of a history on a real kernel: a proxy on loopback that holds data back while it is dead.

Like `virtual_network`, it keeps the bytes of a connection in order and loses none while both ends live. Data
sent into a dead network, including the end of a stream, arrive when the network is back, as TCP would resend
them. A machine that loses its power sends nothing. A machine that has started again resets the connections
that it no longer knows.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from durability.units import format_address
from durability_lab.support import tcp_proxy

_CHUNK_BYTES = 1 << 16


@dataclass(slots=True, eq=False)
class _Connection:
    """One connection of the machine under test. `dark`: that machine has lost its power since."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    dark: asyncio.Event = field(default_factory=asyncio.Event)


class RealNetwork:
    """The network between the machine under test and the server. `address`: where the machine finds the
    server."""

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
        """Whether the network is on."""
        return self._up.is_set()

    async def open(self) -> None:
        """Accept connections from now on."""
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = format_address(*self._listener.sockets[0].getsockname()[:2])

    async def close(self) -> None:
        """Stop accepting connections, and end all of them."""
        if self._listener is not None:
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lead_to(self, port: int) -> None:
        """Connect new connections to the server's port on loopback."""
        self._port = port

    def turn(self, *, up: bool) -> None:
        """Turn the network on or off."""
        if up:
            self._up.set()
        else:
            self._up.clear()

    def darken(self) -> None:
        """Note that the machine lost its power: its connections carry nothing any more."""
        for connection in self._connections:
            connection.dark.set()

    def reset_dark(self) -> None:
        """Reset the connections of the earlier boot, which the restarted machine does not know."""
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
            pass  # one side is gone, and the other is reset; or the network is closed
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
