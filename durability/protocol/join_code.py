"""The join code: `durability join` needs it once, to recognise the server and to be recognised by it.

    bytes     0 ...          9 10 ...                 22 23      24
             +----------------+-------------------------+----------+
             | secret         | certificate's SHA-256,  | check    |
             |                | the first 13 bytes      |          |
             +----------------+-------------------------+----------+

A code is written as 40 characters of Crockford's base 32, in groups of five. It has no I, L, O or U, and
upper and lower case are equal, so that it can be typed. Any dash may stand for a hyphen. `check` is the start
of a SHA-256 over the rest, so a typing error is found before anything is sent. The secret is valid for one
join within an hour, so 80 bits cannot be guessed. Finding another certificate with the same 104 bits of the
fingerprint is as hard as breaking AES.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from durability.errors import UsageError

CODE_SECRET_BYTES = 10
CODE_FINGERPRINT_BYTES = 13
_CHECK_BYTES = 2
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOOK_ALIKES = {"O": "0", "I": "1", "L": "1"}
# Characters that chat and mail programs write for a hyphen.
_DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_AS_MEANT = str.maketrans(
    {one.lower(): one for one in _ALPHABET if one.isalpha()}
    | _LOOK_ALIKES
    | {one.lower(): digit for one, digit in _LOOK_ALIKES.items()}
    | dict.fromkeys(_DASHES, "")
)
_GROUP = 5  # characters per group
_CHARACTERS = (CODE_SECRET_BYTES + CODE_FINGERPRINT_BYTES + _CHECK_BYTES) * 8 // 5


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCode:
    """The content of a code: an invitation's secret, and the first bytes of the server's fingerprint."""

    secret: bytes
    fingerprint: bytes

    def __str__(self) -> str:
        body = self.secret + self.fingerprint
        number = int.from_bytes(body + _check(body), "big")
        text = "".join(_ALPHABET[number >> 5 * at & 31] for at in reversed(range(_CHARACTERS)))
        return "-".join(text[at : at + _GROUP] for at in range(0, _CHARACTERS, _GROUP))


def parse_join_code(text: str) -> JoinCode:
    """The code that was typed or pasted. Raises UsageError."""
    plain = "".join(text.split()).translate(_AS_MEANT)
    if len(plain) != _CHARACTERS:
        raise UsageError(
            f"a join code has {_CHARACTERS} letters and digits, this one has {len(plain)}: copy it again"
            " from what `durability serve` or `durability clients invite` printed"
        )
    strange = sorted(set(plain) - set(_ALPHABET))
    if strange:
        raise UsageError(f"a join code has no {strange[0]!r}: copy it again")
    number = 0
    for character in plain:
        number = number << 5 | _ALPHABET.index(character)
    data = number.to_bytes(CODE_SECRET_BYTES + CODE_FINGERPRINT_BYTES + _CHECK_BYTES, "big")
    body, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
    if check != _check(body):
        raise UsageError(
            "the join code has a typing error: its letters and digits do not agree; copy it again"
        )
    return JoinCode(secret=body[:CODE_SECRET_BYTES], fingerprint=body[CODE_SECRET_BYTES:])


def _check(body: bytes) -> bytes:
    return hashlib.sha256(b"durability join code" + body).digest()[:_CHECK_BYTES]
