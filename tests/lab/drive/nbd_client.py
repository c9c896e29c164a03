"""A small NBD client: what a test needs to talk to a drive in nbdkit, without a kernel in between."""

from __future__ import annotations

import select
import socket
import struct
from pathlib import Path

_REPLY_DEADLINE_S = 60.0
_READ, _WRITE, _FLUSH = 0, 1, 3
_FUA = 1


class NbdClient:
    """A connection to the server that listens on the socket file `path`."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_REPLY_DEADLINE_S)
        self._socket.connect(str(path))
        assert self._receive(18)[:16] == b"NBDMAGICIHAVEOPT"
        go = struct.pack(">IH", 0, 0)  # the default export, no wishes
        self._socket.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, len(go)) + go)
        self.size_bytes = 0
        while (reply := self._option_reply())[0] != 1:
            if reply[0] == 3 and reply[1][:2] == b"\0\0":
                (self.size_bytes,) = struct.unpack_from(">Q", reply[1], 2)

    def read(self, offset: int, length: int) -> bytes:
        """Raises OSError with the server's error."""
        self.send_read(offset, length)
        return self.finish_read(length)

    def send_read(self, offset: int, length: int) -> None:
        """Ask, and do not wait."""
        self._send(_READ, offset, length)

    def finish_read(self, length: int) -> bytes:
        """The answer to `send_read`."""
        self._check_reply()
        return self._receive(length)

    def write(self, offset: int, data: bytes, *, fua: bool = False) -> None:
        """Raises OSError with the server's error."""
        self._send(_WRITE, offset, len(data), flags=_FUA if fua else 0, data=data)
        self._check_reply()

    def flush(self) -> None:
        """Raises OSError with the server's error."""
        self._send(_FLUSH, 0, 0)
        self._check_reply()

    def has_answer(self) -> bool:
        """Whether something has come that was not read yet."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _send(self, kind: int, offset: int, length: int, *, flags: int = 0, data: bytes = b"") -> None:
        self._socket.sendall(struct.pack(">IHHQQI", 0x25609513, flags, kind, 0, offset, length) + data)

    def _check_reply(self) -> None:
        magic, error, _ = struct.unpack(">IIQ", self._receive(16))
        assert magic == 0x67446698
        if error:
            raise OSError(error, "from the server")

    def _option_reply(self) -> tuple[int, bytes]:
        _, _, kind, length = struct.unpack(">QIII", self._receive(20))
        return kind, self._receive(length)

    def _receive(self, length: int) -> bytes:
        received = b""
        while len(received) < length:
            part = self._socket.recv(length - len(received))
            if not part:
                raise ConnectionError("the server hung up")
            received += part
        return received
