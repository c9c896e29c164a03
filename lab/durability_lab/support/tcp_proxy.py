"""A TCP proxy that makes loopback a worse network: delayed, deaf in one direction, cut.

It stands between a real client and a real server and looks at no byte. Delays are kept per direction and
chunk, in order, so that latency costs no bandwidth; in an ordinary event loop they are rounded up to whole
milliseconds, in that of `durability_client.run.sender.run_in_fine_loop` they are exact to some tens of
microseconds.

Refuses to imitate packet loss: TCP hides that from both sides, except as delay. What it does not hide is a
connection that is reset (`TcpProxy.cut`) and one on which nothing comes any more (`Way.lost`).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import Self

from durability.units import format_address

_CHUNK_BYTES = 1 << 16
_CHUNKS_MAX = 1024  # on their way in one direction; a sender that is faster has to wait
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, for 0 s


@dataclass(slots=True, kw_only=True)
class Way:
    """One direction, for all connections and as of now. `delay_s` holds for what comes in from here on;
    while `lost` is set, what would be handed on is thrown away, the end of the stream included."""

    delay_s: float = 0.0
    lost: bool = False


class TcpProxy:
    """Hands on what comes to a port of loopback to the server at `host` and `port`; an async context manager.

    `delay_s` is the delay each way to begin with. The server need not run: who connects meanwhile is reset.
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
        """Reset every connection, towards both sides, as a router does that lost its table. Who connects
        again gets through."""
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
            pass  # one side is gone, and the other learns it
        finally:
            self._writers.difference_update(ends)
            for end in ends:
                reset(end)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
    """Hand on what comes until the stream ends, each chunk when it is due."""
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
