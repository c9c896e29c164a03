"""A host name with several addresses: which one the client takes, and what it says if none answers.

The name server is the only thing that these tests replace.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from durability import limits
from durability.errors import PeerError
from durability.units import parse_address
from durability_client.link import host_socket, server_connection
from durability_client.link.endpoint import Endpoint
from durability_client.link.host_socket import connected_socket, in_turns
from durability_client.link.server_connection import connect
from tests.joined import NOWHERE
from tests.waiting import DEADLINE_S

NAME = "server.example"
_TENTATIVE = 0x40  # IFA_F_TENTATIVE: not to be used yet
_QUEUED = 4  # more than one connection that is accepted and one that waits for it

Address: TypeAlias = tuple[Any, ...]
Named: TypeAlias = Callable[..., None]


@pytest.fixture
async def named(monkeypatch: pytest.MonkeyPatch) -> Named:
    """Gives `NAME` the addresses, in their order. Numbers are read at once, without asyncio's threads: a
    busy machine takes none of the time in which the addresses are tried."""
    known: list[Address] = []

    async def looked_up(host: str, port: int, **options: Any) -> list[Any]:
        addresses = known if host == NAME else [(host, port)]
        return [found for address in addresses for found in socket.getaddrinfo(*address[:2], **options)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", looked_up)
    return lambda *addresses: known.extend(addresses)


@contextmanager
def hole(address: str = "127.0.0.1") -> Iterator[Address]:
    """An address that drops what asks for a connection: the queue of its listener is full."""
    with socket.socket() as listener:
        listener.bind((address, 0))
        listener.listen(0)
        queued = [socket.socket() for _ in range(_QUEUED)]
        try:
            for one in queued:
                one.setblocking(False)
                one.connect_ex(listener.getsockname())
            yield listener.getsockname()
        finally:
            for one in queued:
                one.close()


def closed(address: str = "127.0.0.1") -> Address:
    """An address that refuses."""
    with socket.create_server((address, 0)) as listener:
        found: Address = listener.getsockname()
    return found


@pytest.mark.parametrize("purpose", ["query", "run"])
async def test_an_address_that_drops_packets_keeps_no_client_waiting(
    where: Endpoint, purpose: str, named: Named, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next address of the name is tried as well, long before the first one is given up."""
    monkeypatch.setattr(server_connection, "CONNECT_TIMEOUT_S", 3600.0)
    with hole() as dead:
        named(dead, *where.addresses)
        async with asyncio.timeout(DEADLINE_S):
            connection = await connect(replace(where, addresses=((NAME, 7420),)), purpose)
        with closing(connection):
            assert connection.endpoint.addresses == ((NAME, 7420),)


async def test_an_address_that_refuses_costs_no_time(named: Named, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is tried at once."""
    monkeypatch.setattr(host_socket, "PATIENCE_S", 3600.0)
    with socket.create_server(("127.0.0.2", 0)) as server:
        named(closed(), server.getsockname())
        with await connected_socket(NAME, 7420, narrow=True, timeout_s=DEADLINE_S) as found:
            assert found.getpeername() == server.getsockname()


async def test_a_host_that_does_not_answer_is_said_with_its_addresses(
    named: Named, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a named host does not answer, the error has the result of each address; a numeric address is not
    repeated."""
    monkeypatch.setattr(host_socket, "PATIENCE_S", 0.0)
    monkeypatch.setattr(server_connection, "CONNECT_TIMEOUT_S", 0.5)
    with hole("127.0.0.2") as dead:
        named(dead, closed("127.0.0.3"))
        with pytest.raises(
            PeerError, match=rf"^the server at {NAME}:7420 does not answer \(127\.0\.0\.2: no"
        ):
            await connect(replace(NOWHERE, addresses=((NAME, 7420),)), "query")
        with pytest.raises(PeerError, match=r"^the server at 127\.0\.0\.2:\d+ does not answer: check that"):
            await connect(replace(NOWHERE, addresses=(dead,)), "query")


async def test_a_host_that_refuses_is_said_with_its_addresses(named: Named) -> None:
    """The system's words for each, without its number."""
    named(closed("127.0.0.2"), closed("127.0.0.3"))
    refused = (
        r"127\.0\.0\.2: Connection refused, 127\.0\.0\.3: Connection refused; check that `durability serve`"
    )
    with pytest.raises(PeerError, match=f"^cannot connect to {NAME}:7420: {refused}"):
        await connect(replace(NOWHERE, addresses=((NAME, 7420),)), "run")


async def test_a_name_that_cannot_be_looked_up_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether `durability serve` runs there is not the question; nor is it if no name server answers."""
    answering = threading.Event()

    def failing(*args: Any, **options: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    def silent(*args: Any, **options: Any) -> list[Any]:
        answering.wait(DEADLINE_S)
        return []

    no_name = rf"^cannot look up the name {NAME}: %s; check the name and this machine's name server"
    named = replace(NOWHERE, addresses=((NAME, 7420),))
    monkeypatch.setattr(socket, "getaddrinfo", failing)
    with pytest.raises(PeerError, match=no_name % "Temporary failure in name resolution"):
        await connect(named, "run")
    monkeypatch.setattr(socket, "getaddrinfo", silent)
    monkeypatch.setattr(server_connection, "CONNECT_TIMEOUT_S", 0.1)
    try:
        with pytest.raises(PeerError, match=no_name % "no name server answers"):
            await connect(named, "query")
    finally:
        answering.set()


def _link_local() -> str:
    """A link-local address of this machine with its zone, "" if it has none that is ready."""
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, _, _, scope, flags, interface = line.split()
            if scope == "20" and not int(flags, 16) & _TENTATIVE:
                return f"{ipaddress.IPv6Address(int(digits, 16))}%{interface}"
    return ""


@pytest.mark.skipif(not _link_local(), reason="no interface has a link-local address")
async def test_a_zone_says_which_network_is_meant() -> None:
    """A server without any other address is reached at its link-local one."""
    address = _link_local()
    with socket.create_server(("::", 0), family=socket.AF_INET6) as listener:
        port = listener.getsockname()[1]
        host, _ = parse_address(f"[{address}]:{port}")
        with await connected_socket(host, port, narrow=True, timeout_s=DEADLINE_S) as found:
            assert found.getpeername()[0] == address.partition("%")[0]


async def test_an_address_with_the_zone_of_no_interface_is_said_to_be_one() -> None:
    """Its zone is part of the address, and not looked up at a name server."""
    zoned = replace(NOWHERE, addresses=(("fe80::1%nosuch0", 7420),))
    with pytest.raises(PeerError, match=r"cannot use the address fe80::1%nosuch0: .* the interface nosuch0$"):
        await connect(zoned, "query")


@pytest.mark.parametrize("narrow", [False, True])
async def test_a_run_has_a_small_window_from_the_beginning(narrow: bool) -> None:
    """The connection of a run has a small receive window from the beginning; other connections have the
    system's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = listener.getsockname()
        with await connected_socket(*where, narrow=narrow, timeout_s=DEADLINE_S) as found:
            window_bytes = found.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert (window_bytes == 2 * limits.RUN_WINDOW_BYTES) is narrow  # Linux doubles what it is told


async def test_a_slower_address_is_left_alone(named: Named, monkeypatch: pytest.MonkeyPatch) -> None:
    """If two addresses answer, the slower connection is closed before any byte is sent on it."""
    monkeypatch.setattr(host_socket, "PATIENCE_S", 0.0)
    with socket.create_server(("127.0.0.2", 0)) as one, socket.create_server(("127.0.0.3", 0)) as other:
        named(one.getsockname(), other.getsockname())
        found = await connected_socket(NAME, 7420, narrow=False, timeout_s=DEADLINE_S)
        with found:
            slower = other if found.getpeername() == one.getsockname() else one
            slower.setblocking(False)
            try:
                accepted, _ = await asyncio.to_thread(slower.accept)
            except BlockingIOError:
                return  # it was never asked
            accepted.settimeout(DEADLINE_S)
            with accepted:
                assert await asyncio.to_thread(accepted.recv, 1) == b""


def test_the_families_take_turns() -> None:
    """A machine whose network has no IPv6 is not kept waiting by several such addresses."""
    six = [(socket.AF_INET6, (f"2001:db8::{number}", 1, 0, 0)) for number in range(3)]
    four = [(socket.AF_INET, (f"192.0.2.{number}", 1)) for number in range(2)]
    assert in_turns([*six, *four, six[0]]) == [six[0], four[0], six[1], four[1], six[2]]
    assert in_turns([*four, *six]) == [four[0], six[0], four[1], six[1], six[2]]
