"""Frames: how a TCP stream is divided into messages.

    byte      0        1        2        3        4 ... 3 + length
          +--------+--------+--------+--------+------------------------+
          |     length, 32 bits, big-endian   | body: one message      |
          +--------+--------+--------+--------+------------------------+

`length` counts only the body and is at least 1. It is compared with the limit as soon as its four bytes have
arrived, before anything is buffered or allocated for the body. The limit is small until the peer is
authenticated, and is raised then. After a bad length, the next frame cannot be found: the connection ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from durability.errors import ProtocolError

LENGTH_BYTES = 4


def frame(body: bytes) -> bytes:
    """`body` with its length in front, ready for the wire."""
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class FrameDecoder:
    """Divides a byte stream into message bodies. `limit` is the longest body allowed, in bytes; it may change
    between two frames of one `feed`. Holds at most one incomplete frame besides the data of the last
    `feed`."""

    __slots__ = ("_buffer", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of the frame that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Take in `data`, and iterate over the bodies of the frames that are complete now. Raises
        ProtocolError for a length of 0 or above `limit`, and again at every later feed."""
        self._buffer += data
        return self._bodies()

    def _bodies(self) -> Iterator[bytes]:
        buffer = self._buffer
        while len(buffer) >= LENGTH_BYTES:
            length = int.from_bytes(buffer[:LENGTH_BYTES], "big")
            if not 1 <= length <= self.limit:
                del buffer[LENGTH_BYTES:]  # the bad length stays, so that the stream stays refused
                raise ProtocolError(
                    f"a frame of {length} bytes was announced, 1 to {self.limit} are allowed here: "
                    "is the sender a durability client or server?"
                )
            end = LENGTH_BYTES + length
            if len(buffer) < end:
                return
            body = bytes(memoryview(buffer)[LENGTH_BYTES:end])
            del buffer[:end]
            yield body
