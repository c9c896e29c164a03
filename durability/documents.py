"""Documents: dataclasses as plain JSON-like values and back, checked; the one importer of pydantic.

Facts, cases and verdicts cross the wire and lie in files and databases as such values. Everything that
comes in is checked against the dataclass, field by field; what does not fit is a FormatError that names the
field.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar, cast

from pydantic import Field, TypeAdapter, ValidationError

from durability.errors import FormatError
from durability.packing import Value

T = TypeVar("T")

# Types of fields that are checked more closely than by their type alone.
Natural: TypeAlias = Annotated[int, Field(strict=True, ge=0, lt=1 << 62)]
Finite: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]  # and not negative
Text: TypeAlias = Annotated[str, Field(max_length=4096)]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def to_value(document: object) -> dict[str, Value]:
    """A dataclass instance as dicts, lists, strings, numbers, bools and None."""
    return cast("dict[str, Value]", _adapter(cast(Any, type(document))).dump_python(document, mode="json"))


def from_value(kind: type[T], value: object) -> T:
    """The dataclass `kind` that `value` holds. Raises FormatError naming the first unfit field."""
    try:
        return cast(T, _adapter(cast(Any, kind)).validate_python(value, extra="forbid"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise FormatError(f"not a valid {kind.__name__}: {where}: {first['msg']}") from error


def to_json(value: object) -> str:
    """One line of JSON, keys in the order given."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def from_json(text: str | bytes) -> object:
    """The JSON value of `text`. Raises FormatError."""
    try:
        return cast(object, json.loads(text))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from error
