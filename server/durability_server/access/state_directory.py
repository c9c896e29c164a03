"""The directory in which a server keeps its store and its local socket, and the address that it tells
others."""

from __future__ import annotations

import socket
from pathlib import Path

from platformdirs import user_state_path

from durability.errors import SetupError
from durability.protocol.auth import APPLICATION
from durability.units import format_address

_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})
_ELSEWHERE = ("192.0.2.1", 9)  # TEST-NET-1: asked for a route, never sent to


def state_directory() -> Path:
    """The directory, XDG_STATE_HOME/durability, made if it is missing. Raises SetupError."""
    path = user_state_path(APPLICATION)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"cannot create the state directory {path}: {error.strerror}") from error
    return path


def default_store_url() -> str:
    """The SQLite store in the state directory."""
    return f"sqlite:///{state_directory() / 'server.sqlite'}"


def address_for_others(host: str, port: int) -> str:
    """What to type on another machine for a server that listens on `host`."""
    return format_address(_own_address() if host in _ANY_ADDRESS else host, port)


def _own_address() -> str:
    """The address that this machine uses towards others, or its name if it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
