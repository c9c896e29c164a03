"""Fields: the types that messages are made of, each with its bounds.

A field reads what msgpack decoded and refuses everything that is not exactly its type and within its bounds.
It writes through the same check, so that a wrong value fails where it was made and not on the other machine;
only text is made to fit instead, because an error report must not fail over the words in it. Refuses to
coerce: a float or a bool is not an integer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

U64_MAX = (1 << 64) - 1
NESTING_MAX = 32

_CODE = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
# A peer's words end up on terminals and in logs: no control characters, no lone surrogates, and nothing that
# changes the direction of what is read.
_NOT_PLAIN = "\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_NOT_PLAIN_LINE = re.compile(f"[{_NOT_PLAIN}]")
_NOT_PLAIN_TEXT = re.compile(f"(?!\n)[{_NOT_PLAIN}]")


@dataclass(frozen=True, slots=True)
class Field:
    """How one field is read and written; both raise ValueError saying what was expected. `bytes_max` bounds
    its encoded length."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    bytes_max: int


def integer(lowest: int, highest: int) -> Field:
    """An integer within `lowest` and `highest`."""

    def check(value: Any) -> int:
        if type(value) is int and lowest <= value <= highest:
            return value
        raise ValueError(f"expected an integer from {lowest} to {highest}")

    return Field(check, check, 9)


def integers(lowest: int, highest: int, count_max: int) -> Field:
    """A tuple of 1 to `count_max` integers within `lowest` and `highest`."""

    def check(value: Any) -> tuple[int, ...]:
        if type(value) in (tuple, list) and 0 < len(value) <= count_max and {*map(type, value)} == {int}:
            numbers = tuple(value)
            if lowest <= min(numbers) and max(numbers) <= highest:
                return numbers
        raise ValueError(f"expected 1 to {count_max} integers, each from {lowest} to {highest}")

    return Field(check, check, 3 + 9 * count_max)


def flag() -> Field:
    """True or false."""

    def check(value: Any) -> bool:
        if type(value) is bool:
            return value
        raise ValueError("expected true or false")

    return Field(check, check, 1)


def octets(shortest: int, longest: int) -> Field:
    """Bytes, `shortest` to `longest` of them."""

    def check(value: Any) -> bytes:
        if type(value) is bytes and shortest <= len(value) <= longest:
            return value
        raise ValueError(f"expected {shortest} to {longest} bytes")

    return Field(check, check, 5 + longest)


def choice(*allowed: str) -> Field:
    """One of a closed set of words."""

    def check(value: Any) -> str:
        if type(value) is str and value in allowed:
            return value
        raise ValueError(f"expected one of {', '.join(allowed)}")

    return Field(check, check, 1 + max(map(len, allowed)))


def code() -> Field:
    """A machine-readable reason: lower-case words joined by hyphens, at most 32 characters."""

    def check(value: Any) -> str:
        if type(value) is str and _CODE.fullmatch(value):
            return value
        raise ValueError("expected a code of lower-case letters, digits and hyphens, at most 32 characters")

    return Field(check, check, 34)


def name(bytes_max: int) -> Field:
    """One line of plain text, at most `bytes_max` bytes of UTF-8; it is refused, not changed."""

    def check(value: Any) -> str:
        if type(value) is str and not _NOT_PLAIN_LINE.search(value) and len(value.encode()) <= bytes_max:
            return value
        raise ValueError(f"expected one line of at most {bytes_max} bytes without control characters")

    return Field(check, check, 5 + bytes_max)


def text(bytes_max: int) -> Field:
    """Sentences for a person; when written they are cut to `bytes_max` bytes of UTF-8 and made plain."""

    def read(value: Any) -> str:
        if type(value) is str and not _NOT_PLAIN_TEXT.search(value) and len(value.encode()) <= bytes_max:
            return value
        raise ValueError(f"expected text of at most {bytes_max} bytes without control characters")

    def write(value: Any) -> str:
        plain = _NOT_PLAIN_TEXT.sub("\N{REPLACEMENT CHARACTER}", str(value))
        return plain.encode()[:bytes_max].decode(errors="ignore")

    return Field(read, write, 5 + bytes_max)


def document(bytes_max: int) -> Field:
    """A map of JSON-like values: no bytes, no NaN or infinity, nested at most `NESTING_MAX` deep."""

    def check(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError("expected a map")
        _check_plain(value)
        return value

    return Field(check, check, bytes_max)


def documents(count_max: int, bytes_max: int) -> Field:
    """A tuple of at most `count_max` documents, `bytes_max` together."""

    def check(value: Any) -> tuple[Mapping[str, Any], ...]:
        if type(value) not in (tuple, list) or len(value) > count_max:
            raise ValueError(f"expected at most {count_max} maps")
        for row in value:
            if not isinstance(row, Mapping):
                raise ValueError("expected maps only")
            _check_plain(row)
        return tuple(value)

    return Field(check, check, bytes_max)


_PLAIN = {type(None), bool, int, str}


def _check_plain(value: Mapping[str, Any]) -> None:
    """Goes down level by level; a list of numbers, the bulk of a timeline, costs no loop in Python."""
    level: list[Any] = [value]
    for _ in range(NESTING_MAX):
        below: list[Any] = []
        for container in level:
            if isinstance(container, Mapping):
                if {*map(type, container)} - {str}:
                    raise ValueError("expected maps with string keys only")
                items = container.values()
            else:
                items = container
            if {*map(type, items)} <= _PLAIN:
                continue
            below += filter(_is_container, items)
        if not below:
            return
        level = below
    raise ValueError(f"expected maps and lists nested at most {NESTING_MAX} deep")


def _is_container(item: Any) -> bool:
    if isinstance(item, Mapping | list | tuple):
        return True
    if type(item) in _PLAIN or (type(item) is float and math.isfinite(item)):
        return False
    raise ValueError(f"expected plain values, not {item!r:.40}")
