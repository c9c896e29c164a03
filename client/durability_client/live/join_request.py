"""What somebody told a live machine: where its server is, by which code it joins, how it is called.

Said on the kernel's command line, in a file on a stick, or at a console:

    durability.join=HOST:PORT,CODE durability.name=NAME durability.machine=TEXT     the command line
    join = HOST:PORT CODE                                                           the file
    HOST:PORT CODE                                                                  typed

In the file and at the console the whole line that `durability clients invite` prints will do as well. Refuses
what it does not understand, with the line.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from durability.errors import UsageError
from durability.protocol.join_code import parse_join_code
from durability.protocol.local_address import PORT
from durability.units import parse_address

FILE_BYTES_MAX = 64 << 10
_COMMAND = ("durability", "join")
_KEYS = ("join", "name", "machine", "address", "gateway", "dns", "card")
_CARD = re.compile("[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}")
_OF_KERNEL = re.compile(r"durability\.(join|name|machine)=(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """What was said; "" is nothing. `server`: HOST or HOST:PORT. `machine`: in the place of what tells this
    machine from others. `address`, with its prefix, `gateway` and `dns` are for networks without DHCP; of the
    card with the MAC address `card`, or of all wired cards."""

    server: str = ""
    code: str = ""
    name: str = ""
    machine: str = ""
    address: str = ""
    gateway: str = ""
    dns: str = ""
    card: str = ""


def from_kernel(command_line: str) -> JoinRequest:
    """What the kernel's command line says. Raises UsageError."""
    said = {match[1]: match[2] for word in command_line.split() if (match := _OF_KERNEL.fullmatch(word))}
    server, _, code = said.get("join", "").partition(",")
    if "join" in said:
        _check(server, code, f"durability.join={said['join']}")
    return JoinRequest(server=server, code=code, name=said.get("name", ""), machine=said.get("machine", ""))


def from_file(text: str) -> JoinRequest:
    """What the file says. Raises UsageError."""
    said: dict[str, str] = {}
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), start=1):
        plain = line.partition("#")[0].strip()
        if not plain:
            continue
        key, equals, value = plain.partition("=")
        if tuple(plain.split()[:2]) == _COMMAND:
            key, equals, value = "join", "=", plain
        key = key.strip().lower()
        if not equals or key not in _KEYS:
            raise UsageError(f"line {number}, {plain!r}: expected one of {', '.join(_KEYS)}, =, and a value")
        said[key] = value.strip().strip('"')
    server, code = _typed(said.pop("join")) if said.get("join") else ("", "")
    said.pop("join", None)
    request = JoinRequest(server=server, code=code, **said)
    _check_network(request)
    return request


def from_console(line: str) -> JoinRequest:
    """What somebody typed. Raises UsageError."""
    server, code = _typed(line)
    return JoinRequest(server=server, code=code)


def _typed(text: str) -> tuple[str, str]:
    words = text.replace(",", " ").replace("'", "").split()  # a shell needs quotes around an IPv6 address
    if tuple(words[:2]) == _COMMAND:
        words = words[2:]
    server, code = (words[0] if words else ""), "".join(words[1:])
    _check(server, code, text)
    return server, code


def _check(server: str, code: str, text: str) -> None:
    if not server or not code:
        raise UsageError(
            f"{text!r}: expected HOST:PORT and a code, as `durability clients invite` prints them"
        )
    parse_address(server, port=PORT)
    parse_join_code(code)


def _check_network(request: JoinRequest) -> None:
    for name, value, parse in (
        ("address", request.address, ipaddress.ip_interface),
        ("gateway", request.gateway, ipaddress.ip_address),
        ("dns", request.dns, ipaddress.ip_address),
    ):
        try:
            if value:
                parse(value)
        except ValueError as error:
            raise UsageError(f"{name} = {value}: {error}") from error
    if request.address and "/" not in request.address:
        raise UsageError(f"address = {request.address}: add the length of the network's prefix, as in /24")
    if request.card and not _CARD.fullmatch(request.card):
        raise UsageError(f"card = {request.card}: expected the card's MAC address, as in 02:00:5e:10:00:01")
