"""How a live machine is told to join: by the kernel's command line, a file, or a line that is typed."""

from __future__ import annotations

import pytest

from durability.errors import UsageError
from durability.protocol.join_code import JoinCode
from durability_client.live.join_request import (
    JoinRequest,
    from_console,
    from_file,
    from_kernel,
    without_codes,
)

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
    """Quoted values on the kernel's command line may have spaces, in the kernel's form and in GRUB's."""
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
        ("durability.machine=shelf A quiet", "'durability.machine=shelf A': only two"),
        ("durability.machine=shelf 3b", "'durability.machine=shelf 3b': only two"),
        ("durability.machine=shelf 3.1 quiet", "'durability.machine=shelf 3.1': only two"),
        ("durability.machine=shelf no 3", "'durability.machine=shelf no': only two"),
        ('durability.machine=shelf "3"', "'durability.machine=shelf \"3\"': only two"),
        ("durability.machine=\u201cshelf 3\u201d", "'durability.machine=\u201cshelf': only two"),
        ("durability.machine=\u00abshelf\u00bb", "'durability.machine=\u00abshelf\u00bb': only two"),
        ("durability.name=`rack", "'durability.name=`rack': only two"),
        ("durability.name='rack 3' durability.name=rack-3", '"durability.name=\'rack": only two'),
        (f"durability.join={SERVER}", "expected HOST:PORT and a code"),
        (f"durability.join={SERVER},{CODE[:-1]}", "40 letters and digits, this one has 39"),
    ],
)
def test_a_mistake_in_the_kernels_line_is_told(word: str, complaint: str) -> None:
    """A mistake in the kernel's command line is reported; the other words on the line still count."""
    request = from_kernel(f"durability.name=rack-3 {word}")
    assert request.name == "rack-3" and complaint in request.mistake
    assert (request.server, request.code, request.machine) == ("", "", "")


# Those that are short, or have a digit, among those that are not.
OTHERS = (
    "quiet debug ro rw splash nomodeset noresume ignore_loglevel single -- --- nofb noapic nolapic text"
    " S s -b rhgb emergency toram mce gpt no5lvl nox2apic nospectre_v2 x2apic_phys lapic_timer_c2_ok"
    " i8042.nomux 8250.share_irqs rd.break console=tty0 a=1 BOOTIF=01-52-54-00-00-00-09 $vt_handoff"
)


def test_words_of_others_may_stand_behind_a_text() -> None:
    """The kernel's and other programs' words are no part of a text without quotes."""
    for word in OTHERS.split():
        assert from_kernel(f"durability.machine=u7 {word}\n") == JoinRequest(machine="u7"), word


GROUPS = CODE.split("-")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"durability.joni={SERVER},{CODE} x", f"durability.joni={SERVER},(code) x"),
        (f"'join: {SERVER}\\t{CODE.lower()}'", f"'join: {SERVER}\\(code)'"),
        (f"{SERVER}{CODE.replace('-', '')}", "192.0.2.1:(code)"),
        (f"jion = {SERVER} {CODE.replace('-', chr(0x2013))}, or", f"jion = {SERVER} (code), or"),
        (f"jion = {SERVER} {CODE.lower().replace('-', ' ')}", f"jion = {SERVER} (code)"),
        (f"jion = {SERVER} {repr(CODE.replace('-', chr(0xA0)))[1:-1]}", f"jion = {SERVER} (code)"),
        (f",{CODE[:-1]}'", ",(code)'"),  # a character is missing
        (f",{CODE[:7]}{CODE[8:]}0'", ",(code)'"),
        (f",{CODE[:19]}'", ",(code)'"),  # only the secret is there
        (f",{' '.join(GROUPS[:4])}'", ",(code)'"),
    ],
)
def test_a_code_is_not_shown(text: str, shown: str) -> None:
    """However it was written; the rest is, so that the mistake is found."""
    assert without_codes(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "durability.join=durability-server-1.example.org:7420",
        "alpha-bravo-delta-gamma: cannot connect: tried again after 10000 ms, as asked",
        "4c4c4544-0042-3510-8054-b7c04f4e3332 0f1e2d3c4b5a69788796a5b4c3d2e1f0 [2001:db8::7]:7420",
        "a" * 64,
        f"{'e' * 63}1",
        f"a join code has 40 letters and digits, this one has 39: {' '.join(GROUPS[:2])}",
    ],
)
def test_what_is_no_code_is_shown(text: str) -> None:
    """Names, numbers of machines, addresses and sentences."""
    assert without_codes(text) == text


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
