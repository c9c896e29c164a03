"""The network of a history: TCP connections in memory, with delays and failures.

A connection keeps its bytes in order and loses none while both ends live. Bytes sent into a dead network
arrive when the network is back. When a process ends, its connections are closed in order, as by its kernel.
If it was killed while the network was dead and the peer had bytes under way, they are reset. A machine that
loses its power sends nothing. A machine that has started again resets the connections that it no longer
knows.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any

from durability_lab.histories.simulated.virtual_process import CURRENT, Process

_WINDOW_BYTES = 64 << 10  # bytes that a kernel takes before its process reads
SEALED_BYTES = 22  # bytes that TLS adds to one write
TCP_INFO = struct.Struct("=56xI60xQ100xI")  # ms since the last acknowledgement, bytes acknowledged, window
_BUFFER_BYTES = 256 << 10  # bytes that a kernel takes before a program notices that nothing is sent
_PORT = 7420


class VirtualNetwork:
    """All connections of one history. `delay_s`: mean delay between the ends; each delay is drawn between
    half and one and a half times that value."""

    def __init__(self, *, delay_s: float, seed: int) -> None:
        self.up = True
        self._delay_s = delay_s
        self._draw = Random(f"{seed} network").random
        self._factory: Callable[[], asyncio.BaseProtocol] | None = None
        self._owner: Any = None
        self._ends: dict[End, None] = {}  # in order of creation
        self._dark: list[End] = []
        self._heard_end_of: set[Any] = set()
        self._changed: list[asyncio.Future[None]] = []

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], owner: Any) -> VirtualListener:
        """Accept connections from now on, for the process `owner`."""
        self._factory, self._owner = factory, owner
        return VirtualListener(self)

    def close(self) -> None:
        """Accept no more connections."""
        self._factory = None

    def turn(self, *, up: bool) -> None:
        """Turn the network on or off."""
        self.up = up
        if up:
            waiting, self._changed = self._changed, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
            for end in tuple(self._ends):
                end.flow()

    async def connect(
        self, loop: asyncio.AbstractEventLoop, factory: Callable[[], asyncio.BaseProtocol], owner: Any
    ) -> tuple[End, asyncio.BaseProtocol]:
        """Make a connection; returns transport and protocol of this end, as `create_connection` does. Raises
        ConnectionRefusedError if no process listens."""
        await asyncio.sleep(self.delay_s())
        while not self.up:
            future = loop.create_future()
            self._changed.append(future)
            await future
        if self._factory is None:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = End(self, loop, owner), End(self, loop, self._owner)
        ours.peer, theirs.peer = theirs, ours
        self._ends |= {ours: None, theirs: None}
        theirs.begin(self._factory)
        ours.begin(factory)
        return ours, ours.protocol

    def delay_s(self) -> float:
        """The delay of the next bytes."""
        return self._delay_s * (0.5 + self._draw())

    def kill(self, owner: Any) -> None:
        """End the connections of a killed process.

        Its kernel closes them in order. If the network is dead and the peer's bytes have not arrived yet, no
        process will read them, so the kernel resets the connection once the network is back.
        """
        for end in self._ends_of(owner):
            if not end.gone:
                end.vanish()
                if self.up or not end.peer.has_to_say:
                    end.send_end("fin")
                else:
                    end.send_reset()

    def connected(self, owner: Any) -> bool:
        """Whether the process has a connection that is open at both ends."""
        return any(end.lives and end.peer.lives for end in self._ends_of(owner))

    def heard_end(self, owner: Any) -> bool:
        """Whether the peer heard a connection of the process end in order."""
        return owner in self._heard_end_of

    def note_end(self, owner: Any) -> None:
        """Note that the peer heard a connection of the process end in order."""
        self._heard_end_of.add(owner)

    def unheard(self, owner: Any) -> bool:
        """Whether bytes that the process sent have not arrived yet."""
        return any(end.has_to_say for end in self._ends_of(owner))

    def darken(self, *owners: Any) -> None:
        """Note that the machine of these processes lost its power: it sends nothing more, not even for
        processes that had ended."""
        for owner in owners:
            for end in self._ends_of(owner):
                end.vanish(with_its_queue=True)
                if end not in self._dark:
                    self._dark.append(end)

    def thaw(self, owner: Any) -> None:
        """Let the process read the bytes that arrived while it was frozen."""
        for end in self._ends_of(owner):
            end.read_on()

    def _ends_of(self, owner: Any) -> list[End]:
        return [end for end in self._ends if end.owner is owner]

    def reset_dark(self) -> None:
        """Reset the connections of the earlier boot, which the restarted machine does not know."""
        dark, self._dark = self._dark, []
        for end in dark:
            end.send_end("rst")

    def forget(self, end: End) -> None:
        """Remove an end whose connection is over."""
        self._ends.pop(end, None)


class _Socket:
    """The part of a socket's interface that the product uses."""

    def __init__(self, end: End) -> None:
        self._end = end

    def getsockopt(self, level: int, option: int, length: int = 0) -> bytes:
        """SO_PEERCRED and TCP_INFO of the connection. Raises OSError for any other option."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_PEERCRED):
            return struct.pack("3i", os.getpid(), os.geteuid(), os.getegid())
        if (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO):
            return self._end.tcp_info()
        raise OSError("not in a history")


class VirtualListener:
    """The part of `create_server`'s result that the server uses."""

    def __init__(self, network: VirtualNetwork) -> None:
        self._network = network
        self.sockets = (self,)

    def getsockname(self) -> tuple[str, int]:
        """The address of the listener."""
        return "127.0.0.1", _PORT

    def close(self) -> None:
        """Accept no more connections."""
        self._network.close()

    async def wait_closed(self) -> None:
        """Returns at once."""


class End(asyncio.Transport):
    """One end of a connection: the transport of its protocol."""

    peer: End
    protocol: asyncio.BaseProtocol

    def __init__(self, network: VirtualNetwork, loop: asyncio.AbstractEventLoop, owner: Any) -> None:
        super().__init__()
        self.owner = owner
        self._network = network
        self._loop = loop
        self._queue: list[bytes | str] = []  # to the peer: bytes, or "fin" or "rst"
        self._way = deque[bytes | str]()  # entries on the way to the peer
        self._stalled = 0  # entries on the way that were due while the network was dead
        self._last_s = 0.0
        self._unread = deque[bytes | str]()  # entries that arrived while the process was frozen
        self._acked_bytes = 0  # sent bytes that the peer's kernel acknowledged
        self._acked_s = loop.time()  # time of the last acknowledgement
        self._closing = False
        self._silent = False  # the machine is gone: nothing is sent again
        self.gone = False  # the process or machine is gone: nothing is delivered here
        self._over = False  # the protocol was told that the connection is lost

    @property
    def has_to_say(self) -> bool:
        """Whether entries were sent that have not arrived."""
        return bool(self._queue or self._way)

    @property
    def lives(self) -> bool:
        """Whether this end is open and its process exists."""
        return not (self.gone or self._over or self._closing)

    # Called by protocols.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The address of the peer ("peername"), or the socket."""
        if name == "socket":
            return _Socket(self)
        return ("192.0.2.2", 40000) if name == "peername" else default

    def tcp_info(self) -> bytes:
        """Linux's TCP_INFO, with the fields that the product reads."""
        age_ms = int((self._loop.time() - self._acked_s) * 1000)
        unread = sum(len(one) + SEALED_BYTES for one in self.peer._unread)
        return TCP_INFO.pack(age_ms, self._acked_bytes, _WINDOW_BYTES - unread)

    def is_closing(self) -> bool:
        """Whether this end was closed."""
        return self._closing

    def write(self, data: Any) -> None:
        """Send the data."""
        if not self._closing and not self.gone and data:
            self._queue.append(bytes(data))
            self.flow()

    def can_write_eof(self) -> bool:
        """Always true."""
        return True

    def write_eof(self) -> None:
        """Close this direction."""
        self.send_end("fin")

    def get_write_buffer_size(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return max(0, sum(len(one) for one in self._queue) - _BUFFER_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing."""

    def pause_reading(self) -> None:
        """Not used by the product."""

    def resume_reading(self) -> None:
        """Not used by the product."""

    def close(self) -> None:
        """Send the queued data, then close."""
        if not self._closing:
            self._closing = True
            if not self.gone:
                self.send_end("fin")
                self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Close at once."""
        if not self._over:
            self._closing = True
            if not self.gone:
                self.send_reset()
                self._loop.call_soon(self._lose, None)

    # Called by the network.

    def begin(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Give this end of a new connection its protocol."""
        context = self._context()
        self.protocol = context.run(factory)
        context.run(self.protocol.connection_made, self)

    def vanish(self, *, with_its_queue: bool = False) -> None:
        """Note that the process of this end is gone. `with_its_queue`: unsent data are gone too."""
        self.gone = True
        self._silent = with_its_queue
        if with_its_queue:
            self._queue.clear()
            while self._stalled:
                self._way.popleft()
                self._stalled -= 1

    def send_end(self, how: str) -> None:
        """Send "fin" or "rst" after all queued data."""
        self._queue.append(how)
        self.flow()

    def send_reset(self) -> None:
        """Send "rst" in place of all queued data."""
        self._queue.clear()
        self.send_end("rst")

    def flow(self) -> None:
        """Send the queued and stalled entries on their way, unless the network is dead."""
        if not self._network.up:
            return
        due = self._stalled + len(self._queue)
        self._way.extend(self._queue)
        self._queue.clear()
        self._stalled = 0
        for _ in range(due):
            self._last_s = max(self._last_s, self._loop.time() + self._network.delay_s())
            self._loop.call_at(self._last_s, self._deliver, context=Context())

    def _deliver(self) -> None:
        """Deliver the first entry on the way: timers of the same time may fire in any order."""
        if self._network.up:
            what = self._way.popleft()
            if not self.peer._silent:
                self._acked_bytes += len(what) + SEALED_BYTES
                self._acked_s = self._loop.time()
            self.peer.arrive(what)
            if self.gone and not self.has_to_say:
                self._network.forget(self)
        elif self._silent:
            self._way.popleft()
        else:
            self._stalled += 1

    def arrive(self, what: bytes | str) -> None:
        """Take an entry from the peer."""
        if self.gone or self._over:
            return
        if what == "fin":
            self._network.note_end(self.peer.owner)
        if isinstance(self.owner, Process) and self.owner.frozen:
            self._unread.append(what)
        else:
            self._context().run(self._hand_over, what)

    def read_on(self) -> None:
        """Take the entries that arrived while the process was frozen."""
        waiting, self._unread = self._unread, deque()
        for what in waiting:
            self.arrive(what)

    def _context(self) -> Context:
        """A context of this end's own process: callbacks here belong to it, not to the sending process."""
        context = Context()
        context.run(CURRENT.set, self.owner if isinstance(self.owner, Process) else None)
        return context

    def _hand_over(self, what: bytes | str) -> None:
        if what == "rst":
            self._lose(ConnectionResetError(104, "Connection reset by peer"))
        elif what == "fin":
            if not self.protocol.eof_received():  # type: ignore[attr-defined]
                self.close()
        else:
            assert isinstance(what, bytes)
            self._take(what)

    def _take(self, data: bytes) -> None:
        protocol = self.protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)  # type: ignore[attr-defined]
            return
        while data and not self._over:
            room = memoryview(protocol.get_buffer(len(data)))
            part = data[: len(room)]
            room[: len(part)] = part
            protocol.buffer_updated(len(part))
            data = data[len(part) :]

    def _lose(self, error: Exception | None) -> None:
        if not self._over and not self.gone:
            self._over = True
            self._closing = True
            self.protocol.connection_lost(error)
            self._network.forget(self)
