"""Finds the server and the credentials for it: from the command line, from the credential that `join` stored,
or from the local socket of a server on this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_state_path

from durability.errors import FormatError, SetupError
from durability.protocol.auth import APPLICATION
from durability.protocol.local_address import PATH_BYTES_MAX, PORT, SYSTEM_DIRECTORY, port_of, socket_name
from durability.units import format_address, is_address, is_loopback, parse_address
from durability_client.link.credential import ANEW, credential_path, load_credential

_PROBE_S = 1.0
HOW_TO_JOIN = (
    "on the machine that stays up, type `durability serve` or, if it runs, `durability clients invite`; then"
    " type here the line that it prints (`durability join …`). If the server is a service of this machine,"
    " type your command as root"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server, with other servers on the same store."""

    addresses: tuple[tuple[str, int], ...] = ()  # of this server, then of others; tried in this order
    local: Path | None = None  # the server's local socket, on which this user is the operator
    fingerprint: bytes = b""  # SHA-256 of the servers' certificate, or its first bytes
    client: str = ""  # this client's id
    secret: bytes = b""  # this client's secret
    credential: Path | None = None  # file in which to remember addresses of other servers

    def __str__(self) -> str:
        if self.local is not None:
            return f"this machine (port {port_of(self.local.name)})"
        return ", ".join(format_address(*address) for address in self.addresses)


def endpoint(server: str | None, credential: Path | None, *, as_operator: bool = False) -> Endpoint:
    """The server named on the command line (HOST or HOST:PORT), else the one that this machine has joined,
    else one that runs on this machine.

    `credential`: file to use instead of the one that `join` stored. `as_operator`: prefer a server on this
    machine. Raises UsageError, SetupError and FormatError.
    """
    address = None if server is None else parse_address(server, port=PORT)
    path = credential or credential_path()
    known = load_credential(path)
    if known is None or (as_operator and credential is None):
        local = _local(address)
        if local is not None:
            return Endpoint(local=local)
    if known is None:
        what = f"has not joined the server at {server}" if server else "has no server"
        raise SetupError(f"this machine {what} ({path} does not exist): {HOW_TO_JOIN}")
    # A server of an earlier release may have sent an address that cannot be looked up.
    servers = tuple(map(parse_address, filter(is_address, known.servers)))
    if address is None and not servers:
        raise FormatError(f"{path} has no address of a server that can be reached. {ANEW}")
    return Endpoint(
        addresses=(address,) if address is not None else servers,
        fingerprint=bytes.fromhex(known.fingerprint),
        client=known.client,
        secret=bytes.fromhex(known.secret),
        credential=path if address is None else None,
    )


def _local(address: tuple[str, int] | None) -> Path | None:
    """The local socket of the server at `address`, or of the only server if `address` is None. This user or
    the system runs it. None if no server answers. Raises SetupError if several do."""
    if address is not None and not is_loopback(address[0]):
        return None
    # In a container both directories may be the same.
    directories = dict.fromkeys((user_state_path(APPLICATION), Path(SYSTEM_DIRECTORY)))
    paths = [path for directory in directories for path in _sockets(directory)]
    if address is not None:
        paths = [path for path in paths if path.name == socket_name(address[1])]
    found = [path for path in paths if _answers(path)]
    if len(found) > 1:
        ports = ", ".join(str(port_of(path.name)) for path in found)
        raise SetupError(f"servers run here on the ports {ports}: choose with --server 127.0.0.1:PORT")
    return found[0] if found else None


def _sockets(directory: Path) -> list[Path]:
    """The local sockets of servers in a state directory; empty if this user cannot list the directory."""
    try:
        return sorted(path for path in directory.iterdir() if port_of(path.name) is not None)
    except OSError:
        return []


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, short_path(path) as short:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(short)
        except OSError:
            return False
    return True


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A path to the same socket that is short enough for the system."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    try:
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield str(path)[:PATH_BYTES_MAX]  # does not exist either, so that connecting fails
        return
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
