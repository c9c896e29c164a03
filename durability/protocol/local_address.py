"""The name of a server's Unix socket, by which commands on the server's machine find it. Both sides use this
module."""

from __future__ import annotations

PORT = 7420  # default port of a server
SYSTEM_DIRECTORY = "/var/lib/durability"  # state of a server that systemd runs; root's commands search it too
PATH_BYTES_MAX = 107  # longest path of a Unix socket on Linux

_PREFIX, _SUFFIX = "server-", ".socket"


def socket_name(port: int) -> str:
    """The file name of the socket of the server that listens on `port`. The file is in the server's state
    directory."""
    return f"{_PREFIX}{port}{_SUFFIX}"


def port_of(name: str) -> int | None:
    """The port whose server has a socket with this file name; None for another file."""
    number = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return int(number) if number.isdecimal() and socket_name(int(number)) == name else None
