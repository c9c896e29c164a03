"""The directory with a server's store and local socket, and the server's address for other machines."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from platformdirs import user_state_path

from durability.errors import SetupError
from durability.protocol.auth import APPLICATION
from durability.units import format_address

_FAMILIES = {"0.0.0.0": (socket.AF_INET,), "::": (socket.AF_INET, socket.AF_INET6)}  # :: accepts IPv4 too
# Documentation addresses, used only to find a route. No data are sent to them.
_ELSEWHERE = {socket.AF_INET: ("192.0.2.1", 9), socket.AF_INET6: ("2001:db8::1", 9)}


def state_directory() -> Path:
    """The directory XDG_STATE_HOME/durability, created if it is missing. Raises SetupError."""
    path = user_state_path(APPLICATION)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"cannot create the state directory {path}: {error.strerror}") from error
    return path


def default_store_url() -> str:
    """The URL of the SQLite store in the state directory. Raises SetupError."""
    return f"sqlite:///{state_directory() / 'server.sqlite'}"


def address_for_others(host: str, port: int) -> str:
    """The address to type on another machine for a server that listens on `host`."""
    return format_address(_own_address(_FAMILIES[host]) if host in _FAMILIES else host, port)


def _own_address(families: Sequence[socket.AddressFamily]) -> str:
    """This machine's address towards other machines, of the first family that has a route. Its host name if
    none has."""
    for family in families:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(_ELSEWHERE[family])
            return str(probe.getsockname()[0])
    return socket.gethostname()
