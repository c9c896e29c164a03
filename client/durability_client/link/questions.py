"""Sends requests to the server over one connection, and over a new one after a refusal.

The server closes a connection after a refusal, but a caller with many questions may ask the next one. No
request is sent twice: the caller decides what a refusal or a lost connection means.
"""

from __future__ import annotations

from typing import TypeVar

from durability.errors import RefusedError
from durability.protocol.messages import Message
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import Connection, connect

Answer = TypeVar("Answer", bound=Message)


class Questions:
    """Requests to the server at `endpoint`. The first request connects. The caller must call `close`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection: Connection | None = None

    async def request(self, message: Message, answer: type[Answer]) -> Answer:
        """Send `message` and wait for its answer. Raises PeerError, and RefusedError, after which further
        requests are possible."""
        if self._connection is None:
            self._connection = await connect(self._endpoint, "query")
        try:
            return await self._connection.request(message, answer)
        except RefusedError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
