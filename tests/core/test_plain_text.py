"""The rule for strings from elsewhere: what is never printed, and that all else stays as it is."""

from __future__ import annotations

import json
import os
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability import plain_text
from durability.formats.documents import from_json, to_json

NEVER = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
SHOWN = set(
    map(chr, (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD))
)  # Cf with a sign
INVISIBLE = "\u034f\u115f\u1160\u17b4\u180b\u3164\ufe0f\uffa0\ufffe\U0001ffff\U000e0100"
anything = st.text(st.characters(exclude_categories=()))


@pytest.mark.slow
def test_no_character_of_the_kinds_that_are_never_printed_is_plain() -> None:
    """Characters of the categories that are never printed are not plain, except the few that show a sign."""
    every = map(chr, range(0x110000))
    plain = {one for one in every if unicodedata.category(one) in NEVER and plain_text.is_line(one)}
    assert plain <= SHOWN


@pytest.mark.parametrize("one", INVISIBLE)
def test_what_shows_nothing_is_not_plain(one: str) -> None:
    """Two names that look the same are not the same."""
    assert not plain_text.is_text(one)


@pytest.mark.parametrize(
    "text", ["", "Samsung SSD 990 PRO", "naïve 漢字 עברית عربي हिन्दी 🙂 \u00a0 a\u0301", *sorted(SHOWN)]
)
def test_writing_stays_as_it_is(text: str) -> None:
    """Letters of all scripts, marks above them, signs and blanks are not touched."""
    assert plain_text.is_line(text)
    assert plain_text.as_line(text) is text


@given(anything)
def test_whatever_it_was_it_is_plain_afterwards(text: str) -> None:
    """It can be encoded, is plain for the wire as well, and is the same if it was plain; so a second time
    changes nothing."""
    line, lines = plain_text.as_line(text), plain_text.as_text(text)
    for made in (line, lines):
        made.encode()
        assert not any(unicodedata.category(one) in NEVER for one in made if one not in SHOWN | {"\n"})
    assert plain_text.is_line(line) and "\n" not in line
    assert plain_text.is_text(lines) and lines.count("\n") == text.count("\n")
    assert plain_text.as_line(line) == line and plain_text.as_text(lines) == lines
    assert (line == text) == plain_text.is_line(text)
    assert (lines == text) == plain_text.is_text(text)


@given(st.binary())
def test_any_name_of_a_file_can_be_printed(name: bytes) -> None:
    """Bytes that are not UTF-8 read as escapes."""
    plain_text.as_line(os.fsdecode(name)).encode()
    assert plain_text.as_line(os.fsdecode(b"a\xff\xc3\xa9")) == r"a\xffé"


@given(anything, anything)
def test_json_is_plain_and_says_the_same(key: str, text: str) -> None:
    """No byte of it moves a cursor, and nothing is lost: programs read what there was."""
    document = to_json({key: text})
    assert plain_text.is_line(document)
    document.encode()
    assert from_json(document) == json.loads(json.dumps({key: text}))
