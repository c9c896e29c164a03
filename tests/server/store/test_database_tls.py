"""A store in PostgreSQL on another machine is reached with TLS and a checked certificate, or not at all."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import text

from durability.errors import StoreError
from durability_server.store.database import Database
from durability_server.store.database_tls import options
from tests.server.front import ELSEWHERE, front

HERE = "127.0.0.1"


async def answer(url: str) -> int:
    """What the database at `url` answers."""

    def ask() -> int:
        database = Database(url)
        try:
            with database.reading() as db:
                return int(db.execute(text("SELECT 7")).scalar_one())
        finally:
            database.close()

    return await asyncio.to_thread(ask)


def certified(directory: Path) -> tuple[ssl.SSLContext, Path]:
    """What PostgreSQL's TLS needs at that address, and the file with its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "db")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(ELSEWHERE))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    file, secret = directory / "db.crt", directory / "db.key"
    file.write_bytes(certificate.public_bytes(pem))
    secret.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, secret)
    return context, file


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of who runs the tests decides."""
    for name in ("PGSSLMODE", "PGSSLROOTCERT", "PGHOST", "PGHOSTADDR", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.lab
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
async def test_no_store_elsewhere_is_reached_without_tls(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store on another machine is refused without TLS, with the URL's options in the error. sslmode=disable
    in the URL, or PGSSLMODE, permits it."""
    _, certificate = certified(tmp_path)
    checked = f"?sslmode=verify-full&sslrootcert={certificate}"
    async with front(store_url) as plain:
        for query in ("", checked, "?sslmode=require"):
            with pytest.raises(StoreError) as refused:
                await answer(plain.url(ELSEWHERE, query))
            for part in ("?sslmode=verify-full&sslrootcert=FILE", "sslmode=disable"):
                assert part in str(refused.value)
            assert "\n" not in str(refused.value)
        assert await answer(plain.url(HERE)) == 7
        assert await answer(plain.url(ELSEWHERE, "?sslmode=disable")) == 7
        monkeypatch.setenv("PGHOSTADDR", ELSEWHERE)
        with pytest.raises(StoreError, match="sslmode=disable"):
            await answer(plain.url("localhost"))
        monkeypatch.setenv("PGHOSTADDR", HERE)  # the end of a tunnel
        assert await answer(plain.url("db.example")) == 7
        monkeypatch.delenv("PGHOSTADDR")
        monkeypatch.setenv("PGSSLMODE", "prefer")
        assert await answer(plain.url(ELSEWHERE)) == 7


@pytest.mark.lab
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
async def test_a_certificate_elsewhere_is_checked(store_url: str, tmp_path: Path) -> None:
    """Without the certificate of its CA a PostgreSQL with TLS is not believed either."""
    context, certificate = certified(tmp_path)
    (tmp_path / "other").mkdir()
    _, other = certified(tmp_path / "other")
    async with front(store_url, context) as encrypted:
        assert await answer(encrypted.url(ELSEWHERE, f"?sslrootcert={certificate}")) == 7
        for query in ("", f"?sslrootcert={other}"):
            with pytest.raises(StoreError, match="sslrootcert=FILE"):
                await answer(encrypted.url(ELSEWHERE, query))
        assert await answer(encrypted.url(ELSEWHERE, "?sslmode=require")) == 7


@pytest.mark.parametrize(
    ("connect", "is_checked"),
    [
        ({}, False),
        ({"host": "localhost"}, False),
        ({"host": "127.0.0.9"}, False),
        ({"host": "::1"}, False),
        ({"host": "/run/postgresql"}, False),
        ({"host": "db.example", "hostaddr": "127.0.0.1"}, False),  # the end of a tunnel
        ({"host": "db.example"}, True),
        ({"host": "192.0.2.7"}, True),
        ({"host": "localhost,db.example"}, True),
        ({"host": "localhost", "hostaddr": "192.0.2.7"}, True),
        ({"host": "localhost,db.example", "hostaddr": "127.0.0.1,"}, True),
        ({"host": "localhost,db.example", "hostaddr": ",127.0.0.1"}, False),
        ({"host": "db.example", "hostaddr": ""}, True),
        ({"hostaddr": "127.0.0.1,192.0.2.7"}, True),
        ({"service": "store"}, True),
        ({"host": "db.example", "sslmode": "require"}, False),
    ],
)
def test_which_hosts_are_elsewhere(connect: dict[str, str], is_checked: bool) -> None:
    """Only a database that may be on another machine must have a verified certificate, unless the URL sets
    sslmode."""
    assert options(connect) == ({"sslmode": "verify-full"} if is_checked else {})


def test_an_address_in_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """libpq connects to PGHOSTADDR, whatever host the URL names, unless the URL has an address too. So that
    address decides about TLS."""
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.7")
    for connect in ({}, {"host": "localhost"}, {"host": "/run/postgresql"}):
        assert options(connect) == {"sslmode": "verify-full"}
    assert options({"host": "localhost", "hostaddr": "127.0.0.1"}) == {}
    assert options({"host": "localhost", "hostaddr": ""}) == {}
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.1,")
    assert options({"host": "db.example,localhost"}) == {}
    assert options({"host": "localhost,db.example"}) == {"sslmode": "verify-full"}


def test_a_host_in_the_environment_is_elsewhere_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """libpq takes it from there if the URL names none."""
    monkeypatch.setenv("PGHOST", "db.example")
    assert options({}) == {"sslmode": "verify-full"}
    assert options({"host": "/run/postgresql"}) == {}
    monkeypatch.setenv("PGSSLMODE", "require")
    assert options({}) == {}
