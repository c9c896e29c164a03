"""Entries of a campaign's log: what is written is read again, whatever happened."""

from __future__ import annotations

import typing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.campaign_file import read_campaign
from durability.campaign.log_entries import (
    Began,
    CycleEnded,
    Entry,
    Happening,
    entry_from_value,
    entry_to_value,
)
from durability.errors import FormatError
from durability.formats.packing import pack, unpack
from tests.core.campaign.definition.test_campaign_file import FILE_SYSTEM

NATURALS = st.integers(0, (1 << 62) - 1)
FINITES = st.floats(0, 1e18)
TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20)
BEGAN = Began(settings=read_campaign(FILE_SYSTEM, name="x", seed=7), check_only=False)
KINDS = tuple(kind for kind in typing.get_args(Happening) if kind is not Began)


def of_type(kind: typing.Any) -> st.SearchStrategy[typing.Any]:
    """Any value of a type as the entries have them."""
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if kind in (int, float, str, bool):
        return {int: NATURALS, float: FINITES, str: TEXTS, bool: st.booleans()}[kind]
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return st.sampled_from(parts)
    if origin is tuple:
        return st.lists(of_type(parts[0]), max_size=3).map(tuple)
    if parts:
        return st.one_of(*map(of_type, parts))
    if kind is type(None):
        return st.none()
    hints = typing.get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{name: of_type(hint) for name, hint in hints.items()})


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_entry_is_read_as_it_was_written(kind: type) -> None:
    """Through the bytes of the store and back."""

    @given(of_type(kind), NATURALS)
    def holds(happening: Happening, number: int) -> None:
        entry = Entry(number=number, at_ns=number, boot_id="b", wall="2026", happening=happening)
        assert entry_from_value(unpack(pack(entry_to_value(entry)))) == entry

    holds()


def entry(number: int, happening: Happening) -> Entry:
    """An entry of a log."""
    return Entry(number=number, at_ns=1, boot_id="boot", wall="", happening=happening)


def test_settings_are_read_as_they_were_written() -> None:
    """The first entry has the whole campaign file."""
    first = entry(1, BEGAN)
    assert entry_from_value(unpack(pack(entry_to_value(first)))) == first


def test_unknown_kinds_and_fields_are_refused() -> None:
    """A log of a later release is not half understood."""
    value = entry_to_value(entry(1, BEGAN))
    with pytest.raises(FormatError):
        entry_from_value({**value, "happening": {"kind": "exploded"}})
    with pytest.raises(FormatError):
        entry_from_value({**value, "more": 1})


def test_state_refuses_an_entry_that_does_not_follow() -> None:
    """A log with a gap, or an entry twice, is no log."""
    state = CampaignState()
    state.apply(entry(1, BEGAN))
    for number in (1, 3):
        with pytest.raises(FormatError, match="follows entry 1"):
            state.apply(replace(entry(1, BEGAN), number=number))


def test_state_refuses_the_end_of_a_cycle_that_has_not_begun() -> None:
    """So no cycle can be counted twice."""
    state = CampaignState()
    state.apply(entry(1, BEGAN))
    with pytest.raises(FormatError, match="has not begun"):
        state.apply(entry(2, CycleEnded(cycle=1, drives=())))
