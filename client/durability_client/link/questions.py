"""Questions to the server: over one connection until a refusal ends it, then over another one.

The server closes a connection after a refusal, and whoever asks many questions may go on with the next. Asks
nothing twice: what a refusal or a lost connection means is for the caller to say.
"""

from __future__ import annotations

from typing import TypeVar

from durability.errors import RefusedError
from durability.protocol.messages import Message
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import Connection, connect

Answer = TypeVar("Answer", bound=Message)


class Questions:
    """Asks the server at `endpoint`; connects with the first question. To be closed at the end."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection: Connection | None = None

    async def request(self, message: Message, answer: type[Answer]) -> Answer:
        """Send `message` and wait for its answer. Raises RefusedError, after which others can be asked, and
        PeerError."""
        if self._connection is None:
            self._connection = await connect(self._endpoint, "query")
        try:
            return await self._connection.request(message, answer)
        except RefusedError:
            self.close()
            raise

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
