"""Connects a socket to a host: looks up the name and tries the addresses.

A host may have IPv4 and IPv6 addresses, and packets to one of them may get lost. So the address families
alternate, and each address is tried shortly after the one before, as in RFC 8305. asyncio does the same, but
does not set socket options before it connects, and does not report which addresses it tried. Errors name each
address with its failure, and what to check.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Any, TypeAlias

from durability import limits
from durability.errors import PeerError
from durability.units import format_address
from durability_client.link.first_answer import first_answer

UNSENT_BYTES = 4096
PATIENCE_S = 0.25  # wait for an answer before the next address is tried, too
LOOK = "check that `durability serve` runs there"
_NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)

_Address: TypeAlias = tuple[Any, ...]  # a socket address for `connect`
_Place: TypeAlias = tuple[int, _Address]  # address family and address


async def connected_socket(host: str, port: int, *, narrow: bool, timeout_s: float) -> socket.socket:
    """A socket connected to the first address of the host that answers. `narrow`: use a small receive window
    from the start, because TCP cannot withdraw a window that it has offered. Raises PeerError."""
    where = format_address(host, port)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    places = in_turns(await _looked_up(host, port, deadline_s))
    failures: list[tuple[_Place, OSError]] = []

    async def attempt(place: _Place) -> socket.socket:
        return await _connected(place, narrow=narrow)

    try:
        async with asyncio.timeout_at(deadline_s):
            found = await first_answer(
                places,
                attempt,
                patience_s=PATIENCE_S,
                failure=OSError,
                failures=failures,
                discard=socket.socket.close,
            )
    except TimeoutError:
        known = {place: system_words(error) for place, error in failures}
        tried = [(place, known.get(place, "no answer")) for place in places]
        named = "" if _is_number(host) else f" ({_each(tried)})"
        raise PeerError(
            f"the server at {where} does not answer{named}: {LOOK} and that no firewall drops packets"
        ) from None
    if found is not None:
        return found[1]
    tried = [(place, system_words(error)) for place, error in failures]
    named = tried[0][1] if _is_number(host) else _each(tried)
    no_way = all(error.errno in _NO_WAY for _, error in failures)
    look = "check the address, and the network of both machines" if no_way else LOOK
    raise PeerError(f"cannot connect to {where}: {named}; {look}") from failures[0][1]


def in_turns(places: Iterable[_Place]) -> Sequence[_Place]:
    """`places` without duplicates and with alternating address families. Each family keeps the system's
    order, and the first place stays first."""
    families: dict[int, list[_Place]] = {}
    for place in dict.fromkeys(places):
        families.setdefault(place[0], []).append(place)
    return [place for place in chain.from_iterable(zip_longest(*families.values())) if place is not None]


def system_words(error: OSError) -> str:
    """The system's text for `error`, without the error number."""
    return os.strerror(error.errno) if error.errno else str(error)


async def _looked_up(host: str, port: int, deadline_s: float) -> list[_Place]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout_at(deadline_s):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise PeerError(_no_address(host, "no name server answers")) from None
    except UnicodeError as error:
        where = format_address(host, port)
        raise PeerError(f"cannot connect to {where}: no name server can be asked for that name") from error
    except OSError as error:
        raise PeerError(_no_address(host, str(error.strerror))) from error
    return [(family, address) for family, _, _, _, address in found]


def _no_address(host: str, reason: str) -> str:
    zone = host.partition("%")[2]
    if zone:
        return f"cannot use the address {host}: {reason}; check that this machine has the interface {zone}"
    return (
        f"cannot look up the name {host}: {reason}; check the name and this machine's name server"
        " (/etc/resolv.conf), or type the server's IP address in its place"
    )


async def _connected(place: _Place, *, narrow: bool) -> socket.socket:
    family, address = place
    connected = socket.socket(family, socket.SOCK_STREAM)
    try:
        connected.setblocking(False)
        if narrow:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.RUN_WINDOW_BYTES)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # send acks without delay
        # Unsent data must wait in this process, where a newer frontier can replace an older one.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        await asyncio.get_running_loop().sock_connect(connected, address)
    except BaseException:
        connected.close()
        raise
    return connected


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _each(tried: Iterable[tuple[_Place, str]]) -> str:
    """Each address with the reason of its failure."""
    return ", ".join(f"{address[0]}: {reason}" for (_, address), reason in tried)
