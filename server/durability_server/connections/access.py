"""Who may talk to this server: the token, the certificate, and the line to type on the other machine.

What outlives a server lies in one directory, XDG_STATE_HOME/durability. A missing token is made, for its
owner's eyes only; one that is there is never replaced.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
import socket
import ssl
from pathlib import Path

from platformdirs import user_state_path

from durability.errors import SetupError, UsageError
from durability.protocol.auth import APPLICATION, TOKEN_FILE_NAME, parse_token
from durability.units import format_address, is_loopback

_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.S)
_ELSEWHERE = ("192.0.2.1", 9)  # TEST-NET-1: asked for a route, never sent to


def state_directory() -> Path:
    """The directory of store and token, made if it is missing. Raises SetupError."""
    path = user_state_path(APPLICATION)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"cannot create the state directory {path}: {error.strerror}") from error
    return path


def default_store_url() -> str:
    """The SQLite store in the state directory."""
    return f"sqlite:///{state_directory() / 'server.sqlite'}"


def load_token(token_file: Path | None) -> tuple[bytes, Path]:
    """The token and its file, which is made (mode 0600) if it does not exist. Raises SetupError."""
    path = token_file or state_directory() / TOKEN_FILE_NAME
    try:
        _make_token(path)
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise SetupError(f"cannot read or create the token file {path}: {error.strerror}") from error
    return parse_token(text, str(path)), path


def _make_token(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(16) + "\n")


def tls_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The context of a TLS listener, or None without a certificate. Raises UsageError or SetupError."""
    if certificate is None and key is not None:
        raise UsageError("--tls-key needs --tls-cert")
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError included
        raise SetupError(f"cannot use the certificate {certificate} with its key: {error}") from error
    return context


def certificate_fingerprint(certificate: Path) -> str:
    """The SHA-256, in hexadecimal, of the first certificate in a PEM file that `tls_context` could use."""
    pem = _CERTIFICATE.search(certificate.read_text(encoding="ascii", errors="replace"))
    assert pem is not None
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem[0])).hexdigest()


def client_instructions(
    host: str, port: int, *, token_file: Path, certificate: Path | None, show_token: bool
) -> str:
    """The lines to type on the machine under test. `show_token`: they have the token itself, for a terminal;
    else they name its file, because what a service prints is kept in logs."""
    local = is_loopback(host)
    reachable = _own_address() if host in _ANY_ADDRESS else host
    run = f"durability run TARGET --server {format_address(reachable, port)}"
    if not local:
        run += " --token-file durability.token"
    elif token_file != user_state_path(APPLICATION) / TOKEN_FILE_NAME:
        run += f" --token-file {shlex.quote(str(token_file.absolute()))}"
    if certificate is not None:
        run += f" --tls-fingerprint {certificate_fingerprint(certificate)}"
    if local:
        return f"On this machine:\n  {run}"
    if show_token:
        token = parse_token(token_file.read_text(encoding="ascii"), str(token_file)).decode()
        bring = f"(umask 077; echo {shlex.quote(token)} > durability.token)"
    else:
        bracketed = f"[{reachable}]" if ":" in reachable else reachable
        bring = f"scp -p {shlex.quote(f'{bracketed}:{token_file.absolute()}')} durability.token"
    return f"On the machine under test:\n  {bring}\n  {run}"


def _own_address() -> str:
    """The address that this machine uses towards others, or its name if it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
