"""Who is at the other end: proofs that both sides know the token, and that a client began the run it resumes.

Every proof is an HMAC-SHA256 over a label of its own, then each part with its length in front. The
handshake's parts are the bodies of the Hello and Challenge frames as they crossed the wire, so nothing in
them can be changed on the way: not the versions offered, not the role, not a nonce. One label per direction
keeps a proof from being sent back to its maker. Proofs authenticate; they do not encrypt, that is TLS's part.

An empty token is how two sides agree to have none. It proves nothing. As text, the token is one line of a
file that both machines have; one that could be guessed, or a file that holds something else, is refused.
"""

from __future__ import annotations

import hashlib
import hmac

from durability.errors import SetupError

NONCE_BYTES = 32


def client_mac(token: bytes, *, hello: bytes, challenge: bytes) -> bytes:
    """What the client puts into `Proof`, from the bodies of both frames before it."""
    return _mac(token, b"durability client", hello, challenge)


def server_mac(token: bytes, *, hello: bytes, challenge: bytes) -> bytes:
    """What the server puts into `Welcome`, from the same two bodies."""
    return _mac(token, b"durability server", hello, challenge)


def resume_proof(secret: bytes, *, run: int, client_nonce: bytes, server_nonce: bytes) -> bytes:
    """What the client puts into `Resume`: `secret` is the run's, the nonces are those of the new
    connection."""
    return _mac(secret, b"durability resume", run.to_bytes(8, "big"), client_nonce, server_nonce)


def equal(expected: bytes, received: bytes) -> bool:
    """Whether two proofs are the same, in a time that does not tell where they differ."""
    return hmac.compare_digest(expected, received)


def _mac(key: bytes, label: bytes, *parts: bytes) -> bytes:
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in (label, *parts):
        mac.update(len(part).to_bytes(4, "big"))
        mac.update(part)
    return mac.digest()


APPLICATION = "durability"  # names the state directory, in which `serve` keeps store and token
TOKEN_FILE_NAME = "token"
TOKEN_CHARACTERS_MIN = 16


def parse_token(text: str, source: str) -> bytes:
    """The token that `text`, read from `source`, holds. Raises SetupError naming `source`."""
    token = text.strip()
    if len(token) < TOKEN_CHARACTERS_MIN or not token.isascii() or any(mark.isspace() for mark in token):
        raise SetupError(
            f"{source} holds no token: expected one line of at least {TOKEN_CHARACTERS_MIN} ASCII characters"
            f" without spaces, found {len(token)} characters"
        )
    return token.encode()
