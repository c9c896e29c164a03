"""Whether the kernel at the other end of a silent connection still works, as its TCP acknowledgements show.

A frozen process (SIGSTOP, Ctrl-Z, a cgroup's freezer) sends nothing, like a machine without power. But its
kernel acknowledges received data, and its receive window shrinks by the data that no process reads. A machine
without power acknowledges nothing, and neither does one behind a dead network. A proxy in between
acknowledges for the machine behind it. But it reads the data and so advances the end of its window: that is
not counted as a sign of life.

Only Linux reports this, in the tcp_info of 5.4 and later. On other systems the result is unknown. It is also
unknown for a window so large that the few sent bytes do not shrink it. Our clients set a small window on the
connection of a run.
"""

from __future__ import annotations

import socket
import struct
import sys
from dataclasses import dataclass
from typing import Protocol

# Acknowledged bytes that show that no process reads. A process that reads advances the window earlier.
UNREAD_BYTES = 1024
# Longest tick of the kernel's clock. It is added to the age, so that the resulting time is never too late.
_CLOCK_TICK_NS = 10_000_000
# struct tcp_info: tcpi_last_ack_recv (ms ago), tcpi_bytes_acked, tcpi_snd_wnd. See <linux/tcp.h>.
_FIELDS = struct.Struct("=56xI60xQ100xI")


class TcpSocket(Protocol):
    """The part of a socket that is used here."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes:
        """The system's information about the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Peer:
    """What the other kernel has acknowledged and accepts."""

    acked_bytes: int
    window_end: int  # position in the sent bytes up to which it accepts data
    age_ns: int  # time since its last acknowledgement, at most


class SilentPeer:
    """The other end of `connection`, observed since it fell silent."""

    def __init__(self, connection: TcpSocket) -> None:
        self._socket = connection
        self._first = _read(connection)

    def alive_ns(self, now_ns: int) -> int | None:
        """When the other kernel last acknowledged data, on the clock of `now_ns`. None unless it has
        acknowledged data since the silence began that no process there has read."""
        peer = _read(self._socket)
        if peer is None or self._first is None:
            return None
        if peer.window_end > self._first.window_end:
            self._first = peer  # a process reads, or the kernel has enlarged its window
            return None
        if peer.acked_bytes - self._first.acked_bytes < UNREAD_BYTES:
            return None
        return now_ns - peer.age_ns


def _read(connection: TcpSocket) -> _Peer | None:
    if sys.platform != "linux":
        return None
    try:
        data = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:  # a local or closed socket
        return None
    if len(data) < _FIELDS.size:
        return None
    age_ms, acked_bytes, window_bytes = _FIELDS.unpack_from(data)
    return _Peer(
        acked_bytes=acked_bytes,
        window_end=acked_bytes + window_bytes,
        age_ns=age_ms * 1_000_000 + _CLOCK_TICK_NS,
    )
