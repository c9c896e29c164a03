"""The network of a history: TCP connections in memory, with a delay, and what becomes of them when it fails.

A connection keeps its bytes in order and loses none while both ends live: what is sent into a dead network
arrives when it is back. A process that ends closes its connections in order, as its kernel does, or resets
them where it was killed in a dead network while the other side went on sending; a machine that loses its
power says nothing, and a machine that has started anew resets what it no longer knows.
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

_WINDOW_BYTES = 64 << 10  # that a kernel takes before its process reads
SEALED_BYTES = 22  # that TLS adds to what is sent at once
TCP_INFO = struct.Struct("=56xI60xQ100xI")  # ms since the last acknowledgement, bytes acknowledged, window
_BUFFER_BYTES = 256 << 10  # what a kernel takes before a program notices that nothing leaves
_PORT = 7420


class VirtualNetwork:
    """All connections of one history. `delay_s`: from one end to the other, half to one and a half times."""

    def __init__(self, *, delay_s: float, seed: int) -> None:
        self.up = True
        self._delay_s = delay_s
        self._draw = Random(f"{seed} network").random
        self._factory: Callable[[], asyncio.BaseProtocol] | None = None
        self._owner: Any = None
        self._ends: dict[End, None] = {}  # in the order in which they were made
        self._dark: list[End] = []
        self._heard_end_of: set[Any] = set()
        self._changed: list[asyncio.Future[None]] = []

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], owner: Any) -> VirtualListener:
        """Take connections from now on, for the process `owner`."""
        self._factory, self._owner = factory, owner
        return VirtualListener(self)

    def close(self) -> None:
        """Take no more."""
        self._factory = None

    def turn(self, *, up: bool) -> None:
        """The network dies, or is back."""
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
        """Both ends of a new connection, as `create_connection` gives them. Raises ConnectionRefusedError."""
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
        """What the next bytes take."""
        return self._delay_s * (0.5 + self._draw())

    def kill(self, owner: Any) -> None:
        """The process is gone; its kernel closes what it had open. In a dead network it has yet to take what
        the peer sent: nobody reads that any more, so it resets the connection once the network is back."""
        for end in self._ends_of(owner):
            if not end.gone:
                end.vanish()
                if self.up or not end.peer.has_to_say:
                    end.send_end("fin")
                else:
                    end.send_reset()

    def connected(self, owner: Any) -> bool:
        """Whether the process has a connection that lives at both ends."""
        return any(end.lives and end.peer.lives for end in self._ends_of(owner))

    def heard_end(self, owner: Any) -> bool:
        """Whether the server heard a connection of the process end in order."""
        return owner in self._heard_end_of

    def note_end(self, owner: Any) -> None:
        """It did."""
        self._heard_end_of.add(owner)

    def unheard(self, owner: Any) -> bool:
        """Whether something that the process sent has not arrived yet."""
        return any(end.has_to_say for end in self._ends_of(owner))

    def darken(self, *owners: Any) -> None:
        """The machine of these processes lost its power: nothing more is said, also by those that had
        ended."""
        for owner in owners:
            for end in self._ends_of(owner):
                end.vanish(with_its_queue=True)
                if end not in self._dark:
                    self._dark.append(end)

    def thaw(self, owner: Any) -> None:
        """The process goes on, and reads what came meanwhile."""
        for end in self._ends_of(owner):
            end.read_on()

    def _ends_of(self, owner: Any) -> list[End]:
        return [end for end in self._ends if end.owner is owner]

    def reset_dark(self) -> None:
        """The machine has started anew, and knows nothing of the connections that it had."""
        dark, self._dark = self._dark, []
        for end in dark:
            end.send_end("rst")

    def forget(self, end: End) -> None:
        """The connection is over on this end."""
        self._ends.pop(end, None)


class _Socket:
    """What the product asks of a connection's socket."""

    def __init__(self, end: End) -> None:
        self._end = end

    def getsockopt(self, level: int, option: int, length: int = 0) -> bytes:
        """The credentials of the other end, and the kernel's account. Raises OSError for anything else."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_PEERCRED):
            return struct.pack("3i", os.getpid(), os.geteuid(), os.getegid())
        if (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO):
            return self._end.tcp_info()
        raise OSError("not in a history")


class VirtualListener:
    """What `create_server` returns, as far as the server needs it."""

    def __init__(self, network: VirtualNetwork) -> None:
        self._network = network
        self.sockets = (self,)

    def getsockname(self) -> tuple[str, int]:
        """Where it listens."""
        return "127.0.0.1", _PORT

    def close(self) -> None:
        """Take no more connections."""
        self._network.close()

    async def wait_closed(self) -> None:
        """At once."""


class End(asyncio.Transport):
    """One end of a connection; the transport of the protocol there."""

    peer: End
    protocol: asyncio.BaseProtocol

    def __init__(self, network: VirtualNetwork, loop: asyncio.AbstractEventLoop, owner: Any) -> None:
        super().__init__()
        self.owner = owner
        self._network = network
        self._loop = loop
        self._queue: list[bytes | str] = []  # to the peer: bytes, or how the connection ends
        self._way = deque[bytes | str]()  # on the way to it
        self._stalled = 0  # of those, the ones whose time came in a dead network
        self._last_s = 0.0
        self._unread = deque[bytes | str]()  # that came while the process was frozen
        self._acked_bytes = 0  # of what was sent, what the other kernel took
        self._acked_s = loop.time()  # when it last said so
        self._closing = False
        self._silent = False  # the machine is no more: nothing is sent again
        self.gone = False  # the process or machine is no more: nothing is delivered here
        self._over = False  # the protocol was told that the connection is lost

    @property
    def has_to_say(self) -> bool:
        """Whether something was sent that has not arrived."""
        return bool(self._queue or self._way)

    @property
    def lives(self) -> bool:
        """Whether this end is open and its process there."""
        return not (self.gone or self._over or self._closing)

    # What protocols call.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The name of the other end, and what the kernel knows of the connection."""
        if name == "socket":
            return _Socket(self)
        return ("192.0.2.2", 40000) if name == "peername" else default

    def tcp_info(self) -> bytes:
        """What Linux tells of a connection, as far as the product asks."""
        age_ms = int((self._loop.time() - self._acked_s) * 1000)
        unread = sum(len(one) + SEALED_BYTES for one in self.peer._unread)
        return TCP_INFO.pack(age_ms, self._acked_bytes, _WINDOW_BYTES - unread)

    def is_closing(self) -> bool:
        """Whether this end was closed."""
        return self._closing

    def write(self, data: Any) -> None:
        """Send it."""
        if not self._closing and not self.gone and data:
            self._queue.append(bytes(data))
            self.flow()

    def can_write_eof(self) -> bool:
        """True."""
        return True

    def write_eof(self) -> None:
        """Close this direction."""
        self.send_end("fin")

    def get_write_buffer_size(self) -> int:
        """What the kernel has not taken."""
        return max(0, sum(len(one) for one in self._queue) - _BUFFER_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing to set."""

    def pause_reading(self) -> None:
        """Not used by the product."""

    def resume_reading(self) -> None:
        """Not used by the product."""

    def close(self) -> None:
        """Send what is queued, then close."""
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

    # What the network does.

    def begin(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """The connection is made: give this end its protocol."""
        context = self._context()
        self.protocol = context.run(factory)
        context.run(self.protocol.connection_made, self)

    def vanish(self, *, with_its_queue: bool = False) -> None:
        """Whoever had this end is no more; nor is what its machine had to send, if that is gone as well."""
        self.gone = True
        self._silent = with_its_queue
        if with_its_queue:
            self._queue.clear()
            while self._stalled:
                self._way.popleft()
                self._stalled -= 1

    def send_end(self, how: str) -> None:
        """Tell the other end, after all that is queued."""
        self._queue.append(how)
        self.flow()

    def send_reset(self) -> None:
        """Tell the other end, instead of all that is queued."""
        self._queue.clear()
        self.send_end("rst")

    def flow(self) -> None:
        """Put on the way what is queued, unless the network is dead."""
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
        """The first of what is on the way arrives, as events of the same time come in any order."""
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
        """Something comes from the other end."""
        if self.gone or self._over:
            return
        if what == "fin":
            self._network.note_end(self.peer.owner)
        if isinstance(self.owner, Process) and self.owner.frozen:
            self._unread.append(what)
        else:
            self._context().run(self._hand_over, what)

    def read_on(self) -> None:
        """The process goes on after it was frozen."""
        waiting, self._unread = self._unread, deque()
        for what in waiting:
            self.arrive(what)

    def _context(self) -> Context:
        """What comes of it belongs to the process, and not to the one that sent it."""
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
