"""The same server behind TLS."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from durability import limits
from durability.errors import AuthenticationError
from durability.protocol import messages
from durability_server.connections.access import tls_context

if TYPE_CHECKING:
    from tests.server.conftest import Lab


DEADLINE_S = 60


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 with its key in the same file."""
    directory = tmp_path_factory.mktemp("certificate")
    key, file = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=127.0.0.1"
        f" -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {file}".split(),
        check=True,
        capture_output=True,
    )
    file.write_text(file.read_text() + key.read_text())
    return file


@pytest.mark.parametrize("how", ["fin", "rst", "silence", "stop"])
async def test_a_run_over_tls(
    lab: Lab, sqlite_url: str, certificate: Path, request: pytest.FixtureRequest, how: str
) -> None:
    """Credit, heartbeats and ends are as without TLS; an end of the TLS stream is never silence."""
    if how != "silence":
        request.getfixturevalue("no_silence")
    running = await lab.start(sqlite_url, tls=tls_context(certificate, None))
    trust = ssl.create_default_context(cafile=str(certificate))
    plan = lab.plan()
    client = await lab.connect(running.address, tls=trust)
    await client.begin(plan, lab.facts())
    await client.acknowledge(3, 4)
    match how:
        case "fin":
            await client.close()
        case "rst":
            client.reset()
        case "silence":
            client.vanish()
        case "stop":
            await client.ask(messages.Stop(frontiers=(3, 4), control=0, statistics={}), messages.Stopped)
    asker = await lab.connect(running.address, "query", tls=trust)
    async with asyncio.timeout(DEADLINE_S):
        while (case := await asker.export(plan.run)).session_end == "live":
            pass
    assert case.frontiers == (3, 4)
    assert case.session_end in ({"fin", "rst"} if how in ("fin", "rst") else {how})
    assert case.rtt_max_ns > 0


async def test_a_wrong_token_over_tls_is_named(lab: Lab, sqlite_url: str, certificate: Path) -> None:
    """The reason reaches the peer also through TLS, which has no half-closed connections."""
    running = await lab.start(sqlite_url, tls=tls_context(certificate, None))
    trust = ssl.create_default_context(cafile=str(certificate))
    with pytest.raises(AuthenticationError, match="token"):
        await lab.connect(running.address, token=b"another token of 16", tls=trust)


async def test_a_peer_that_speaks_no_tls_is_closed(
    lab: Lab, sqlite_url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain bytes, and silence, end a connection that should have begun with a TLS handshake."""
    monkeypatch.setattr(
        limits, "HANDSHAKE_TIMEOUT_S", 2.0
    )  # which the last connection has to keep to as well
    running = await lab.start(sqlite_url, tls=tls_context(certificate, None))
    for greeting in (b"\x00\x00\x00\x05hello", b""):
        reader, writer = await asyncio.open_connection(*running.address)
        writer.write(greeting)
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.wait([asyncio.create_task(reader.read(-1))])
        writer.close()
    trust = ssl.create_default_context(cafile=str(certificate))
    asker = await lab.connect(running.address, "query", tls=trust)
    assert (await asker.ask(messages.List(limit=1), messages.Listing)).rows == ()
