"""The shared token as text: one line of a file that both machines have.

Refuses a token that could be guessed, and a file that holds something else.
"""

from __future__ import annotations

from durability.errors import SetupError

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
