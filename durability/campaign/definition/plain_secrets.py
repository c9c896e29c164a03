"""Finds secrets that stand in plain text where a campaign file only names them.

Settings are stored, exported and shown, so a secret in one is known to all who read those. Refuses to repeat
what it finds: it says where the secret stands and what to write there instead.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Set

_SECRET = (
    r"(?:password|passwd|passphrase|pass|pwd|pw|secret|token|bearer|apikey|(?:api|auth)[-_]?key|community)"
)
_OPTION = re.compile(rf"(?:.*[-_])?(?:{_SECRET}|key|kg)(?:[-_]value)?", re.IGNORECASE)
_WITHIN_URL = re.compile(r"(?:://|^)[^\s/@:]*:[^\s/@]+@")
_NAMED = re.compile(rf"(?:^|[^A-Za-z0-9])(?:[A-Za-z0-9]+[-_])*{_SECRET}=(.+)", re.IGNORECASE | re.DOTALL)
_FLAG = re.compile(rf"-{{1,2}}(?:[A-Za-z0-9]+[-_])*{_SECRET}", re.IGNORECASE)
_HEADER = re.compile(
    r"(?:(?:[a-z0-9]+-)*(?:authorization|token|secret)|x-[a-z-]*key|(?:[a-z0-9]+-)*api-?key):\s*\S",
    re.IGNORECASE,
)
_JSON = re.compile(rf'"(?:[A-Za-z0-9]+[-_])*{_SECRET}"\s*:\s*"(?![$@])[^"]', re.IGNORECASE)
_ELSEWHERE = re.compile(r"[$/@<.~]|env:|file:|%env")  # how a value begins that says where the secret is
_DEPTH_MAX = 4  # a shell's words within words

# Flags whose value is a secret, by program; "user:password" for those of `_WITH_USER`.
_FLAGS = {
    "ipmitool": ("-P", "-k", "-y"),
    "mosquitto_pub": ("-P",),
    "mosquitto_rr": ("-P",),
    "mosquitto_sub": ("-P",),
    "racadm": ("-p",),
    "redfishtool": ("-p",),
    "snmpget": ("-c", "-A", "-X"),
    "snmpset": ("-c", "-A", "-X"),
    "snmpwalk": ("-c", "-A", "-X"),
    "sshpass": ("-p",),
}
_WITH_USER = {"curl": ("-u", "--user", "-U", "--proxy-user"), "http": ("-a", "--auth")}
_TAKES_SECRETS = _FLAGS.keys() | _WITH_USER.keys()


def is_secret_option(name: str) -> bool:
    """Whether the value of a switch's option is a secret, by its name; `NAME_file` holds a path."""
    return _OPTION.fullmatch(name) is not None


def has_secret_in_url(text: str) -> bool:
    """Whether a text has a user with a password before the host: `http://USER:PASSWORD@HOST`."""
    return _WITHIN_URL.search(text) is not None


def has_secret(command: str) -> bool:
    """Whether a command line has a word that is, or has, a secret; a shell's script is looked through too."""
    programs: set[str] = set()
    before = ""
    for word in _words(command, _DEPTH_MAX):
        if _is_secret(programs, before, word):
            return True
        programs.add(word.rpartition("/")[2])
        before = word
    return False


def _is_secret(programs: Set[str], before: str, word: str) -> bool:
    """Whether `word` gives a secret away. `programs`: all words before it, `before`: the last of them."""
    if has_secret_in_url(word) or _HEADER.match(word) or _JSON.search(word):
        return True
    if (named := _NAMED.search(word)) is not None and not _ELSEWHERE.match(named[1]):
        return True
    if not word or _ELSEWHERE.match(word):
        return False
    if _FLAG.fullmatch(before) and not word.startswith("-"):
        return True
    return any(_is_flagged(program, before, word) for program in programs & _TAKES_SECRETS)


def _is_flagged(program: str, flag: str, word: str) -> bool:
    """Whether `word` is the secret that a flag of a known program takes, before it or within it."""
    for single in _FLAGS.get(program, ()):
        within = word.startswith(single) and word != single
        if (flag == single or within) and not _ELSEWHERE.match(word.removeprefix(single)):
            return True
    return (
        program in _WITH_USER
        and ":" in word
        and any(
            flag == one or (word.startswith(one) and not one.startswith("--")) for one in _WITH_USER[program]
        )
    )


def _words(command: str, depth: int) -> Iterator[str]:
    """The words of a command line, and those of its words that are command lines themselves."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    for word in words:
        yield word
        if depth and any(character.isspace() for character in word):
            yield from _words(word, depth - 1)
