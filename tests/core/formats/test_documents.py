"""Documents: what a stranger wrote is plain in messages, and names of any bytes have a text."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from durability import plain_text
from durability.errors import FormatError
from durability.formats.documents import Text, escaped, from_value, shown, to_json, to_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    name: Text
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    name: str | None
    leaves: tuple[Leaf, ...]


@given(st.text(max_size=100))
def test_what_is_shown_is_a_line_that_prints(text: str) -> None:
    """Any text is shown as one printable line; short printable text is not changed."""
    said = shown(text)
    assert plain_text.is_line(said) and len(said) <= 600
    if plain_text.is_line(text) and len(text) <= 60:
        assert said == text


def test_escapes_and_long_texts_are_shown_in_short() -> None:
    """Nothing reaches the terminal that moves its cursor or turns the direction of writing."""
    assert shown("\x1b[2J\n\u202ex") == r"\x1b[2J\n\u202ex"
    assert shown("\udcff é") == r"\xff é"
    assert shown("x" * 61) == "x" * 59 + "…"


def test_a_message_names_a_strange_key_in_plain_words() -> None:
    """The error escapes the keys in a field's path, because they come from the other side."""
    with pytest.raises(FormatError, match=r"not a valid Leaf: \\x1b\[31mred: "):
        from_value(Leaf, {"name": "a", "\x1b[31mred": 1})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    number: int = 0
    measured: float | None = 0.5
    flag: bool = False
    within: tuple[Kinds, ...] = ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": "7"},
        {"number": 7.0},
        {"number": True},
        {"number": 1 << 64},
        {"number": -(1 << 63) - 1},
        {"measured": "0.5"},
        {"measured": "nan"},
        {"measured": float("inf")},
        {"flag": 1},
        {"flag": "yes"},
    ],
)
def test_values_are_of_exactly_their_types(wrong: dict[str, Any]) -> None:
    """A string is not read as a number, nor a number as a flag, at any depth; an integer has 64 bits."""
    right: dict[str, Any] = {"number": (1 << 64) - 1, "measured": 2, "flag": True}
    assert from_value(Kinds, {"within": [right]}) == Kinds(within=(Kinds(**right),))
    for value in (wrong, {"within": [{"within": [right, wrong]}]}):
        with pytest.raises(FormatError, match=next(iter(wrong))):
            from_value(Kinds, value)


@pytest.mark.slow
@given(st.binary(max_size=40))
def test_bytes_that_are_no_text_are_escaped_wherever_they_stand(name: bytes) -> None:
    """Text stays as it is; the rest reads as people type it."""
    decoded = os.fsdecode(name)
    tree = Tree(name=decoded, leaves=(Leaf(name=decoded, numbers=(1, 2)), Leaf(name="é\\xff")))
    kept = escaped(tree)
    assert kept.name == kept.leaves[0].name == plain_text.as_line(name.decode("utf-8", "backslashreplace"))
    assert kept.leaves[1] is not None and kept.leaves[1].name == "é\\xff"
    assert from_value(Tree, to_value(kept)) == kept
    to_json(to_value(kept)).encode()


def test_a_document_without_such_bytes_is_the_same() -> None:
    """None, numbers and text are not touched."""
    tree = Tree(name=None, leaves=(Leaf(name="naïve", numbers=(3,)),))
    assert escaped(tree) is tree


def test_a_long_list_of_wrong_members_is_one_error() -> None:
    """Each error of a list costs time, and a stranger's list may be long."""
    with pytest.raises(FormatError, match="leaves") as caught:
        from_value(Tree, {"name": None, "leaves": [""] * 1000})
    cause = caught.value.__cause__
    assert isinstance(cause, ValidationError) and cause.error_count() == 1
