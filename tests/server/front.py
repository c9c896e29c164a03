"""A TCP port in front of a PostgreSQL that listens on its socket alone: with TLS, or as a bad network."""

from __future__ import annotations

import asyncio
import ctypes
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sqlalchemy import make_url

ELSEWHERE = "0.0.0.0"  # reaches this machine, and is no address of loopback
_SO_ATTACH_FILTER = 26
_TAKE_NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)  # a filter of the kernel's: 0 bytes of each segment


class Front:
    """Such a port. With `tls` it speaks TLS as PostgreSQL does; without, it is somebody between the two who
    keeps TLS from being used."""

    def __init__(self, store_url: str, tls: ssl.SSLContext | None) -> None:
        directory = make_url(store_url).query["host"]
        self._socket = f"{directory}/.s.PGSQL.5432"
        self._database = make_url(store_url).database
        self._tls = tls
        self._ends: set[asyncio.StreamWriter] = set()
        self._answers = asyncio.Event()
        self._answers.set()
        self.port = 0

    def url(self, host: str, query: str = "") -> str:
        """The store, reached by this port of `host`."""
        return f"postgresql://lab@{host}:{self.port}/{self._database}{query}"

    def withhold(self) -> None:
        """No answer of PostgreSQL's gets through until `release`. All that is sent to it is acknowledged."""
        self._answers.clear()

    def fall_silent(self) -> None:
        """Nothing more comes from here on what is connected now, and no segment is acknowledged, as if the
        cable were pulled."""
        self.withhold()
        instruction = ctypes.create_string_buffer(_TAKE_NOTHING)
        program = struct.pack("HP", 1, ctypes.addressof(instruction))
        for end in self._ends:
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

    def release(self) -> None:
        """Ends `withhold`."""
        self._answers.set()

    def close(self) -> None:
        """Ends all connections."""
        self.release()
        for end in self._ends:
            end.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self._ends.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            if self._tls is not None:
                await reader.readexactly(8)  # the request for TLS
                writer.write(b"S")
                await writer.start_tls(self._tls)
            there = await asyncio.open_unix_connection(self._socket)
            await asyncio.gather(self._hand_on(reader, there[1]), self._answer(there[0], writer))
        self._ends.discard(writer)
        writer.close()

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._answers.wait()
            writer.write(data)
        writer.close()


@asynccontextmanager
async def front(store_url: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Front]:
    """Such a port."""
    here = Front(store_url, tls)
    async with await asyncio.start_server(here.serve, ELSEWHERE, 0) as server:
        here.port = server.sockets[0].getsockname()[1]
        try:
            yield here
        finally:
            here.close()
