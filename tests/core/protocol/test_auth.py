"""What the server keeps of a secret tells one from another, and is of no other use."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from durability.protocol import auth


def test_a_hash_is_as_documented() -> None:
    """The construction in docs/reference/protocol.md, written out by hand, gives the same hash."""
    expected = hashlib.sha256(b"\x00\x00\x00\x11durability client" + b"secret").digest()
    assert auth.client_hash(b"secret") == expected


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_no_other_secret_or_kind_of_secret_has_the_same_hash(secret: bytes, other: bytes) -> None:
    """A secret's hash as an invitation differs from its hash as a client, and different secrets have
    different hashes."""
    assert auth.equal(auth.client_hash(secret), auth.client_hash(secret))
    assert auth.client_hash(secret) != auth.invitation_hash(secret)
    assert auth.equal(auth.client_hash(secret), auth.client_hash(other)) is (secret == other)
