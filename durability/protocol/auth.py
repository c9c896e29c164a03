"""Authentication: what a client shows, and what the server stores to recognise it.

The server is recognised by its certificate (`secure_stream`). Within TLS, the client sends its id and its
secret. The server stores only a hash, with one label per kind of secret, so that its stored data cannot be
used to log in. Secrets are random and long, so a plain SHA-256 is sufficient. A run has a secret as well,
which distinguishes two processes of one client.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, Literal, TypeAlias, get_args

APPLICATION = "durability"  # name of the directories of state and configuration
SECRET_BYTES = 32  # length of the secret of a client, and of a run

# What a client may do. client: make runs of its own. viewer: list and show all runs. operator: everything.
Role: TypeAlias = Literal["client", "viewer", "operator"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)


def client_hash(secret: bytes) -> bytes:
    """The hash of a client's secret that the server stores."""
    return _hash(b"durability client", secret)


def invitation_hash(secret: bytes) -> bytes:
    """The hash of a join code's secret that the server stores."""
    return _hash(b"durability invitation", secret)


def equal(expected: bytes, received: bytes) -> bool:
    """Whether two secrets or hashes are equal. The time of the comparison does not depend on where they
    differ."""
    return hmac.compare_digest(expected, received)


def _hash(label: bytes, secret: bytes) -> bytes:
    return hashlib.sha256(len(label).to_bytes(4, "big") + label + secret).digest()
