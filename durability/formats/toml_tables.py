"""TOML files that people write: tables whose keys are taken one by one, so that no key is left over.

An unknown key is rejected with the nearest known one, and a value of a wrong type with the required type. So
typing errors are never silently ignored. This module reads no files: it takes text.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from durability.errors import UsageError

T = TypeVar("T")


def read_tables(text: str, name: str) -> Table:
    """The whole of a file; messages call it `name`. Raises UsageError."""
    try:
        return Table(name, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not TOML: {error}") from error


class Table:
    """A table of the file whose keys are taken one by one; `end` rejects the keys that were not taken. Every
    method raises UsageError with the table's name, the key and the required value."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name = name
        self._values = values
        self._known: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def text(self, key: str, default: str) -> str:
        """A text."""
        return self._take(key, default, str, "a text in quotes")

    def flag(self, key: str) -> bool:
        """True or false; false if the key is missing."""
        return self._take(key, False, bool, "true or false")

    def truth(self, key: str, *, default: bool) -> bool:
        """True or false; `default` if the key is missing."""
        return self._take(key, default, bool, "true or false")

    def whole(self, key: str, default: int, *, most: int) -> int:
        """A whole number from 0 to `most`."""
        value = self._take(key, default, int, "a whole number")
        if isinstance(value, bool) or not 0 <= value <= most:
            raise UsageError(f"{self.name} {key} is {value!r}: a whole number of 0 to {most} is needed")
        return value

    def number(self, key: str, default: float) -> float:
        """A number."""
        return _as_number(self._take(key, default, (int, float), "a number"), f"{self.name} {key}")

    def interval(self, key: str, default: tuple[float, float]) -> tuple[float, float]:
        """A pair of numbers: the shortest and the longest."""
        pair = self._take(key, list(default), list, "a pair such as [5, 90]")
        if len(pair) != 2:
            raise UsageError(f"{self.name} {key} has {len(pair)} values: shortest and longest are needed")
        low, high = (_as_number(value, f"{self.name} {key}") for value in pair)
        return low, high

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, empty if the key is missing."""
        texts: list[Any] = self._take(key, [], list, 'a list such as ["b", "c"]')
        if not all(isinstance(text, str) for text in texts):
            raise UsageError(f'{self.name} {key} is not a list of texts such as ["b", "c"]')
        return tuple(texts)

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> Any:
        """One text of a fixed set."""
        value = self.text(key, default)
        if value != default and value not in choices:
            raise UsageError(
                f"{self.name} {key} = {value!r} is not one of {', '.join(filter(None, choices))}"
            )
        return value

    def table(self, key: str) -> Table:
        """A table, empty if the key is missing."""
        return Table(f"[{key}]", self._take(key, {}, dict, f"a table: [{key}]"))

    def tables(self, key: str) -> tuple[Table, ...]:
        """One table, or an array of tables, as a tuple; empty if the key is missing."""
        values: Any = self._take(key, [], (dict, list), f"a table: [[{key}]]")
        several = values if isinstance(values, list) else [values]
        if not all(isinstance(value, dict) for value in several):
            raise UsageError(f"{self.name} {key} is not a table: write [[{key}]]")
        return tuple(Table(f"[[{key}]]" if isinstance(values, list) else f"[{key}]", one) for one in several)

    def rest(self) -> dict[str, str]:
        """All keys that were not taken, as text."""
        rest = {}
        for key, value in self._values.items():
            if key in self._known:
                continue
            if not isinstance(value, str | int | float | bool):
                raise UsageError(f"{self.name} {key} is neither a text, a number, nor true or false")
            rest[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return rest

    def end(self) -> None:
        """Reject every key that was not taken."""
        for key in self._values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, n=1)
                meant = f": is {near[0]} meant?" if near else f". It knows {', '.join(sorted(self._known))}"
                raise UsageError(f"{self.name} does not know {key}{meant}")

    def _take(self, key: str, default: T, kind: type | tuple[type, ...], what: str) -> T:
        self._known.append(key)
        value = self._values.get(key, default)
        if not isinstance(value, kind):
            raise UsageError(f"{self.name} {key} is {value!r}: {what} is needed")
        return cast(T, value)


def _as_number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        raise UsageError(f"{what} is {value!r}: a number is needed")
    return float(value)
