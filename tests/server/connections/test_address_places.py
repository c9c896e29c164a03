"""Places by address, against a plain count."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability_server.connections.address_places import AddressPlaces


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef"))))
def test_the_address_with_most_places_is_known(steps: list[tuple[bool, str]]) -> None:
    """After any takes and returns, `most` is an address that no other exceeds."""
    places, plain = AddressPlaces(), Counter[str]()
    for takes, address in steps:
        if takes:
            places.take(address)
            plain[address] += 1
        elif plain[address]:
            places.give_back(address)
            plain[address] -= 1
        assert places.taken == plain.total()
        assert all(places.held(one) == plain[one] for one in "abcdef")
        if places.taken:
            assert plain[places.most()] == max(plain.values())


def test_of_equals_the_one_that_has_held_so_many_longest_is_named() -> None:
    """So with one place each, the oldest address makes way."""
    places = AddressPlaces()
    for address in ("a", "b", "c"):
        places.take(address)
    assert places.most() == "a"
    places.give_back("a")
    assert places.most() == "b"
