"""Settings that people give a live machine: its server, the code to join, and its name.

They are on the kernel's command line, in a file on a stick, or typed at a console:

    durability.join=HOST:PORT,CODE durability.name=NAME durability.machine=TEXT     the command line
    join = HOST:PORT CODE                                                           the file
    HOST:PORT CODE                                                                  typed

The file and the console also accept the whole line that `durability clients invite` prints. Lines that cannot
be parsed are refused, and named in the error. Other quotes and backslashes are refused, too: if a part of
`machine` were lost, two machines would become one.
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
_WORD = re.compile(r'(?:[^\s"]|"[^"]*(?:"|\Z))+')  # as the kernel splits words
_MARK = re.compile("['`\u00b4\u00ab\u00bb\u2018-\u201f\u2039\u203a]")  # other quotes
_PART_MAX = 4  # a word without digits of at most this length may belong to the text before it
# Other programs' words that are as short or have a digit. `_FLAG` matches further ones by their form.
_FLAGS = frozenset({"S", "auto", "gpt", "hlt", "live", "mce", "rhgb", "ro", "rw", "s", "swap", "text"})
_FLAG = re.compile(r"--+|-[a-z]|no\w+|[a-z]\w*_\w+|\w[\w-]*\.[A-Za-z_].*")
_COMMENT = re.compile(r"(?:^|\s)#")  # start of a comment
_DASH = "[-_\u2010-\u2015\u2212]"
_BLANK = r"(?:\s|\\t|\\xa0|\\u2\d{3})"  # also in the form of repr()
_CODES = re.compile(
    "(?<![0-9A-Za-z])(?:"
    f"[0-9A-Za-z](?:{_DASH}*[0-9A-Za-z]){{32,47}}(?![0-9A-Za-z])"  # or a few characters too few or too many
    f"|(?:[0-9A-Za-z]{{5}}{_DASH}){{3,}}[0-9A-Za-z]+"  # also only its beginning: the first 16 are secret
    f"|[0-9A-Za-z]{{5}}(?:(?:{_DASH}|{_BLANK})+[0-9A-Za-z]{{5}}){{3,}}(?![0-9A-Za-z])"
    ")"
)
_MIXED = re.compile("[0-9][A-Za-z]|[A-Za-z][0-9]")  # in codes; rarely in sentences
_HIDDEN = "(code)"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """Settings from one source. "" means not given."""

    server: str = ""  # HOST or HOST:PORT
    code: str = ""
    name: str = ""
    machine: str = ""  # replaces the hardware's identification of this machine
    # For networks without DHCP:
    address: str = ""  # with its prefix length
    gateway: str = ""
    dns: str = ""
    card: str = ""  # MAC address of the card; "": all wired cards
    mistake: str = ""  # error in the kernel's command line, whose other words are in this object


def from_kernel(command_line: str) -> JoinRequest:
    """The settings on the kernel's command line, parsed like the kernel does: blanks between quotes belong to
    the value. Raises nothing: a mistake in one word is recorded, and the other words count."""
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
    """Whether a word after an unquoted text may belong to that text, as in `shelf 3b`, and would be lost. If
    in doubt, it counts as a word of another program."""
    if "=" in word or word in _FLAGS or _FLAG.fullmatch(word):
        return False
    return 0 < len(word) <= _PART_MAX or any(character.isdigit() for character in word)


def _of_kernel(plain: str, word: str) -> tuple[str, str]:
    """Key and value of one of this tool's words. `word`: its form on the command line. Raises UsageError."""
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
    """The settings in a file. Raises UsageError."""
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
    """Raises UsageError for a `#` that may belong to the text: otherwise shelf #3 and shelf #4 would become
    one machine. After a name, which does not identify a machine, a separate comment is allowed."""
    kept = line if key == "machine" else re.sub(r"\s#(?:\s.*)?$", "", line)
    if "#" in kept:
        raise UsageError(f"{where}: `#` cannot stand in or behind `{key}`: write another text, without it")


def _unquoted(value: str, where: str) -> str:
    """`value` without the quotes around it. Raises UsageError for other quotes in it."""
    if len(value) > 1 and value.startswith('"') and value.endswith('"'):
        value = value[1:-1]
    if '"' in value:
        raise UsageError(f"{where}: {_QUOTES}")
    return value


def from_console(line: str) -> JoinRequest:
    """The settings in a typed line. Raises UsageError."""
    server, code = _typed(line)
    return JoinRequest(server=server, code=code)


def without_codes(text: str) -> str:
    """`text` without strings that may be a code, or the secret part of one, because everyone can read it."""
    return _CODES.sub(lambda found: _HIDDEN if _MIXED.search(found[0]) else found[0], text)


def _typed(text: str) -> tuple[str, str]:
    words = text.replace(",", " ").replace("'", "").split()  # people quote IPv6 addresses for the shell
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
