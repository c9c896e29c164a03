"""Fields: the types of the parts of a message, each with its limits.

A field reads a value that msgpack decoded, and rejects every value that is not exactly of its type and within
its limits. It writes through the same check. So a wrong value fails on the machine that made it, not on the
other one. Only text is changed to fit: an error report must not fail because of its wording, nor a document
because of a drive's model. All strings are plain (`plain_text`). Nothing is coerced: a float or a bool is not
an integer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from durability import limits, plain_text
from durability.formats.packing import pack

U64_MAX = (1 << 64) - 1
NESTING_MAX = 32

_PLAIN = "without control or invisible characters"
_CODE = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Field:
    """How one field is read and written. Both functions raise ValueError with the expected value. `bytes_max`
    limits the encoded length; `elements_max` limits the number of maps, lists and their members that a client
    may send in the field."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    bytes_max: int
    elements_max: int = 0


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

    return Field(check, check, 3 + 9 * count_max, 1 + count_max)


def flag() -> Field:
    """True or false."""

    def check(value: Any) -> bool:
        if type(value) is bool:
            return value
        raise ValueError("expected true or false")

    return Field(check, check, 1)


def octets(shortest: int, longest: int) -> Field:
    """Bytes, `shortest` to `longest` bytes long."""

    def check(value: Any) -> bytes:
        if type(value) is bytes and shortest <= len(value) <= longest:
            return value
        raise ValueError(f"expected {shortest} to {longest} bytes")

    return Field(check, check, 5 + longest)


def choice(*allowed: str) -> Field:
    """One string of a fixed set."""

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
    """One line of plain text, at most `bytes_max` bytes of UTF-8. A value that does not fit is rejected, not
    changed."""

    def check(value: Any) -> str:
        if type(value) is str and plain_text.is_line(value) and len(value.encode()) <= bytes_max:
            return value
        raise ValueError(f"expected one line of at most {bytes_max} bytes {_PLAIN}")

    return Field(check, check, 5 + bytes_max)


def names(count_max: int, bytes_max: int) -> Field:
    """A tuple of at most `count_max` lines, as `name` reads them, with an encoded length of at most
    `bytes_max` bytes together."""
    line = name(bytes_max)

    def check(value: Any) -> tuple[str, ...]:
        if type(value) in (tuple, list) and len(value) <= count_max:
            lines = tuple(map(line.read, value))
            if len(pack(lines)) <= bytes_max:
                return lines
        raise ValueError(f"expected at most {count_max} lines, {bytes_max} bytes together")

    return Field(check, check, bytes_max, 1 + count_max)


def text(bytes_max: int) -> Field:
    """Sentences for a person. When written, they are cut to `bytes_max` bytes of UTF-8 and made plain."""

    def read(value: Any) -> str:
        if type(value) is str and plain_text.is_text(value) and len(value.encode()) <= bytes_max:
            return value
        raise ValueError(f"expected text of at most {bytes_max} bytes {_PLAIN}")

    def write(value: Any) -> str:
        return plain_text.as_text(str(value)).encode()[:bytes_max].decode(errors="ignore")

    return Field(read, write, 5 + bytes_max)


def document(bytes_max: int, elements_max: int = limits.ELEMENTS_FROM_CLIENT_MAX) -> Field:
    """A map of JSON-like values: no bytes, no NaN or infinity, nested at most `NESTING_MAX` deep. Strings are
    plain text; they are made plain when written."""

    def read(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError("expected a map")
        _check_texts(_strings(value))
        return value

    def write(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError("expected a map")
        return cast("Mapping[str, Any]", _made_plain(value, _strings(value)))

    return Field(read, write, bytes_max, elements_max)


def documents(count_max: int, bytes_max: int) -> Field:
    """A tuple of at most `count_max` documents, with at most `bytes_max` bytes together."""
    row = document(bytes_max)

    def rows(value: Any) -> tuple[Any, ...]:
        if type(value) not in (tuple, list) or len(value) > count_max:
            raise ValueError(f"expected at most {count_max} maps")
        if not all(isinstance(one, Mapping) for one in value):
            raise ValueError("expected maps only")
        return tuple(value)

    return Field(
        lambda value: tuple(map(row.read, rows(value))),
        lambda value: tuple(map(row.write, rows(value))),
        bytes_max,
        limits.ELEMENTS_FROM_CLIENT_MAX,
    )


_SIMPLE = {type(None), bool, int, str}
_DECODED = _SIMPLE | {float, list, dict}  # types that msgpack decodes a document to
_CHECKED_CHARACTERS = 16 << 10  # checked in one call, which blocks all other threads


def _strings(value: Mapping[str, Any]) -> list[str]:
    """All strings of a map, including its keys. Works level by level. A list of numbers, the bulk of a
    timeline, needs no loop in Python. Raises ValueError for values that a document cannot hold."""
    strings: list[str] = []
    level: list[Any] = [value]
    for _ in range(NESTING_MAX):
        below: list[Any] = []
        for container in level:
            if not container:
                continue
            if type(container) is dict or isinstance(container, Mapping):
                if {*map(type, container)} - {str}:
                    raise ValueError("expected maps with string keys only")
                strings += container
                items = container.values()
            else:
                items = container
            kinds = {*map(type, items)}
            if str in kinds:
                strings += (item for item in items if type(item) is str)
            if kinds <= _SIMPLE:
                continue
            if not kinds <= _DECODED:
                below += filter(_is_container, items)
                continue
            if list in kinds or dict in kinds:
                below += [item for item in items if type(item) is list or type(item) is dict]
            if float in kinds and not all(map(math.isfinite, [one for one in items if type(one) is float])):
                raise ValueError("expected plain values, not infinity or NaN")
        if not below:
            return strings
        level = below
    raise ValueError(f"expected maps and lists nested at most {NESTING_MAX} deep")


def _is_container(item: Any) -> bool:
    if isinstance(item, Mapping | list | tuple):
        return True
    if type(item) in _SIMPLE or (type(item) is float and math.isfinite(item)):
        return False
    raise ValueError(f"expected plain values, not {item!r:.40}")


def _check_texts(strings: list[str]) -> None:
    text = "".join(strings)
    parts = range(0, len(text), _CHECKED_CHARACTERS)
    if not all(plain_text.is_text(text[part : part + _CHECKED_CHARACTERS]) for part in parts):
        raise ValueError(f"expected plain text {_PLAIN}")


def _made_plain(value: Any, strings: list[str]) -> Any:
    """`value` with its strings made plain; `strings` are all of them."""
    return value if plain_text.is_text("".join(strings)) else _escaped(value)


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return plain_text.as_text(value)
    if isinstance(value, Mapping):
        return {plain_text.as_text(key): _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list | tuple) else value
