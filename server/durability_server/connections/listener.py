"""The listening socket, and the strangers who have connected and said nothing yet.

A connection costs a descriptor here and no more: it becomes a `ClientConnection`, with TLS and its memory,
once its client has begun a handshake and it is its turn. Places are counted at accept. When they are taken,
the address that holds most of them loses its oldest; handshakes are begun at a bounded rate, one address
after the other. So neither the number nor the speed of strangers at some addresses keeps a client at another
one out.

Who speaks something else than TLS, as a client of an earlier release does, gets a `Failure` that says so.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from durability import limits
from durability.errors import SetupError
from durability.protocol import messages
from durability.protocol.frame import frame
from durability.protocol.secure_stream import FIRST_BYTE
from durability.units import format_address

WAITING_MAX = 4096
BEGINNING_MAX = 128  # connections between the start of their handshake and the end of it
BACKLOG = 4096
_ACCEPTED_AT_ONCE = 64  # before the clients that are known have their turn
_TURN_S = 0.005  # between handshakes that are begun
_BEGUN_AT_ONCE = 2
_PAUSE_S = 0.1  # after an accept for which there was no descriptor

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Stranger:
    """A connection of which nothing is known but its `address`, or its network where one host has many."""

    socket: socket.socket
    address: str
    since_s: float


class Listener:
    """Listens on `host` and `port`, or on the socket `bound`. `admit` makes a connection of a socket and
    calls `began` when its handshake is over, or has failed."""

    def __init__(self, admit: Callable[[socket.socket, Callable[[], None]], None]) -> None:
        self._admit = admit
        self._socket: socket.socket | None = None
        self._waiting: dict[str, dict[_Stranger, None]] = {}  # silent, by address, oldest first
        self._speaking: dict[str, deque[_Stranger]] = {}  # their handshake can begin, by address
        self._places = 0  # taken by both
        self._beginning = 0
        self._turn: asyncio.Handle | None = None
        self._sweep: asyncio.Handle | None = None

    def __len__(self) -> int:
        return self._places

    def open(self, host: str, port: int, bound: socket.socket | None) -> tuple[str, int]:
        """Listens from now on; the address. Raises SetupError."""
        try:
            self._socket = bound if bound is not None else _listening_socket(host, port)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            raise SetupError(f"cannot listen on {format_address(host, port)}: {why}") from error
        self._socket.listen(BACKLOG)
        self._socket.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._accept)
        self._sweep = loop.call_later(limits.HANDSHAKE_TIMEOUT_S, self._close_overdue)
        address: tuple[str, int] = self._socket.getsockname()[:2]
        return address

    def close(self) -> None:
        """Takes no more, and closes those that wait."""
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

    # Accepting.

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
                    loop.remove_reader(self._socket)
                    loop.call_later(_PAUSE_S, self._accept_again)
                    return
                raise
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._places >= WAITING_MAX:
                self._make_room()
            stranger = _Stranger(socket=accepted, address=_network(address[0]), since_s=loop.time())
            self._waiting.setdefault(stranger.address, {})[stranger] = None
            self._places += 1
            loop.add_reader(accepted, self._speaks, stranger)

    def _accept_again(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _make_room(self) -> None:
        """The address with the most places loses its oldest."""
        held = {address: len(strangers) for address, strangers in self._waiting.items()}
        for address, strangers in self._speaking.items():
            held[address] = held.get(address, 0) + len(strangers)
        most = max(held, key=held.__getitem__)
        if most in self._waiting:
            self._drop(next(iter(self._waiting[most])))
        else:
            self._places -= 1
            _reset(self._speaking[most].popleft().socket)
            if not self._speaking[most]:
                del self._speaking[most]

    def _close_overdue(self) -> None:
        loop = asyncio.get_running_loop()
        overdue_s = loop.time() - limits.HANDSHAKE_TIMEOUT_S
        for waiting in tuple(self._waiting.values()):
            for stranger in tuple(waiting):
                if stranger.since_s > overdue_s:
                    break
                self._drop(stranger)
        self._sweep = loop.call_later(limits.HANDSHAKE_TIMEOUT_S / 5, self._close_overdue)

    def _drop(self, stranger: _Stranger) -> None:
        self._leave(stranger)
        _reset(stranger.socket)

    def _leave(self, stranger: _Stranger) -> None:
        asyncio.get_running_loop().remove_reader(stranger.socket)
        self._places -= 1
        waiting = self._waiting[stranger.address]
        del waiting[stranger]
        if not waiting:
            del self._waiting[stranger.address]

    # Beginning handshakes.

    def _speaks(self, stranger: _Stranger) -> None:
        try:
            first = stranger.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            first = b""
        if not first:
            self._drop(stranger)
            return
        self._leave(stranger)
        if first[0] != FIRST_BYTE:
            _refuse(stranger.socket)
            return
        self._speaking.setdefault(stranger.address, deque()).append(stranger)
        self._places += 1
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """The next handshakes, one address after the other."""
        for _ in range(_BEGUN_AT_ONCE):
            if not self._speaking or self._beginning >= BEGINNING_MAX:
                break
            address = next(iter(self._speaking))
            queue = self._speaking.pop(address)
            stranger = queue.popleft()
            if queue:
                self._speaking[address] = queue  # behind the others
            self._places -= 1
            self._beginning += 1
            self._admit(stranger.socket, self._began)
        self._turn = None
        if self._speaking and self._beginning < BEGINNING_MAX:
            self._turn = asyncio.get_running_loop().call_later(_TURN_S, self._begin)

    def _began(self) -> None:
        self._beginning -= 1
        if self._speaking and self._turn is None:
            self._turn = asyncio.get_running_loop().call_later(_TURN_S, self._begin)


def _listening_socket(host: str, port: int) -> socket.socket:
    """Bound to the first address that `host` has; `::` takes IPv4 as well."""
    family, *_, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    both = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(address[:2], family=family, backlog=BACKLOG, dualstack_ipv6=both)


def _network(address: str) -> str:
    """Whose place it is: an IPv4 address, or the /64 of an IPv6 address, all of which one host may have."""
    plain = address.partition("%")[0]
    parsed = ipaddress.ip_address(plain)
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((plain, 64), strict=False))
    return plain


def _reset(stranger: socket.socket) -> None:
    """Close at once; the kernel keeps nothing of it."""
    with suppress(OSError):
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    stranger.close()


def _refuse(stranger: socket.socket) -> None:
    """Say in the frames of earlier releases why nothing comes of this connection."""
    failure = messages.Failure(
        code="version",
        text="this server speaks TLS and takes no tokens: install its release here, type `durability clients"
        " invite` on its machine, and here the line that it prints (`durability join …`)",
    )
    with suppress(OSError):
        stranger.recv(limits.FRAME_BYTES_HELLO_MAX)  # or closing it would reset it, and the words were lost
        stranger.send(frame(messages.encode(failure)))
        stranger.shutdown(socket.SHUT_WR)
    stranger.close()
