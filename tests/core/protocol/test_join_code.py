"""A join code survives being read out and typed; what is not quite one is refused before anything is sent."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.errors import UsageError
from durability.protocol.join_code import CODE_FINGERPRINT_BYTES, CODE_SECRET_BYTES, JoinCode, parse_join_code

CODES = st.builds(
    JoinCode,
    secret=st.binary(min_size=CODE_SECRET_BYTES, max_size=CODE_SECRET_BYTES),
    fingerprint=st.binary(min_size=CODE_FINGERPRINT_BYTES, max_size=CODE_FINGERPRINT_BYTES),
)


DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"


@pytest.mark.slow
@given(CODES, st.data())
def test_a_code_can_be_typed_as_people_type(code: JoinCode, data: st.DataObject) -> None:
    """Small letters, spaces or dashes for hyphens or none, and look-alikes mean the same code."""
    text = str(code)
    assert re.fullmatch(r"([0-9A-HJKMNP-TV-Z]{5}-){7}[0-9A-HJKMNP-TV-Z]{5}", text)
    typed = "".join(data.draw(st.sampled_from(_typed_as(character))) for character in text)
    assert parse_join_code(f" {typed}\n") == code


def _typed_as(character: str) -> str:
    look_alikes = {"0": "0oO", "1": "1iIlL", "-": "- " + DASHES}
    return look_alikes.get(character, character + character.lower())


@pytest.mark.slow
@given(CODES, st.data())
def test_a_typing_error_is_found(code: JoinCode, data: st.DataObject) -> None:
    """One wrong character, or two neighbours exchanged, is refused; one of 65,000 may pass for a check."""
    plain = str(code).replace("-", "")
    at = data.draw(st.integers(0, len(plain) - 2))
    wrong = data.draw(st.sampled_from("23456789ABCDEFGHJKMNPQRSTVWXYZ"))
    for typed in (
        plain[:at] + wrong + plain[at + 1 :],
        plain[:at] + plain[at + 1] + plain[at] + plain[at + 2 :],
    ):
        if typed == plain:
            continue
        try:
            assert parse_join_code(typed) != code
        except UsageError as error:
            assert "typing error" in str(error)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this one has 0"),
        ("a" * 39, "this one has 39"),
        ("a" * 41, "this one has 41"),
        ("u" * 40, "no 'u'"),
        ("ß" * 40, "no 'ß'"),
        ("0" * 40, "typing error"),
    ],
)
def test_what_is_no_code_is_refused_in_words(text: str, message: str) -> None:
    """The message says what is wrong with it."""
    with pytest.raises(UsageError, match=message):
        parse_join_code(text)


@pytest.mark.parametrize("dash", DASHES)
def test_a_program_may_have_made_dashes_of_the_hyphens(dash: str) -> None:
    """A join code is accepted if a chat, mail or word processor has turned its hyphens into dashes."""
    code = JoinCode(secret=bytes(range(10)), fingerprint=bytes(range(100, 113)))
    assert parse_join_code(str(code).replace("-", dash)) == code


def test_the_format_stays() -> None:
    """A code of today is read by later releases."""
    code = JoinCode(secret=bytes(range(10)), fingerprint=bytes(range(100, 113)))
    assert str(code) == "000G4-0R40M-30E20-9CHJP-CSV8D-5N6PV-3DDSQ-Q1AM3"
    assert parse_join_code("000G4-0R40M-30E20-9CHJP-CSV8D-5N6PV-3DDSQ-Q1AM3") == code
