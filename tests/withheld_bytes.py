"""A client that withholds a byte: it sends the header of a TLS KeyUpdate without its body.

Until the body comes, OpenSSL says nothing to this client. The record is made here, because OpenSSL makes none
that is not whole.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from durability.errors import ProtocolError
from durability.protocol.secure_stream import SecureStream, client_context

_HANDSHAKE, _APPLICATION_DATA = b"\x16", b"\x17"
_KEY_UPDATE_OF_ONE_BYTE = bytes([24, 0, 0, 1])


class WithholdingStream:
    """The client's end of TLS, which knows how many records it has sent. `keys`: a file for its secrets."""

    def __init__(self, fingerprint: bytes, keys: Path) -> None:
        context = client_context()
        context.keylog_filename = str(keys)
        self._keys = keys
        self._stream = SecureStream.client_end(context, fingerprint=fingerprint)
        self._sent = 0

    @property
    def failure(self) -> ProtocolError | None:
        """As of `Stream`."""
        return self._stream.failure

    @failure.setter
    def failure(self, failure: ProtocolError | None) -> None:
        self._stream.failure = failure

    @property
    def open(self) -> bool:
        """Whether the handshake is over."""
        return self._stream.open

    def receive(self, data: bytes | memoryview) -> bytes:
        """As of `Stream`."""
        return self._stream.receive(data)

    def send(self, data: bytes) -> None:
        """As of `Stream`, for what fits one record."""
        assert 0 < len(data) <= 1 << 14
        self._sent += 1
        self._stream.send(data)

    def outgoing(self) -> bytes:
        """As of `Stream`."""
        return self._stream.outgoing()

    def part_of_key_update(self) -> bytes:
        """The next record, after which no other is right."""
        secret = next(
            bytes.fromhex(line.split()[2])
            for line in self._keys.read_text().splitlines()
            if line.startswith("CLIENT_TRAFFIC_SECRET_0")
        )
        found = self._stream._tls.cipher()
        assert found is not None
        cipher = found[0]
        hash_ = hashes.SHA384() if "SHA384" in cipher else hashes.SHA256()
        key_bytes = 16 if "AES_128" in cipher else 32
        key, iv = (_expanded(secret, *of, hash_) for of in ((b"key", key_bytes), (b"iv", 12)))
        nonce = bytes(a ^ b for a, b in zip(iv, self._sent.to_bytes(12, "big"), strict=True))
        inner = _KEY_UPDATE_OF_ONE_BYTE + _HANDSHAKE
        head = _APPLICATION_DATA + b"\x03\x03" + (len(inner) + 16).to_bytes(2, "big")
        encryption = ChaCha20Poly1305 if "CHACHA" in cipher else AESGCM
        return head + encryption(key).encrypt(nonce, inner, head)


def _expanded(secret: bytes, name: bytes, length: int, hash_: hashes.HashAlgorithm) -> bytes:
    """HKDF-Expand-Label of RFC 8446, without a context."""
    label = b"tls13 " + name
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
    return HKDFExpand(hash_, length, info).derive(secret)
