"""Finds secrets in plain text in a campaign file, which should only name the files of its secrets.

Settings are stored, exported and shown, so everybody who reads them would learn a secret in them. The
functions only tell whether there is a secret, so that no message repeats one.
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
_ELSEWHERE = re.compile(r"[$/@<.~]|env:|file:|%env")  # beginnings of values that only tell where a secret is
_DEPTH_MAX = 4  # levels of command lines within words of command lines

# Flags whose value is a secret, by program. In `_WITH_USER` the value is "user:password".
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
    """Whether an option of a switch is a secret, by its name. `NAME_file` is not: it holds a path."""
    return _OPTION.fullmatch(name) is not None


def has_secret_in_url(text: str) -> bool:
    """Whether a text contains a user and password before a host, as in `http://USER:PASSWORD@HOST`."""
    return _WITHIN_URL.search(text) is not None


def has_secret(command: str) -> bool:
    """Whether a word of a command line is or contains a secret. Scripts of a shell within it are searched
    too."""
    programs: set[str] = set()
    before = ""
    for word in _words(command, _DEPTH_MAX):
        if _is_secret(programs, before, word):
            return True
        programs.add(word.rpartition("/")[2])
        before = word
    return False


def _is_secret(programs: Set[str], before: str, word: str) -> bool:
    """Whether `word` contains a secret. `programs`: all words before it, `before`: the last of them."""
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
    """Whether `word` is a secret that follows a flag of a known program, or contains both flag and
    secret."""
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
    """The words of a command line, and the words of each word that is itself a command line."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    for word in words:
        yield word
        if depth and any(character.isspace() for character in word):
            yield from _words(word, depth - 1)
