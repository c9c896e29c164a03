"""Who may talk to the server: its token, its certificate, and what it tells people to type."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from durability.errors import SetupError, UsageError
from durability_client.link.endpoint import read_token
from durability_server.connections.access import (
    client_instructions,
    default_store_url,
    load_token,
    tls_context,
)


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_the_first_start_makes_a_token_for_its_owner_only(state_home: Path) -> None:
    """A missing token is made with 128 random bits and mode 0600, in the state directory."""
    token, path = load_token(None)
    assert path == state_home / "durability/token"
    assert len(token) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_is_made_once(tmp_path: Path) -> None:
    """The second start reads the token of the first; another file holds another token."""
    first, _ = load_token(None)
    assert load_token(None)[0] == first
    assert load_token(tmp_path / "other")[0] != first


def test_a_client_on_the_same_machine_finds_the_token() -> None:
    """Without --token-file, client and server of one user look in the same place."""
    token, _ = load_token(None)
    assert read_token(None) == token


def test_a_client_without_a_token_is_told_where_to_get_it(tmp_path: Path) -> None:
    """The message names the file that is missing and the option."""
    with pytest.raises(SetupError, match=r"absent.*--token-file"):
        read_token(tmp_path / "absent")


@pytest.mark.parametrize("content", ["", "short", "two lines of\nsomething else", "é" * 20])
def test_a_file_that_holds_no_token_is_refused(tmp_path: Path, content: str) -> None:
    """Neither side takes other content for a token, and the server does not replace it."""
    path = tmp_path / "token"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SetupError, match="holds no token"):
        load_token(path)
    with pytest.raises(SetupError, match="holds no token"):
        read_token(path)
    assert path.read_text(encoding="utf-8") == content


def test_an_unusable_state_directory_is_named(state_home: Path) -> None:
    """A file where the state directory should be is reported with its path."""
    state_home.write_text("not a directory")
    with pytest.raises(SetupError, match=str(state_home)):
        default_store_url()


def test_the_line_to_type_carries_address_and_token(tmp_path: Path) -> None:
    """On a terminal the instructions are complete; in a log they name the file in place of the token."""
    token, path = load_token(tmp_path / "token")
    shown, logged = (
        client_instructions("192.0.2.7", 7420, token_file=path, certificate=None, show_token=show)
        for show in (True, False)
    )
    assert token.decode() in shown
    assert token.decode() not in logged
    assert str(path) in logged
    for text in (shown, logged):
        assert "durability run TARGET --server 192.0.2.7:7420 --token-file durability.token" in text


def test_a_listener_on_all_addresses_names_one_that_can_be_reached(tmp_path: Path) -> None:
    """Nobody can connect to 0.0.0.0, so the instructions name an address or the name of this machine."""
    _, path = load_token(tmp_path / "token")
    text = client_instructions("0.0.0.0", 7420, token_file=path, certificate=None, show_token=True)
    assert "0.0.0.0" not in text


def test_a_key_without_a_certificate_is_a_usage_error(tmp_path: Path) -> None:
    """TLS needs the certificate; without both there is none."""
    assert tls_context(None, None) is None
    with pytest.raises(UsageError, match="--tls-cert"):
        tls_context(None, tmp_path / "key.pem")
    with pytest.raises(SetupError, match=r"cert\.pem"):
        tls_context(tmp_path / "cert.pem", None)
