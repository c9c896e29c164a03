"""The local socket: commands on the server's own machine use it as the operator, without a secret.

It is a Unix socket in the server's state directory, which only the user who runs the server can enter. The
kernel reports the user at the other end, and any user but that one and root is refused. There is one socket
for each port. A socket left by a killed server is replaced; a socket on which a server answers is not.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from durability.protocol.local_address import PATH_BYTES_MAX, socket_name

_BACKLOG = 128
_CREDENTIALS = struct.Struct("3i")  # Linux's struct ucred: process, user, group


class LocalSocket:
    """The socket of the server that listens on `port`, in `directory`."""

    def __init__(self, directory: Path, port: int) -> None:
        self.path = directory / socket_name(port)
        self._server: asyncio.Server | None = None

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol]) -> bool:
        """Accepts connections from now on. False if another server answers on the socket. Raises OSError."""
        with _short(self.path) as path:
            if _answers(path):
                return False
            with suppress(FileNotFoundError):
                self.path.unlink()
            before = os.umask(0o177)
            try:
                loop = asyncio.get_running_loop()
                self._server = await loop.create_unix_server(factory, path, backlog=_BACKLOG)
            finally:
                os.umask(before)
        return True

    def close(self) -> None:
        """Accepts no more connections, and removes the socket."""
        if self._server is not None:
            self._server.close()
            self._server = None
            with suppress(FileNotFoundError):
                self.path.unlink()


def is_operator(connection: object) -> bool:
    """Whether the user at the other end of a local socket runs the server or is root."""
    credentials = getattr(socket, "SO_PEERCRED", None)
    if credentials is None or not hasattr(connection, "getsockopt"):
        return True  # the directory's permissions keep other users out
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, credentials, _CREDENTIALS.size))
    return user in (0, os.geteuid())


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A path to the same socket that is short enough for the system."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True
