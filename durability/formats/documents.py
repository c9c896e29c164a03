"""Documents: conversion of dataclasses to plain JSON-like values and back, with checks. Only this module
imports pydantic.

Facts, cases and verdicts are sent, and stored in files and databases, as such values. Every value that comes
in is checked against the dataclass, field by field. If a value does not fit, FormatError names the field.
Nothing is coerced: a string of digits is not a number, and 1 is not true. So every value that was read can be
written again, as msgpack and as JSON.

Pydantic is imported when the first document is converted. Processes that only write or read a target never
convert one, and the import would take a third of their start time.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, cast

from durability import limits, plain_text
from durability.errors import FormatError
from durability.formats.packing import Value

if TYPE_CHECKING:  # importing pydantic takes long, and the commands that print help do not need it
    from pydantic import TypeAdapter

T = TypeVar("T")

TEXT_CHARACTERS_MAX = 4096  # the longest path in bytes
NAME_CHARACTERS_MAX = 256
FINITE_MAX = 1e18  # more than any measurement; small enough to be added, divided and squared
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_SHOWN_CHARACTERS = 60  # characters of foreign text that a message shows


@dataclass(frozen=True, slots=True)
class _Limits:
    """Checks for pydantic besides the type: keys and values of its core schema."""

    keys: tuple[tuple[str, object], ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), **dict(self.keys)}


@dataclass(frozen=True, slots=True)
class _Tagged:
    """Tells pydantic to use the field `name` to decide which of several dataclasses a value is."""

    name: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import Field

        return handler.generate_schema(Annotated[source, Field(discriminator=self.name)])


class _Exact:
    """Makes pydantic accept only exact numbers and flags in a dataclass and all dataclasses in it: finite
    numbers, integers of 64 bits, real booleans."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        schema = handler(source)
        _make_exact(schema, handler, set())
        return schema


def _make_exact(schema: Any, handler: Any, seen: set[int]) -> None:
    if isinstance(schema, list | tuple):
        for part in schema:
            _make_exact(part, handler, seen)
    elif isinstance(schema, dict) and id(schema) not in seen:
        seen.add(id(schema))
        kind = schema.get("type")
        if kind == "definition-ref":
            _make_exact(handler.resolve_ref_schema(schema), handler, seen)
        elif kind in _EXACT:
            schema.update(_EXACT[kind] | schema)
        elif kind == "tuple":
            schema["fail_fast"] = True  # a long list from a peer costs one error, not one per member
        for key, part in schema.items():
            if key != "metadata":
                _make_exact(part, handler, seen)


_EXACT: dict[Any, dict[str, object]] = {
    "bool": {"strict": True},
    "int": {"strict": True, "ge": -(1 << 63), "le": (1 << 64) - 1},
    "float": {"strict": True, "allow_inf_nan": False},
}


def _limited(**keys: object) -> _Limits:
    return _Limits(tuple(keys.items()))


# Types of fields with more checks than their type alone.
Natural: TypeAlias = Annotated[int, _limited(ge=0, lt=1 << 62)]
Count: TypeAlias = Annotated[int, _limited(ge=0, le=limits.COUNT_MAX)]  # operations possible in a round
Finite: TypeAlias = Annotated[float, _limited(ge=0, le=FINITE_MAX)]  # finite and not negative
Text: TypeAlias = Annotated[str, _limited(max_length=TEXT_CHARACTERS_MAX)]
Name: TypeAlias = Annotated[str, _limited(max_length=NAME_CHARACTERS_MAX)]
Flag: TypeAlias = Annotated[bool, _limited(strict=True)]


def at_most(count: int) -> Any:
    """Limit for a tuple or string field: the maximum number of members or characters."""
    return _limited(max_length=count)


def tagged(name: str) -> Any:
    """For a field that is one of several dataclasses: the field `name` in each dataclass shows which one it
    is."""
    return _Tagged(name)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(Annotated[kind, _Exact()])


def to_value(document: object) -> dict[str, Value]:
    """A dataclass instance as dicts, lists, strings, numbers, bools and None."""
    return cast("dict[str, Value]", _adapter(cast(Any, type(document))).dump_python(document, mode="json"))


def from_value(kind: type[T], value: object) -> T:
    """The dataclass `kind` that `value` holds. Raises FormatError naming the first field that does not
    fit."""
    from pydantic import ValidationError

    try:
        return cast(T, _adapter(cast(Any, kind)).validate_python(value, extra="forbid"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(shown(str(part)) for part in first["loc"]) or "the whole"
        raise FormatError(f"not a valid {kind.__name__}: {where}: {first['msg']}") from error


def shown(text: str) -> str:
    """`text` from outside, for a message: one plain line of limited length."""
    return plain_text.as_line(plain_text.shortened(text, _SHOWN_CHARACTERS))


def escaped(document: T) -> T:
    """`document`, a dataclass or a part of one, with all its strings as plain lines. The system's names of
    files and drives may hold anything, and peers accept only plain text."""
    value: Any = document
    if isinstance(value, str):
        value = plain_text.as_line(value)
    elif isinstance(value, tuple):
        value = tuple(escaped(part) for part in value)
    elif is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        changed = {name: new for name, part in parts.items() if (new := escaped(part)) != part}
        value = replace(value, **changed) if changed else value
    return cast(T, value)


def shortened(document: T) -> T:
    """`document`, a dataclass or a part of one, with all its strings cut to the length limit of `Text`."""
    value: Any = document
    if isinstance(value, str) and len(value) > TEXT_CHARACTERS_MAX:
        value = f"{value[: TEXT_CHARACTERS_MAX - 1]}…"
    elif isinstance(value, tuple):
        value = tuple(map(shortened, value))
    elif is_dataclass(value) and not isinstance(value, type):
        value = replace(
            value, **{field.name: shortened(getattr(value, field.name)) for field in fields(value)}
        )
    return cast(T, value)


def to_json(value: object) -> str:
    """One plain line of JSON, keys in the order given. Characters that are not plain are escaped, so nothing
    is lost."""
    return plain_text.as_json(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def to_ascii_json(value: object) -> str:
    """As `to_json`, with every non-ASCII character escaped. This is for streams that are not UTF-8, as JSON
    must be."""
    # Non-ASCII characters occur only inside strings.
    return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], to_json(value))


def from_json(text: str | bytes) -> object:
    """The JSON value of `text`. Raises FormatError."""
    try:
        return cast(object, json.loads(text))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from error
