"""How a live machine is told to join: by the kernel's command line, a file, or a line that is typed."""

from __future__ import annotations

import pytest

from durability.errors import UsageError
from durability.protocol.join_code import JoinCode
from durability_client.live.join_request import JoinRequest, from_console, from_file, from_kernel

CODE = str(JoinCode(secret=b"0123456789", fingerprint=b"abcdefghijklm"))
SERVER = "192.0.2.1:7420"


def test_the_kernels_command_line() -> None:
    """Words of others are passed over, and all of ours may be missing."""
    line = (
        f"quiet durability.join={SERVER},{CODE} durability.name=rack-3 console=ttyS0 durability.machine=u7\n"
    )
    assert from_kernel(line) == JoinRequest(server=SERVER, code=CODE, name="rack-3", machine="u7")
    assert from_kernel("quiet") == JoinRequest()


@pytest.mark.parametrize("join", [f"join = {SERVER} {CODE}", f"durability join {SERVER} {CODE}"])
def test_the_file(join: str) -> None:
    """Comments, empty lines, and the ends of lines of other systems are taken; so is the printed line."""
    text = f"\ufeff# how to join\r\n\r\n{join}\r\nName = rack-3 # its place\r\naddress = 192.0.2.7/24\r\n"
    text += "gateway=192.0.2.1\r\ndns=2001:db8::1\ncard = 02:00:5E:10:00:01"
    assert from_file(text) == JoinRequest(
        server=SERVER,
        code=CODE,
        name="rack-3",
        address="192.0.2.7/24",
        gateway="192.0.2.1",
        dns="2001:db8::1",
        card="02:00:5E:10:00:01",
    )
    assert from_file("# nothing is filled in\n") == JoinRequest()


def test_what_is_typed() -> None:
    """Groups of the code may be apart, and the whole printed line will do."""
    for line in (
        f"{SERVER} {CODE}",
        f"  durability join {SERVER} {CODE.replace('-', ' ')}",
        f"{SERVER},{CODE}",
        f"durability join '{SERVER}' {CODE}",  # as an IPv6 address is printed
    ):
        request = from_console(line)
        assert (request.server, request.code.replace("-", "")) == (SERVER, CODE.replace("-", ""))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("jion = x", "line 1, 'jion = x': expected one of join"),
        (f"name = b\njoin = {SERVER}", "expected HOST:PORT and a code"),
        (f"join = {SERVER} {CODE[:-1]}", "40 letters and digits, this one has 39"),
        (f"join = :: {CODE}", "is not an address"),
        ("address = 192.0.2.7", "add the length of the network's prefix"),
        ("gateway = router", "gateway = router: "),
        ("card = eno1", "card = eno1: expected the card's MAC address"),
    ],
)
def test_a_mistake_is_named(text: str, complaint: str) -> None:
    """With the line, or the key, and what is expected."""
    with pytest.raises(UsageError) as refused:
        from_file(text)
    assert complaint in str(refused.value)
