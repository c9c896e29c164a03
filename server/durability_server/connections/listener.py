"""The listening socket, and strangers: accepted connections that have not begun their handshake.

A stranger costs only a descriptor. It becomes a `ClientConnection`, with TLS and its memory, once it has sent
a whole TLS record and it is its turn. Places are counted at accept. If all are taken, the oldest stranger of
the address with the most places is dropped. Handshakes begin at a bounded rate, one address after the other.
If too many are under way, the oldest one of the address with the most is dropped too. So neither the number
nor the speed of strangers at some addresses keeps out a client at another address.

A stranger that does not speak TLS, such as a client of an earlier release, gets a `Failure` that says so.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import resource
import select
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from durability import limits
from durability.errors import SetupError
from durability.protocol import messages
from durability.protocol.frame import frame
from durability.protocol.secure_stream import FIRST_BYTE
from durability.units import format_address, network_of
from durability_server.connections.address_places import AddressPlaces

WAITING_MAX = 4096  # strangers
WAITING_SHARE = 4  # strangers get at most one descriptor in this many of the system's limit
BEGINNING_MAX = 256  # connections whose handshake has begun and has not ended
BACKLOG = 4096
_ACCEPTED_AT_ONCE = 16  # connections accepted before the event loop serves known clients
_ENDED_AT_ONCE = 64  # overdue strangers dropped at a time
_INTERVAL_S = 0.0025  # average time between the begins of two handshakes, or longer
_TURN_S = 0.005  # pause before the next handshakes begin
_CATCH_UP_S = 0.05  # at most the handshakes of this time begin at once, after a long turn of the event loop
_HUNG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)  # only Linux tells a closed connection from a reset
_LOOKED_AT_ONCE = 64  # strangers at most that are looked at in a turn
_KEPT_FREE = 64  # descriptors that are freed once none is left
_PAUSE_S = 0.1  # pause after an accept that found no descriptor
_PATIENCE_S = 1.0  # a younger handshake is dropped only for an address with fewer handshakes under way
_HEAD_BYTES = 5  # head of a TLS record: type, version and length
_RECORD_BYTES_MAX = 4096  # first TLS record; OpenSSL's has 517 bytes, 1,700 with a post-quantum key

Admit = Callable[[socket.socket, Callable[[], None]], Callable[[], None]]


@dataclass(slots=True, eq=False)
class _Stranger:
    """A connection known only by its `address`, which is a network if one host has many addresses."""

    socket: socket.socket
    address: str
    since_s: float
    wanted_bytes: int = 1  # bytes that must arrive before the stranger is looked at again


@dataclass(slots=True, eq=False)
class _Beginner:
    """A connection whose handshake is under way. `end` ends it."""

    address: str
    since_s: float
    end: Callable[[], None] = lambda: None


class Listener:
    """Listens on `host` and `port`, or on the socket `bound`. `admit` makes a connection from a socket and
    returns a function that ends it. The connection calls the second argument of `admit` once its handshake
    has ended or failed."""

    def __init__(self, admit: Admit) -> None:
        self._admit = admit
        self._socket: socket.socket | None = None
        self._waiting: dict[str, dict[_Stranger, None]] = {}  # not ready, by address, oldest first
        self._speaking: dict[str, deque[_Stranger]] = {}  # ready to begin their handshake, by address
        self._places = AddressPlaces()  # places of strangers in `_waiting` and `_speaking`
        self._places_max = WAITING_MAX
        self._beginning: dict[str, dict[_Beginner, None]] = {}  # by address, oldest first
        self._beginning_places = AddressPlaces()
        self._turn: asyncio.Handle | None = None
        self._begun_s = 0.0  # when the latest handshake would have begun at the average rate
        self._sweep: asyncio.Handle | None = None

    def __len__(self) -> int:
        return self._places.taken

    def open(self, host: str, port: int, bound: socket.socket | None) -> tuple[str, int]:
        """Starts to listen. Returns host and port of the socket. Raises SetupError."""
        try:
            self._socket = bound if bound is not None else _listening_socket(host, port)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            remedy = (
                "stop the program that listens there, or choose another port with --listen"
                if error.errno == errno.EADDRINUSE
                else "--listen takes an address of this machine, such as 0.0.0.0:7420"
            )
            raise SetupError(f"cannot listen on {format_address(host, port)}: {why}; {remedy}") from error
        self._socket.listen(BACKLOG)
        self._socket.setblocking(False)
        self._places_max = _places()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._accept)
        self._sweep = loop.call_later(limits.HANDSHAKE_TIMEOUT_S, self._close_overdue)
        address = self._socket.getsockname()
        host, _ = socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)  # with IPv6 zone
        return host, address[1]

    def close(self) -> None:
        """Accepts no more connections, and closes those of all strangers."""
        for timer in (self._turn, self._sweep):
            if timer is not None:
                timer.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        for waiting in tuple(self._waiting.values()):
            for stranger in tuple(waiting):
                self._drop(stranger)
        for speaking in self._speaking.values():
            for stranger in speaking:
                stranger.socket.close()
        self._speaking.clear()

    # Accepting connections.

    def _accept(self) -> None:
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    if self._places.taken > 1:
                        self._keep_fewer()
                        continue
                    loop.remove_reader(self._socket)
                    loop.call_later(_PAUSE_S, self._accept_again)
                    return
                raise
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._places.taken >= self._places_max:
                self._make_room()
            stranger = _Stranger(socket=accepted, address=network_of(address[0]), since_s=loop.time())
            self._waiting.setdefault(stranger.address, {})[stranger] = None
            self._places.take(stranger.address)
            loop.add_reader(accepted, self._speaks, stranger)

    def _accept_again(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _keep_fewer(self) -> None:
        """No descriptor is left: drops strangers to free some for clients and the store's files."""
        self._places_max = max(1, self._places.taken - _KEPT_FREE)
        while self._places.taken > self._places_max:
            self._make_room()

    def _make_room(self) -> None:
        """Drops the oldest stranger of the address with the most places."""
        most = self._places.most()
        if most in self._waiting:
            self._drop(next(iter(self._waiting[most])))
        else:
            _reset(self._next_of(most).socket)

    def _close_overdue(self) -> None:
        loop = asyncio.get_running_loop()
        overdue_s = loop.time() - limits.HANDSHAKE_TIMEOUT_S
        overdue = (
            stranger
            for waiting in (*self._waiting.values(), *self._speaking.values())
            for stranger in itertools.takewhile(lambda one: one.since_s <= overdue_s, waiting)
        )
        self._places_max = min(self._places_max + 1, _places())
        several = tuple(itertools.islice(overdue, _ENDED_AT_ONCE))
        for stranger in several:
            if stranger in self._waiting.get(stranger.address, ()):
                self._drop(stranger)
            else:
                _reset(self._next_of(stranger.address).socket)
        pause_s = limits.HANDSHAKE_TIMEOUT_S / 5 if len(several) < _ENDED_AT_ONCE else _TURN_S
        self._sweep = loop.call_later(pause_s, self._close_overdue)

    def _drop(self, stranger: _Stranger) -> None:
        self._leave(stranger)
        _reset(stranger.socket)

    def _leave(self, stranger: _Stranger) -> None:
        asyncio.get_running_loop().remove_reader(stranger.socket)
        self._places.give_back(stranger.address)
        waiting = self._waiting[stranger.address]
        del waiting[stranger]
        if not waiting:
            del self._waiting[stranger.address]

    # Handshakes.

    def _speaks(self, stranger: _Stranger) -> None:
        head = _peek(stranger.socket, _HEAD_BYTES)
        if head and head[0] != FIRST_BYTE:
            self._leave(stranger)
            _refuse(stranger.socket)
        elif self._has_sent(stranger, _HEAD_BYTES):
            record_bytes = _HEAD_BYTES + int.from_bytes(head[3:], "big")
            if record_bytes > _RECORD_BYTES_MAX:
                self._drop(stranger)
            elif self._has_sent(stranger, record_bytes):
                self._can_begin(stranger)

    def _has_sent(self, stranger: _Stranger, wanted_bytes: int) -> bool:
        """Whether this many bytes have arrived. If not, the event loop calls back once they have. A stranger
        that can send no more is dropped."""
        sent_bytes = len(_peek(stranger.socket, wanted_bytes))
        if sent_bytes == wanted_bytes:
            return True
        if not sent_bytes or stranger.wanted_bytes == wanted_bytes:
            self._drop(stranger)
        else:
            stranger.wanted_bytes = wanted_bytes
            stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted_bytes)
        return False

    def _can_begin(self, stranger: _Stranger) -> None:
        self._leave(stranger)
        stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self._speaking.setdefault(stranger.address, deque()).append(stranger)
        self._places.take(stranger.address)
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._begin)

    def _next_of(self, address: str) -> _Stranger:
        """Takes the oldest ready stranger of `address`. Its others queue behind those of other addresses."""
        queue = self._speaking.pop(address)
        stranger = queue.popleft()
        if queue:
            self._speaking[address] = queue
        self._places.give_back(address)
        return stranger

    def _begin(self) -> None:
        """Begins the next handshakes, one address after the other. If many clients of another server come at
        once, a turn of the event loop takes long, so it begins as many as the time since the last one allows.
        """
        loop = asyncio.get_running_loop()
        self._turn = None
        now_s = loop.time()
        self._begun_s = max(self._begun_s, now_s - _CATCH_UP_S)
        for _ in range(_LOOKED_AT_ONCE):
            if not self._speaking or self._begun_s + _INTERVAL_S > now_s:
                break
            address = next(iter(self._speaking))
            if _has_left(self._speaking[address][0].socket):
                _reset(self._next_of(address).socket)
                continue
            if self._beginning_places.taken >= BEGINNING_MAX and not self._make_way(address):
                self._speaking[address] = self._speaking.pop(address)  # another address may replace one
                break
            stranger = self._next_of(address)
            self._begun_s += _INTERVAL_S
            beginner = _Beginner(address, loop.time())
            self._beginning.setdefault(address, {})[beginner] = None
            self._beginning_places.take(address)
            beginner.end = self._admit(stranger.socket, partial(self._began, beginner))
        if self._speaking:
            self._turn = loop.call_later(_TURN_S, self._begin)

    def _make_way(self, address: str) -> bool:
        """Ends another handshake so that one of `address` can begin. Returns whether that was possible."""
        most = self._beginning_places.most()
        oldest = next(iter(self._beginning[most]))
        fewer = self._beginning_places.held(address) + 1 < self._beginning_places.held(most)
        if not fewer and asyncio.get_running_loop().time() - oldest.since_s < _PATIENCE_S:
            return False
        self._began(oldest)
        oldest.end()
        return True

    def _began(self, beginner: _Beginner) -> None:
        beginners = self._beginning.get(beginner.address, {})
        if beginner in beginners:
            del beginners[beginner]
            if not beginners:
                del self._beginning[beginner.address]
            self._beginning_places.give_back(beginner.address)


def _places() -> int:
    """Number of places for strangers while descriptors are left."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(WAITING_MAX, descriptors // WAITING_SHARE)


def _listening_socket(host: str, port: int) -> socket.socket:
    """A socket bound to the first address of `host`; `::` accepts IPv4 as well."""
    family, *_, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    both = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)


def _peek(stranger: socket.socket, count: int) -> bytes:
    """The first `count` bytes that have arrived, or fewer; b"" if the connection has ended."""
    try:
        return stranger.recv(count, socket.MSG_PEEK)
    except OSError:
        return b""


def _has_left(stranger: socket.socket) -> bool:
    """Whether the client has closed the connection. A client does that if another server answers first."""
    looked = select.poll()
    looked.register(stranger, _HUNG_UP)
    return bool(looked.poll(0))


def _reset(stranger: socket.socket) -> None:
    """Closes the socket with a reset, so that the kernel keeps no state of it."""
    with suppress(OSError):
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    stranger.close()


def _refuse(stranger: socket.socket) -> None:
    """Tells the client, in the frames of earlier releases, why the connection is refused."""
    failure = messages.Failure(
        code="version",
        text="this server speaks TLS and takes no tokens: install its release here, type `durability clients"
        " invite` on its machine, and here the line that it prints (`durability join …`)",
    )
    with suppress(OSError):
        stranger.recv(limits.FRAME_BYTES_HELLO_MAX)  # else closing resets the connection and loses the reason
        stranger.send(frame(messages.encode(failure)))
        stranger.shutdown(socket.SHUT_WR)
    stranger.close()
