"""What somebody told a live machine: where its server is, by which code it joins, how it is called.

Said on the kernel's command line, in a file on a stick, or at a console:

    durability.join=HOST:PORT,CODE durability.name=NAME durability.machine=TEXT     the command line
    join = HOST:PORT CODE                                                           the file
    HOST:PORT CODE                                                                  typed

In the file and at the console the whole line that `durability clients invite` prints will do as well. Refuses
what it does not understand, with the line, and what another quote or a backslash was to keep together: a part
left out of `machine` would make two machines one.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from itertools import zip_longest

from durability.errors import UsageError
from durability.protocol.join_code import parse_join_code
from durability.protocol.local_address import PORT
from durability.units import parse_address

FILE_BYTES_MAX = 64 << 10
_COMMAND = ("durability", "join")
_KEYS = ("join", "name", "machine", "address", "gateway", "dns", "card")
_TEXTS = ("name", "machine")
_QUOTES = 'a value may stand between two ", and can have none in it'
_ONLY_QUOTES = 'only two " keep a value with blanks together'
_CARD = re.compile("[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}")
_OF_KERNEL = "durability."
_KERNEL_KEYS = ("join", "name", "machine")
_WORD = re.compile(r'(?:[^\s"]|"[^"]*(?:"|\Z))+')  # as the kernel parts them; a quote may lack its end
_MARK = re.compile("['`\u00b4\u00ab\u00bb\u2018-\u201f\u2039\u203a]")  # what people also quote with
_PART_MAX = 4  # characters of a word that may be a part of the text before it, if no digit is in it
# Other programs' words that are as short, or have a digit: some by their name, more by their form.
_FLAGS = frozenset({"S", "auto", "gpt", "hlt", "live", "mce", "rhgb", "ro", "rw", "s", "swap", "text"})
_FLAG = re.compile(r"--+|-[a-z]|no\w+|[a-z]\w*_\w+|\w[\w-]*\.[A-Za-z_].*")
_COMMENT = re.compile(r"(?:^|\s)#")  # where one begins
_DASH = "[-_\u2010-\u2015\u2212]"
_BLANK = r"(?:\s|\\t|\\xa0|\\u2\d{3})"  # also as repr() writes it
_CODES = re.compile(
    "(?<![0-9A-Za-z])(?:"
    f"[0-9A-Za-z](?:{_DASH}*[0-9A-Za-z]){{32,47}}(?![0-9A-Za-z])"  # a few characters too few, or too many
    f"|(?:[0-9A-Za-z]{{5}}{_DASH}){{3,}}[0-9A-Za-z]+"  # only its beginning: the first 16 are the secret
    f"|[0-9A-Za-z]{{5}}(?:(?:{_DASH}|{_BLANK})+[0-9A-Za-z]{{5}}){{3,}}(?![0-9A-Za-z])"
    ")"
)
_MIXED = re.compile("[0-9][A-Za-z]|[A-Za-z][0-9]")  # in a code, and in few words and numbers of a sentence
_HIDDEN = "(code)"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """What was said; "" is nothing. `server`: HOST or HOST:PORT. `machine`: in the place of what tells this
    machine from others. `address`, with its prefix, `gateway` and `dns` are for networks without DHCP; of the
    card with the MAC address `card`, or of all wired cards. `mistake`: what is wrong with the kernel's
    command line, the rest of which is here."""

    server: str = ""
    code: str = ""
    name: str = ""
    machine: str = ""
    address: str = ""
    gateway: str = ""
    dns: str = ""
    card: str = ""
    mistake: str = ""


def from_kernel(command_line: str) -> JoinRequest:
    """What the kernel's command line says, read as the kernel reads it: blanks between quotes are of the
    value. Raises nothing: a mistake in one word is told, and the others count."""
    said: dict[str, str] = {}
    mistakes = []
    words = _WORD.findall(command_line)
    for word, behind in zip_longest(words, words[1:], fillvalue=""):
        plain = word[1:].removesuffix('"') if word.startswith('"') else word
        if plain.startswith(_OF_KERNEL):
            try:
                key, value = _of_kernel(plain, word)
                if key == "machine" and value and '"' not in word and _may_be_part(behind):
                    raise UsageError(f"'{word} {behind}': {_ONLY_QUOTES}")
                said[key] = value
            except UsageError as error:
                mistakes.append(str(error))
    server, _, code = said.get("join", "").partition(",")
    return JoinRequest(
        server=server,
        code=code,
        name=said.get("name", ""),
        machine=said.get("machine", ""),
        mistake="; ".join(mistakes),
    )


def _may_be_part(word: str) -> bool:
    """Whether a word behind a text without quotes may be a part of it, as in `shelf 3b`: it would be lost. In
    doubt it is a word of another program."""
    if "=" in word or word in _FLAGS or _FLAG.fullmatch(word):
        return False
    return 0 < len(word) <= _PART_MAX or any(character.isdigit() for character in word)


def _of_kernel(plain: str, word: str) -> tuple[str, str]:
    """Key and value of a word of ours, which is `word` on the line. Raises UsageError."""
    key, equals, value = plain.removeprefix(_OF_KERNEL).partition("=")
    if not equals or key not in _KERNEL_KEYS:
        expected = ", ".join(f"{_OF_KERNEL}{one}=" for one in _KERNEL_KEYS)
        raise UsageError(f"{word!r}: expected one of {expected} and a value")
    if value.startswith('"'):
        value = value[1:].removesuffix('"')
    if '"' in value or word.count('"') % 2:
        raise UsageError(f"{word!r}: {_QUOTES}")
    if key in _TEXTS and (_MARK.match(value) or value.endswith("\\")):
        raise UsageError(f"{word!r}: {_ONLY_QUOTES}")
    if key == "join":
        server, _, code = value.partition(",")
        try:
            _check(server, code, value)
        except UsageError as error:
            raise UsageError(f"{_OF_KERNEL}{key}: {error}") from error
    return key, value


def from_file(text: str) -> JoinRequest:
    """What the file says. Raises UsageError."""
    said: dict[str, str] = {}
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), start=1):
        comment = _COMMENT.search(line)
        plain = line[: comment.start() if comment else None].strip()
        if not plain:
            continue
        key, equals, value = plain.partition("=")
        if tuple(plain.split()[:2]) == _COMMAND:
            key, equals, value = "join", "=", plain
        key = key.strip().lower()
        if not equals or key not in _KEYS:
            raise UsageError(f"line {number}, {plain!r}: expected one of {', '.join(_KEYS)}, =, and a value")
        if key in _TEXTS:
            _require_no_mark(f"line {number}, {line.strip()!r}", key, line)
        said[key] = _unquoted(value.strip(), f"line {number}, {plain!r}")
    server, code = _typed(said.pop("join")) if said.get("join") else ("", "")
    said.pop("join", None)
    request = JoinRequest(server=server, code=code, **said)
    _check_network(request)
    return request


def _require_no_mark(where: str, key: str, line: str) -> None:
    """Raises UsageError for a `#` that may be meant as a part of the text: shelf #3 and shelf #4 would be one
    machine. Behind a name, which tells no machine from others, a comment may stand apart."""
    kept = line if key == "machine" else re.sub(r"\s#(?:\s.*)?$", "", line)
    if "#" in kept:
        raise UsageError(f"{where}: `#` cannot stand in or behind `{key}`: write another text, without it")


def _unquoted(value: str, where: str) -> str:
    """`value` without the quotes around it. Raises UsageError for others."""
    if len(value) > 1 and value.startswith('"') and value.endswith('"'):
        value = value[1:-1]
    if '"' in value:
        raise UsageError(f"{where}: {_QUOTES}")
    return value


def from_console(line: str) -> JoinRequest:
    """What somebody typed. Raises UsageError."""
    server, code = _typed(line)
    return JoinRequest(server=server, code=code)


def without_codes(text: str) -> str:
    """`text`, which all can read, without what may be a code or the part of one that is secret."""
    return _CODES.sub(lambda found: _HIDDEN if _MIXED.search(found[0]) else found[0], text)


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
