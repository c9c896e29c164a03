"""The server's key and self-signed certificate. Clients identify the server by its fingerprint.

They are created once and kept in the store. So a restored backup, or several servers on one store, are the
same server to its clients. No authority signs the certificate, and its name and dates are never checked.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from durability.protocol.auth import APPLICATION
from durability.protocol.secure_stream import server_context

_FROM, _TO = datetime(2020, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)  # never checked


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerIdentity:
    """The key and the certificate, as PEM."""

    key: bytes
    certificate: bytes

    @property
    def fingerprint(self) -> bytes:
        """The SHA-256 of the certificate."""
        return x509.load_pem_x509_certificate(self.certificate).fingerprint(hashes.SHA256())

    def context(self) -> ssl.SSLContext:
        """The TLS context of the server."""
        context = server_context()
        with _as_file(self.key + self.certificate) as file:  # `ssl` only reads files
            context.load_cert_chain(file)
        return context


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """The name of a file with `data` that no other user can open. The file is in memory, so that a killed
    process leaves no file, except on systems without such files."""
    if not hasattr(os, "memfd_create") or not Path("/proc/self/fd").is_dir():
        with tempfile.TemporaryDirectory(prefix="durability-") as directory:
            file = Path(directory, "identity.pem")
            file.write_bytes(data)
            yield str(file)
        return
    with os.fdopen(os.memfd_create(f"{APPLICATION}-identity", os.MFD_CLOEXEC), "wb") as memory:
        memory.write(data)
        memory.flush()
        yield f"/proc/self/fd/{memory.fileno()}"


def new_identity() -> ServerIdentity:
    """Creates a key and its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, APPLICATION)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_TO)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return ServerIdentity(
        key=key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        certificate=certificate.public_bytes(pem),
    )
