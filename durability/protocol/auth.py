"""Who is at the other end: what a client shows, and what the server keeps to recognise it.

The server knows itself by its certificate (`secure_stream`); within TLS the client says its id and shows its
secret. The server keeps a hash only, one label for each kind of secret, so that what its store holds opens
nothing. Secrets are random and long, so a plain SHA-256 is enough. A run has a secret as well: it tells two
processes of one client apart.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, Literal, TypeAlias, get_args

APPLICATION = "durability"  # names the directories of state and configuration
SECRET_BYTES = 32  # of a client and of a run

# What a client may do. client: runs of its own. viewer: list and show all runs. operator: everything.
Role: TypeAlias = Literal["client", "viewer", "operator"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)


def client_hash(secret: bytes) -> bytes:
    """What the server keeps of a client's secret."""
    return _hash(b"durability client", secret)


def invitation_hash(secret: bytes) -> bytes:
    """What the server keeps of the secret in a join code."""
    return _hash(b"durability invitation", secret)


def equal(expected: bytes, received: bytes) -> bool:
    """Whether two secrets or hashes are the same, in a time that does not tell where they differ."""
    return hmac.compare_digest(expected, received)


def _hash(label: bytes, secret: bytes) -> bytes:
    return hashlib.sha256(len(label).to_bytes(4, "big") + label + secret).digest()
