"""Where a client finds the token that it shares with the server."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_state_path

from durability.errors import SetupError
from durability.protocol.tokens import APPLICATION, TOKEN_FILE_NAME, parse_token


def read_token(token_file: Path | None) -> bytes:
    """The token in `token_file`, else where `serve` of the same user puts it. Raises SetupError."""
    path = token_file or user_state_path(APPLICATION) / TOKEN_FILE_NAME
    try:
        return parse_token(path.read_text(encoding="ascii", errors="replace"), str(path))
    except FileNotFoundError as error:
        raise SetupError(
            f"the token file {path} does not exist: `durability serve` prints how to copy its token;"
            " name the copy with --token-file"
        ) from error
    except OSError as error:
        raise SetupError(f"cannot read the token file {path}: {error.strerror}") from error
