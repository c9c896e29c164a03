"""Proofs depend on the token, on the direction and on every byte that both sides said."""

from __future__ import annotations

import hashlib
import hmac

from hypothesis import given
from hypothesis import strategies as st

from durability.protocol import auth


def test_the_client_proof_is_the_documented_hmac() -> None:
    """The construction in docs/reference/protocol.md, written out by hand, gives the same proof."""
    parts = b"\x00\x00\x00\x11durability client" + b"\x00\x00\x00\x02hi" + b"\x00\x00\x00\x03you"
    expected = hmac.new(b"token", parts, hashlib.sha256).digest()
    assert auth.client_mac(b"token", hello=b"hi", challenge=b"you") == expected


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40), st.data())
def test_no_other_token_direction_or_transcript_has_the_same_proof(
    token: bytes, hello: bytes, challenge: bytes, data: st.DataObject
) -> None:
    """A proof cannot be reflected, moved to other frames, or made from a transcript cut elsewhere."""
    proof = auth.client_mac(token, hello=hello, challenge=challenge)
    assert auth.equal(proof, auth.client_mac(token, hello=hello, challenge=challenge))
    place = data.draw(st.integers(0, len(hello + challenge)))
    joined = hello + challenge
    others = [
        auth.server_mac(token, hello=hello, challenge=challenge),
        auth.client_mac(token + b"x", hello=hello, challenge=challenge),
        auth.client_mac(token, hello=hello + b"x", challenge=challenge),
    ]
    if place != len(hello):
        others.append(auth.client_mac(token, hello=joined[:place], challenge=joined[place:]))
    assert not any(auth.equal(proof, other) for other in others)


def test_a_resume_proof_holds_for_one_run_on_one_connection() -> None:
    """What was heard on one connection resumes nothing on another."""
    proof = auth.resume_proof(b"secret", run=1, client_nonce=b"c", server_nonce=b"s")
    assert proof == auth.resume_proof(b"secret", run=1, client_nonce=b"c", server_nonce=b"s")
    assert proof != auth.resume_proof(b"secret", run=2, client_nonce=b"c", server_nonce=b"s")
    assert proof != auth.resume_proof(b"secret", run=1, client_nonce=b"c", server_nonce=b"t")
    assert proof != auth.resume_proof(b"secret", run=1, client_nonce=b"d", server_nonce=b"s")
    assert proof != auth.resume_proof(b"other", run=1, client_nonce=b"c", server_nonce=b"s")
