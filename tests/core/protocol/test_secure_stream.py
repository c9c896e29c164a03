"""Both ends of TLS in memory: any split of the bytes gives the same words, and no altered byte is
believed."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.errors import ProtocolError
from durability.protocol.secure_stream import FIRST_BYTE, PlainStream, SecureStream, client_context
from durability_server.access.server_identity import ServerIdentity, new_identity
from tests.withheld_bytes import WithholdingStream

CLIENT = client_context()
IDENTITY = new_identity()
SERVER = IDENTITY.context()


def ends(fingerprint: bytes = IDENTITY.fingerprint) -> tuple[SecureStream, SecureStream]:
    """Both ends of a connection, whose handshake has not begun."""
    client = SecureStream.client_end(CLIENT, fingerprint=fingerprint)
    return client, SecureStream.server_end(SERVER)


def carry(
    source: SecureStream,
    sink: SecureStream,
    change: Callable[[bytes], bytes] = lambda data: data,
    size: int = 1 << 20,
) -> bytes:
    """What `sink` hears of all that `source` has to say, in pieces of `size`."""
    data = change(source.outgoing())
    return b"".join(sink.receive(data[at : at + size]) for at in range(0, len(data), size))


def joined() -> tuple[SecureStream, SecureStream]:
    """Both ends after their handshake."""
    client, server = ends()
    for source, sink in ((client, server), (server, client), (client, server)):
        carry(source, sink)
    assert client.open and server.open
    return client, server


@pytest.mark.slow
@given(st.integers(1, 200), st.lists(st.binary(min_size=1, max_size=400), max_size=5))
def test_any_split_of_the_bytes_gives_the_same_words(size: int, said: list[bytes]) -> None:
    """Data sent before, during and after the handshake arrive once and in order, however they are split."""
    client, server = ends()
    client.send(b"at once;")
    heard = b""
    for source, sink in ((client, server), (server, client), (client, server)):
        heard += carry(source, sink, size=size)
    for words in said:
        client.send(words)
        heard += carry(client, server, size=size)
        server.send(words)
        assert carry(server, client, size=size) == words
    assert heard == b"at once;" + b"".join(said)


@pytest.mark.parametrize("length", [13, 32])
def test_the_fingerprint_may_be_its_first_bytes(length: int) -> None:
    """A join code has room for some of them only."""
    client, server = ends(IDENTITY.fingerprint[:length])
    carry(client, server)
    carry(server, client)
    assert client.open
    assert client.certificate_fingerprint == IDENTITY.fingerprint


@pytest.mark.parametrize("length", [0, 1, 12, 33])
def test_a_client_knows_enough_of_the_fingerprint(length: int) -> None:
    """There is no client that takes any certificate, or one that begins alike."""
    with pytest.raises(ProtocolError, match=f"has {length} bytes, expected 32"):
        ends((IDENTITY.fingerprint * 2)[:length])


def test_a_server_with_another_certificate_hears_nothing() -> None:
    """The client's data are never sent to a server with another certificate."""
    client, server = ends(new_identity().fingerprint)
    client.send(b"the secret of the client")
    carry(client, server)
    carry(server, client)
    assert IDENTITY.fingerprint.hex() in str(client.failure)
    assert not client.open
    assert b"secret" not in client.outgoing()
    client.send(b"more")
    assert client.outgoing() == b""


@pytest.mark.slow
@given(st.data())
def test_an_altered_byte_is_found(data: st.DataObject) -> None:
    """After one bit is flipped in either direction, no data of the message is used."""
    client, server = joined()
    source, sink = data.draw(st.sampled_from([(client, server), (server, client)]))
    source.send(b"acknowledged up to 7")

    def flip(data_: bytes) -> bytes:
        bit = data.draw(st.integers(0, 8 * len(data_) - 1))
        return bytes(byte ^ (1 << bit % 8) * (bit // 8 == at) for at, byte in enumerate(data_))

    assert carry(source, sink, flip) == b""
    if sink.failure is not None:  # a length that became longer waits for the rest
        assert "altered, lost or repeated on the way (TLS: " in str(sink.failure)


def test_what_comes_after_the_end_is_not_kept() -> None:
    """A peer that has said that it will say no more cannot fill the memory of this end."""
    client, server = joined()
    client.send(b"the last word")
    with suppress(ssl.SSLWantReadError):  # it would wait for the same from the server
        client._tls.unwrap()
    assert carry(client, server) == b"the last word"
    for _ in range(100):
        assert server.receive(bytes(1 << 16)) == b""
    assert server._incoming.pending < 1 << 17
    assert server.failure is None


def test_what_was_said_before_is_heard() -> None:
    """An altered byte takes nothing from what came before it, also in one read."""
    client, server = joined()
    client.send(b"acknowledged up to 7")
    client.send(b"acknowledged up to 8")
    assert carry(client, server, lambda data: data[:-1] + bytes([data[-1] ^ 1])) == b"acknowledged up to 7"
    assert server.failure is not None
    assert server.receive(b"more") == b""


def test_what_was_heard_once_cannot_be_said_again() -> None:
    """A recorded message is refused on the same connection and on another."""
    client, server = joined()
    client.send(b"acknowledged up to 7")
    recorded = client.outgoing()
    assert server.receive(recorded) == b"acknowledged up to 7"
    for other in (server, joined()[1]):
        assert other.receive(recorded) == b""
        assert other.failure is not None


def test_less_than_tls_1_3_is_refused() -> None:
    """Versions before TLS 1.3 are refused."""
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    client = SecureStream.client_end(old, fingerprint=IDENTITY.fingerprint)
    server = SecureStream.server_end(SERVER)
    carry(client, server)
    assert "no connection in TLS 1.3 came about (TLS: " in str(server.failure)


def test_the_first_byte_tells_tls() -> None:
    """A server can tell TLS from the frames of earlier releases by one byte."""
    client, _ = ends()
    assert client.outgoing()[0] == FIRST_BYTE


def test_an_identity_is_kept_as_pem() -> None:
    """Key and certificate that were stored give the same server again."""
    again = ServerIdentity(key=IDENTITY.key, certificate=IDENTITY.certificate)
    assert again.fingerprint == IDENTITY.fingerprint
    client = SecureStream.client_end(CLIENT, fingerprint=IDENTITY.fingerprint)
    server = SecureStream.server_end(again.context())
    carry(client, server)
    carry(server, client)
    assert client.open


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no files in memory on this system")
def test_the_key_comes_on_no_disk(tmp_path: Path) -> None:
    """A kill while the key is loaded leaves it nowhere: nothing is made where temporary files go."""
    before = tmp_path.stat().st_mtime_ns
    program = "from durability_server.access.server_identity import new_identity\nnew_identity().context()\n"
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert tmp_path.stat().st_mtime_ns == before


def test_a_plain_stream_changes_nothing() -> None:
    """A plain stream, used for local sockets, passes bytes on unchanged."""
    stream = PlainStream()
    stream.send(b"one ")
    stream.send(b"two")
    assert (stream.outgoing(), stream.outgoing()) == (b"one two", b"")
    assert stream.receive(memoryview(b"three")) == b"three"


def test_a_peer_that_withholds_a_byte_fails_its_own_connection(tmp_path: Path) -> None:
    """OpenSSL can say nothing to it, in the middle of its change of keys; that raises nothing here."""
    client = WithholdingStream(IDENTITY.fingerprint, tmp_path / "keys")
    server = SecureStream.server_end(SERVER)
    client.send(b"hello")
    server.receive(client.outgoing())
    client.receive(server.outgoing())
    assert server.receive(client.outgoing()) == b"hello"
    assert server.receive(client.part_of_key_update()) == b""
    assert server.failure is None
    server.send(b"welcome")
    assert "TLS" in str(server.failure)
    assert server.receive(b"more") == b""
    server.send(b"more")
