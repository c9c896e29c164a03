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
    assert from_kernel("quiet") == from_kernel("") == from_kernel("\n") == JoinRequest()


@pytest.mark.parametrize(
    ("words", "machine", "name"),
    [
        ('durability.machine="shelf 3" quiet', "shelf 3", ""),
        ('"durability.machine=shelf 3" quiet', "shelf 3", ""),
        ('durability.name="rack 3" durability.machine="shelf  4"', "shelf  4", "rack 3"),
        ('dyndbg="file a.c +p; file b.c +p" durability.machine=u7', "u7", ""),
        ('note="durability.machine=u8" durability.machine=u#7', "u#7", ""),
        ("durability.machine= quiet", "", ""),
        ("durability.machine=shelf console=ttyS0 3", "shelf", ""),
        ('durability.machine="shelf 3" 3', "shelf 3", ""),
        ("durability.machine= 3", "", ""),
        ("durability.machine=o'neill", "o'neill", ""),
    ],
)
def test_quotes_keep_a_value_together(words: str, machine: str, name: str) -> None:
    """As the kernel reads them, and as GRUB writes them: else shelf 3 and shelf 4 were one machine."""
    assert from_kernel(f"console=tty0 {words}\n") == JoinRequest(machine=machine, name=name)


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        (
            "durability.machin=u7",
            "'durability.machin=u7': expected one of durability.join=, durability.name=",
        ),
        ("durability.machine", "'durability.machine': expected one of"),
        ('durability.machine="shelf 3', "a value may stand between two"),
        ('durability.machine=shelf"3"', "a value may stand between two"),
        ("durability.machine=shelf\\ 3", 'only two " keep a value with blanks together'),
        ("durability.machine='shelf 3'", '"durability.machine=\'shelf": only two'),
        ("\"durability.machine='shelf 3'\"", "only two"),
        ("durability.machine=shelf 3", "'durability.machine=shelf 3': only two"),
        ("durability.machine=shelf #3 quiet", "'durability.machine=shelf #3': only two"),
        ("durability.name='rack 3' durability.name=rack-3", '"durability.name=\'rack": only two'),
        (f"durability.join={SERVER}", "expected HOST:PORT and a code"),
        (f"durability.join={SERVER},{CODE[:-1]}", "40 letters and digits, this one has 39"),
    ],
)
def test_a_mistake_in_the_kernels_line_is_told(word: str, complaint: str) -> None:
    """What else the line says counts."""
    request = from_kernel(f"durability.name=rack-3 {word}")
    assert request.name == "rack-3" and complaint in request.mistake
    assert (request.server, request.code, request.machine) == ("", "", "")


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
    assert from_file('machine = "shelf 3"\n  #machine = shelf 4\n').machine == "shelf 3"
    assert from_file(f"join = {SERVER} {CODE} #of the lab\n").code == CODE


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
        ("machine = shelf #3", "line 1, 'machine = shelf #3': `#` cannot stand in or behind `machine`"),
        ("machine = shelf # 3", "`#` cannot stand in or behind `machine`"),
        ("machine = #3", "`#` cannot stand in or behind `machine`"),
        ("name = rack#3", "`#` cannot stand in or behind `name`"),
        ("name = rack #3", "`#` cannot stand in or behind `name`"),
        ('machine = "shelf" 3"', "a value may stand between two"),
    ],
)
def test_a_mistake_is_named(text: str, complaint: str) -> None:
    """With the line, or the key, and what is expected."""
    with pytest.raises(UsageError) as refused:
        from_file(text)
    assert complaint in str(refused.value)
