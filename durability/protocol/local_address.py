"""Where commands on the server's own machine find it: the name of its Unix socket, the same for both
sides."""

from __future__ import annotations

PORT = 7420  # of a server, unless told
SYSTEM_DIRECTORY = "/var/lib/durability"  # of a server that systemd runs; root's commands look there as well
PATH_BYTES_MAX = 107  # of a Unix socket, on Linux

_PREFIX, _SUFFIX = "server-", ".socket"


def socket_name(port: int) -> str:
    """The name of the socket of the server that listens on `port`, in its state directory."""
    return f"{_PREFIX}{port}{_SUFFIX}"


def port_of(name: str) -> int | None:
    """The port whose server has a socket of this name; None for another file."""
    number = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return int(number) if number.isdecimal() and socket_name(int(number)) == name else None
