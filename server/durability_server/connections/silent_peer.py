"""Whether the kernel at the other end of a silent connection still works: it says so itself, in TCP.

A process that is frozen (SIGSTOP, Ctrl-Z, a cgroup's freezer) says nothing, as a machine without power does.
But its kernel acknowledges what is sent to it, and its receive window shrinks by what nobody reads. A machine
without power acknowledges nothing, and neither does one behind a dead network. A proxy in between
acknowledges for the machine behind it, but reads what it takes: it advances the end of its window, and shows
nothing here.

Only Linux tells, with the tcp_info of 5.4 and later. Refuses to guess elsewhere, and from a window that is
too large for the little that is sent to shrink it: our clients have a small one on the connection of a run.
"""

from __future__ import annotations

import socket
import struct
import sys
from dataclasses import dataclass
from typing import Protocol

# Taken by the other kernel, and read by no process there. One that reads advances its window before this.
UNREAD_BYTES = 1024
_CLOCK_TICK_NS = 10_000_000  # of the kernel, at most: it was not later than its age says
# struct tcp_info: tcpi_last_ack_recv (ms ago), tcpi_bytes_acked, tcpi_snd_wnd. See <linux/tcp.h>.
_FIELDS = struct.Struct("=56xI60xQ100xI")


class TcpSocket(Protocol):
    """What is asked of a connection's socket."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes:
        """What the system says of the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Peer:
    """What the other kernel has said. `window_end`: up to which byte it takes what is sent."""

    acked_bytes: int
    window_end: int
    age_ns: int


class SilentPeer:
    """The other end of `connection` since it fell silent."""

    def __init__(self, connection: TcpSocket) -> None:
        self._socket = connection
        self._first = _read(connection)

    def alive_ns(self, now_ns: int) -> int | None:
        """When the other kernel acknowledged something last, on the clock of `now_ns`; None where it is not
        shown that it has taken something since the silence that no process there has read."""
        peer = _read(self._socket)
        if peer is None or self._first is None:
            return None
        if peer.window_end > self._first.window_end:
            self._first = peer  # somebody reads, or the kernel has made room
            return None
        if peer.acked_bytes - self._first.acked_bytes < UNREAD_BYTES:
            return None
        return now_ns - peer.age_ns


def _read(connection: TcpSocket) -> _Peer | None:
    if sys.platform != "linux":
        return None
    try:
        data = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:  # a local socket, or one that is closed
        return None
    if len(data) < _FIELDS.size:
        return None
    age_ms, acked_bytes, window_bytes = _FIELDS.unpack_from(data)
    return _Peer(
        acked_bytes=acked_bytes,
        window_end=acked_bytes + window_bytes,
        age_ns=age_ms * 1_000_000 + _CLOCK_TICK_NS,
    )
