"""A socket that is connected to a host: its name is looked up, and its addresses are tried.

A host may have addresses of both families, and packets to one of them may go nowhere. So the families take
turns, and each address is tried shortly after the one before, as RFC 8305 has it. asyncio does the same, but
it neither takes a socket's options before it connects nor says which addresses it tried. Errors say what
failed at which address, and what to look at.
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
PATIENCE_S = 0.25  # with an address that has not answered, before the next one is tried too
LOOK = "check that `durability serve` runs there"
_NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)

_Address: TypeAlias = tuple[Any, ...]  # as the system has it, for `connect`
_Place: TypeAlias = tuple[int, _Address]  # with its family


async def connected_socket(host: str, port: int, *, narrow: bool, timeout_s: float) -> socket.socket:
    """Connected to the first of the host's addresses that answers. `narrow`: with a small receive window from
    the beginning, since what has been offered once cannot be taken back. Raises PeerError."""
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
    """The same without repetition, the families alternating, the system's order within each; its first place
    stays the first."""
    families: dict[int, list[_Place]] = {}
    for place in dict.fromkeys(places):
        families.setdefault(place[0], []).append(place)
    return [place for place in chain.from_iterable(zip_longest(*families.values())) if place is not None]


def system_words(error: OSError) -> str:
    """What the system says of it, without its number."""
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
        connected.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )  # an acknowledgement waits for nothing
        # What the network does not take must wait in this process, where a newer frontier takes its place.
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
    """What came of each address."""
    return ", ".join(f"{address[0]}: {reason}" for (_, address), reason in tried)
