"""Where the server is, the token that both sides share, and how TLS proves the server."""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_state_path

from durability.errors import (
    SetupError,
    UsageError,
)
from durability.protocol.auth import APPLICATION, TOKEN_FILE_NAME, parse_token
from durability.units import format_address, parse_address


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the server is, and how each side knows the other. `fingerprint` is the certificate's SHA-256, if
    pinned."""

    host: str
    port: int
    token: bytes
    tls: ssl.SSLContext | None = None
    fingerprint: bytes | None = None

    def __str__(self) -> str:
        return format_address(self.host, self.port)


def endpoint(server: str, token: bytes, *, ca: Path | None, fingerprint: str | None) -> Endpoint:
    """The endpoint that the command line names: "HOST:PORT", and TLS where a CA file or a fingerprint is
    given.

    Raises UsageError and SetupError.
    """
    host, port = parse_address(server)
    context, pinned = _tls(ca, fingerprint)
    return Endpoint(host=host, port=port, token=token, tls=context, fingerprint=pinned)


def _tls(ca: Path | None, fingerprint: str | None) -> tuple[ssl.SSLContext | None, bytes | None]:
    if ca is not None and fingerprint is not None:
        raise UsageError("give either --tls-ca or --tls-fingerprint, not both")
    if fingerprint is not None:
        try:
            pinned = bytes.fromhex(fingerprint.replace(":", ""))
        except ValueError:
            pinned = b""
        if len(pinned) != hashlib.sha256().digest_size:
            raise UsageError(f"--tls-fingerprint {fingerprint!r} is not a SHA-256: 64 hexadecimal digits")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # the fingerprint says more than any authority
        return context, pinned
    if ca is not None:
        try:
            return ssl.create_default_context(cafile=str(ca)), None
        except (OSError, ssl.SSLError) as error:
            raise SetupError(f"cannot read certificates from {ca}: {error}") from error
    return None, None
