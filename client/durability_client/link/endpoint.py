"""Where the server is, and how each side knows the other: what `join` left, what the command line says, or
the local socket of a server on this machine."""

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
    """A server. `local`: its local socket, on which this user is its operator; else `addresses`, which are
    tried in turn: of this server, and of others on its store. `fingerprint`: the SHA-256 of their
    certificate, or the first bytes of it. `client`, `secret`: who this client is. `credential`: the file that
    is to know of other servers on the store as well."""

    addresses: tuple[tuple[str, int], ...] = ()
    local: Path | None = None
    fingerprint: bytes = b""
    client: str = ""
    secret: bytes = b""
    credential: Path | None = None

    def __str__(self) -> str:
        if self.local is not None:
            return f"this machine (port {port_of(self.local.name)})"
        return ", ".join(format_address(*address) for address in self.addresses)


def endpoint(server: str | None, credential: Path | None, *, as_operator: bool = False) -> Endpoint:
    """The server that the command line names, HOST or HOST:PORT, else the one that this machine has joined,
    else the one that runs on it. `credential`: the file in the place of the one that `join` left.
    `as_operator`: a server on this machine comes first.

    Raises UsageError, SetupError and FormatError.
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
    # A server of an earlier release may have told of an address that no name server can be asked for.
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
    """The local socket of the server at `address`, of the only one without an address: one that this user
    runs, or the system. Raises SetupError."""
    if address is not None and not is_loopback(address[0]):
        return None
    # In a container both are one.
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
    """The local sockets of servers in a state directory; none if this user may not look."""
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
        yield str(path)[:PATH_BYTES_MAX]  # which is not there either
        return
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
