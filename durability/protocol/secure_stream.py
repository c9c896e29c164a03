"""TLS 1.3 over a byte stream, without a socket: one end of it as a state machine.

The caller passes received data to `receive`, which returns the peer's data, and writes what `outgoing`
returns. The caller keeps the socket. So it still sees how a connection ended (FIN, RST or silence), which is
evidence, and it decides when TLS begins. OpenSSL does the rest, including all cryptography.

The client recognises the server only by the SHA-256 of its certificate: no name, no authority, no date.
`PlainStream` replaces it if there is no network between the two ends.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from typing import Protocol

from durability.errors import ProtocolError
from durability.protocol import join_code

FIRST_BYTE = 0x16  # first byte of every TLS connection: the record type of a handshake
FINGERPRINT_BYTES = 32  # length of a certificate's SHA-256
_READ_BYTES = 64 << 10


class Stream(Protocol):
    """Protects the bytes of a connection, if they need it. `failure`: the error that broke it; after that,
    nothing is received or sent."""

    failure: ProtocolError | None

    def receive(self, data: bytes | memoryview) -> bytes:
        """Take in data from the network. Returns the peer's data, up to a `failure`."""

    def send(self, data: bytes) -> None:
        """Send `data` to the peer, unless there is a `failure` before or during this call. Raises nothing."""

    def outgoing(self) -> bytes:
        """The bytes to write to the network now. Each byte is returned once."""


class PlainStream:
    """No protection at all, for a socket without a network behind it."""

    def __init__(self) -> None:
        self.failure: ProtocolError | None = None
        self._outgoing = bytearray()

    def receive(self, data: bytes | memoryview) -> bytes:
        """The same bytes."""
        return bytes(data)

    def send(self, data: bytes) -> None:
        """Queue the same bytes."""
        self._outgoing += data

    def outgoing(self) -> bytes:
        """See `Stream`."""
        data = bytes(self._outgoing)
        self._outgoing.clear()
        return data


class SecureStream:
    """One end of a TLS connection, made by `client_end` or `server_end`."""

    def __init__(self, context: ssl.SSLContext, *, fingerprint: bytes | None) -> None:
        server_side = fingerprint is None
        self._incoming = ssl.MemoryBIO()
        self._encrypted = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._encrypted, server_side=server_side)
        self._fingerprint = fingerprint
        self._unsent = bytearray()  # data passed to `send` before the handshake was over
        self._is_over = False  # the peer has announced that it will send no more
        self.open = False
        self.failure: ProtocolError | None = None
        if not server_side:
            self._shake_hands()

    @classmethod
    def client_end(cls, context: ssl.SSLContext, *, fingerprint: bytes) -> SecureStream:
        """The client's end. `fingerprint`: the SHA-256 of the server's certificate, or as much of its
        beginning as a join code has. No client accepts an arbitrary certificate. Raises ProtocolError for a
        fingerprint of another length."""
        if not join_code.CODE_FINGERPRINT_BYTES <= len(fingerprint) <= FINGERPRINT_BYTES:
            raise ProtocolError(
                f"the fingerprint of the server's certificate has {len(fingerprint)} bytes, expected"
                f" {FINGERPRINT_BYTES}, or the {join_code.CODE_FINGERPRINT_BYTES} of a join code: join again"
            )
        return cls(context, fingerprint=fingerprint)

    @classmethod
    def server_end(cls, context: ssl.SSLContext) -> SecureStream:
        """The server's end. A client authenticates by its secret, not by a certificate."""
        return cls(context, fingerprint=None)

    @property
    def certificate_fingerprint(self) -> bytes:
        """The SHA-256 of the peer's certificate, on the client after the handshake; b"" without a
        certificate."""
        certificate = self._tls.getpeercert(binary_form=True)
        return hashlib.sha256(certificate).digest() if certificate else b""

    def receive(self, data: bytes | memoryview) -> bytes:
        """See `Stream`. Fails if the data are not TLS 1.3, were altered on the way, or come from a server
        with another certificate. Also returns b"" after the peer has announced that it will send no more.
        Later data are dropped, because OpenSSL would never accept them."""
        if self.failure is not None or self._is_over:
            return b""
        self._incoming.write(data)
        heard: list[bytes] = []
        try:
            if not self.open:
                self._shake_hands()
            # A read without data to return costs as much as a read of a record.
            while self.open and (self._incoming.pending or self._tls.pending()):
                part = self._tls.read(_READ_BYTES)
                if not part:
                    self._is_over = True
                    break
                heard.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._is_over = True
        except ssl.SSLError as error:
            self.failure = ProtocolError(self._what_failed(error.reason or str(error)))
        except ProtocolError as error:
            self.failure = error
        return heard[0] if len(heard) == 1 else b"".join(heard)

    def send(self, data: bytes) -> None:
        """See `Stream`. Data passed during the handshake are sent after it. Fails if the peer has begun a
        change of its keys and withholds the rest, because OpenSSL sends nothing meanwhile."""
        if self.failure is not None:
            return
        if not self.open:
            self._unsent += data
            return
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            self.failure = ProtocolError(self._what_failed(error.reason or str(error)))

    def outgoing(self) -> bytes:
        """See `Stream`."""
        return self._encrypted.read()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        if self._fingerprint is not None:
            found = self.certificate_fingerprint
            if not hmac.compare_digest(found[: len(self._fingerprint)], self._fingerprint):
                raise ProtocolError(_whose_certificate(found, self._fingerprint))
        self.open = True
        if self._unsent:
            self.send(bytes(self._unsent))
            self._unsent.clear()

    def _what_failed(self, reason: str) -> str:
        """An error message. `reason`: OpenSSL's name of the error."""
        if self.open:
            return (
                "data of this connection were altered, lost or repeated on the way (TLS:"
                f" {reason}): check what is between the two machines"
            )
        return (
            f"no connection in TLS 1.3 came about (TLS: {reason}): the other end is not durability of this"
            " release, or a machine between the two alters what they say"
        )


def _whose_certificate(found: bytes, known: bytes) -> str:
    wanted, force = "the one in the join code begins with", ""
    if len(known) == len(found):
        wanted, force = "that of the server that this machine has joined is", " with --force"
    return (
        f"another server answers: its certificate has the SHA-256 fingerprint {found.hex()}, and {wanted}"
        f" {known.hex()}. Nothing was said to it. Check the address, and what is between the two machines. If"
        " the server was set up anew, type `durability clients invite` on its machine and join again"
        f"{force}"
    )


def client_context() -> ssl.SSLContext:
    """The context of a `SecureStream` on the client."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the fingerprint is stronger proof than any authority
    return context


def server_context() -> ssl.SSLContext:
    """The context of a `SecureStream` on the server, still without a certificate."""
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # no session is resumed: each connection authenticates
    return context


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context
