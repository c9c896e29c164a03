"""A TCP proxy that makes loopback a worse network: delayed, deaf in one direction, or cut.

The proxy stands between a real client and a real server and does not interpret the bytes. Delays apply per
direction and chunk, in order, so latency costs no bandwidth. In an ordinary event loop, delays are rounded up
to whole milliseconds. In that of `durability_client.run.sender.run_in_fine_loop`, they are exact to some tens
of microseconds.

The proxy does not imitate packet loss: TCP shows that to both sides only as delay. It imitates failures that
TCP does show: a reset connection (`TcpProxy.cut`) and one on which no data arrive any more (`Way.lost`).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import Self

from durability.units import format_address

_CHUNK_BYTES = 1 << 16
_CHUNKS_MAX = 1024  # chunks on their way in one direction; a faster sender has to wait
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, for 0 s


@dataclass(slots=True, kw_only=True)
class Way:
    """One direction of all connections. `delay_s` applies to data that arrive from now on. While `lost` is
    set, data due for delivery are dropped, including the end of the stream."""

    delay_s: float = 0.0
    lost: bool = False


class TcpProxy:
    """Forwards a port of loopback to the server at `host` and `port`; an async context manager.

    `delay_s`: the initial delay in each direction. If the server does not run, new connections are reset.
    """

    def __init__(self, host: str, port: int, *, delay_s: float = 0.0) -> None:
        self.to_server = Way(delay_s=delay_s)
        self.to_client = Way(delay_s=delay_s)
        self.address = ""
        self._host = host
        self._port = port
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = format_address(*self._listener.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection towards both sides, as if a router had lost its table. New connections
        work."""
        for writer in self._writers:
            reset(writer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        ends = [writer]
        try:
            server_reader, server_writer = await asyncio.open_connection(self._host, self._port)
            ends.append(server_writer)
            self._writers.update(ends)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(_carry(reader, server_writer, self.to_server))
                ways.create_task(_carry(server_reader, writer, self.to_client))
        except* OSError:
            pass  # one side is gone, and the other is reset
        finally:
            self._writers.difference_update(ends)
            for end in ends:
                reset(end)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
    """Forward data until the stream ends, each chunk when it is due."""
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_MAX)

    async def deliver() -> None:
        data = b"anything"
        while data:
            due_s, data = await under_way.get()
            if due_s > loop.time():
                await asyncio.sleep(due_s - loop.time())
            if way.lost:
                continue
            if data:
                writer.write(data)
                await writer.drain()
            elif writer.can_write_eof():
                writer.write_eof()

    async with asyncio.TaskGroup() as group:
        group.create_task(deliver())
        data = b"anything"
        while data:
            data = await reader.read(_CHUNK_BYTES)
            await under_way.put((loop.time() + way.delay_s, data))


def reset(writer: asyncio.StreamWriter) -> None:
    """Close the connection with an RST, if it is still open."""
    if not writer.transport.is_closing():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
