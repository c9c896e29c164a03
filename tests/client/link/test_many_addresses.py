"""A client that knows several addresses: which one it takes, how soon, and what it remembers of them."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import socket
import stat
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durability import limits
from durability.errors import AuthenticationError, FormatError, PeerError, SetupError
from durability.protocol.messages import List, Listing
from durability.units import format_address
from durability_client.link import credential, server_connection
from durability_client.link.credential import (
    SCHEMA,
    Credential,
    credential_path,
    load_credential,
    remember_servers,
    save_credential,
    with_servers,
)
from durability_client.link.endpoint import Endpoint, endpoint
from durability_client.link.server_connection import PATIENCE_S, connect
from tests.joined import NOWHERE, kept_locked
from tests.waiting import DEADLINE_S

KNOWN = Credential(
    schema=SCHEMA,
    servers=("a:1", "b:2"),
    fingerprint="00" * 32,
    client="c1",
    secret="00" * 32,
    name="shelf",
    role="client",
)


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("a.example", ("a.example", 7420)),
        ("a.example:80", ("a.example", 80)),
        ("[2001:db8::1]", ("2001:db8::1", 7420)),
    ],
)
def test_a_host_alone_means_port_7420(tmp_path: Path, typed: str, address: tuple[str, int]) -> None:
    """`--server` takes HOST or HOST:PORT."""
    path = tmp_path / "credential.json"
    save_credential(KNOWN, path)
    assert endpoint(typed, path).addresses == (address,)


@pytest.mark.parametrize("first", ["refused", "mute"])
async def test_the_next_address_is_tried(
    where: Endpoint, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once where one refuses, and where one says nothing before that is given up; the connection knows
    which it was."""
    monkeypatch.setattr(server_connection, "CONNECT_TIMEOUT_S", 3600.0)
    monkeypatch.setattr(limits, "HANDSHAKE_TIMEOUT_S", 3600.0)
    if first == "refused":
        monkeypatch.setattr(server_connection, "PATIENCE_S", 3600.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        wrong = NOWHERE.addresses[0] if first == "refused" else mute.getsockname()
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        several = replace(where, addresses=(wrong, *where.addresses))
        async with asyncio.timeout(DEADLINE_S):
            connection = await connect(several, "query")
        with closing(connection):
            assert connection.endpoint.addresses == (*where.addresses, wrong)
        took_s = loop.time() - before_s
    if first == "mute":
        assert took_s >= PATIENCE_S


@pytest.mark.slow
async def test_what_a_server_says_counts_more_than_silence(where: Endpoint) -> None:
    """If several addresses fail, the error of a server that answered is raised."""
    several = replace(where, addresses=(*NOWHERE.addresses, *where.addresses), secret=b"x" * 32)
    with pytest.raises(AuthenticationError):
        await connect(several, "query")
    with pytest.raises(PeerError, match="Connection refused"):
        await connect(replace(NOWHERE, addresses=NOWHERE.addresses * 2), "query")


async def test_an_attempt_that_was_slower_leaves_nothing_behind(
    where: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connections to the other addresses are closed when one is made; that one goes on."""
    monkeypatch.setattr(limits, "HANDSHAKE_TIMEOUT_S", 3600.0)  # which would close them too
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(DEADLINE_S)
        several = replace(where, addresses=(mute.getsockname(), *where.addresses))
        with closing(await connect(several, "query")) as connection:
            accepted, _ = await asyncio.to_thread(mute.accept)
            accepted.settimeout(DEADLINE_S)
            with accepted:
                while await asyncio.to_thread(accepted.recv, 1 << 16):
                    pass  # what was said before, then its end
            assert (await connection.request(List(limit=1), Listing)).rows == ()


def test_the_known_addresses_stay_few() -> None:
    """The order stays, new ones come behind; if there are too many, those that live are kept."""
    assert with_servers(("a:1",), ("b:2", "a:1")) == ("a:1", "b:2")
    many = tuple(f"dead{number}:1" for number in range(limits.SERVERS_MAX))
    kept = with_servers(many, ("new:1", "new:2"))
    assert kept == (*many[:-2], "new:1", "new:2")
    assert len(with_servers((), tuple(f"x{number}:1" for number in range(100)))) == limits.SERVERS_MAX


def test_new_servers_are_remembered(tmp_path: Path) -> None:
    """The credential is replaced whole, readable for its user alone; what it knows already writes nothing."""
    path = tmp_path / "credential.json"
    save_credential(KNOWN, path)
    remember_servers(path, ("b:2", "c:3"), client=KNOWN.client)
    assert load_credential(path) == replace(KNOWN, servers=("a:1", "b:2", "c:3"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.stat()
    remember_servers(path, ("c:3",), client=KNOWN.client)
    assert path.stat().st_ino == before.st_ino
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_file_that_is_not_the_callers_stays_as_it_is(tmp_path: Path) -> None:
    """Servers are not written through a link, to another user's file, or to a missing file."""
    path = tmp_path / "credential.json"
    remember_servers(path, ("c:3",), client=KNOWN.client)
    assert not path.exists()
    target = tmp_path / "target.json"
    save_credential(KNOWN, target)
    path.symlink_to(target)
    remember_servers(path, ("c:3",), client=KNOWN.client)
    assert path.is_symlink()
    assert load_credential(target) == KNOWN
    if os.geteuid() == 0:
        before = target.read_bytes()
        os.chown(target, 65534, 65534)
        remember_servers(target, ("c:3",), client=KNOWN.client)
        assert target.read_bytes() == before


def test_a_new_credential_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that remembers addresses writes back no older credential over that of a `join` meanwhile, and
    gives it no addresses of the server that the machine has left."""
    path = tmp_path / "credential.json"
    save_credential(KNOWN, path)
    anew = replace(KNOWN, client="c2", secret="11" * 32, servers=("z:1",))
    joining = threading.Thread(target=save_credential, args=(anew, path))

    def joined_meanwhile(known: Sequence[str], live: Sequence[str]) -> tuple[str, ...]:
        joining.start()
        joining.join(timeout=0.2)
        return with_servers(known, live)

    monkeypatch.setattr(credential, "with_servers", joined_meanwhile)
    remember_servers(path, ("c:3",), client=KNOWN.client)
    joining.join()
    assert load_credential(path) == anew
    remember_servers(path, ("c:3",), client=KNOWN.client)
    assert load_credential(path) == anew


@pytest.mark.parametrize("live", [("b:2",), ("c:3",)])
def test_a_command_that_was_suspended_keeps_no_other_waiting(tmp_path: Path, live: tuple[str, ...]) -> None:
    """A suspended command that holds the credential's lock does not block others; a later command stores the
    servers."""
    path = tmp_path / "credential.json"
    save_credential(KNOWN, path)
    remembering = threading.Thread(
        target=remember_servers, args=(path, live), kwargs={"client": KNOWN.client}, daemon=True
    )
    with kept_locked(path):
        remembering.start()
        remembering.join(DEADLINE_S)
        assert not remembering.is_alive()
        assert load_credential(path) == KNOWN
    remember_servers(path, live, client=KNOWN.client)
    assert load_credential(path) == replace(KNOWN, servers=tuple(dict.fromkeys((*KNOWN.servers, *live))))


def test_a_credential_that_is_known_already_is_not_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock may wait for a disk, or for a server of files."""
    path = tmp_path / "credential.json"
    save_credential(KNOWN, path)
    locked = list[int]()
    monkeypatch.setattr(fcntl, "flock", lambda _, operation: locked.append(operation))
    remember_servers(path, ("b:2",), client=KNOWN.client)
    remember_servers(path, ("c:3",), client="another")
    assert locked == []


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_file_system_that_locks_nothing_costs_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The credential is read and written without a lock then, as with a disk that fails."""
    path = tmp_path / "credential.json"
    save_credential(KNOWN, path)

    def failing(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", failing)
    remember_servers(path, ("c:3",), client=KNOWN.client)
    assert load_credential(path) == replace(KNOWN, servers=("a:1", "b:2", "c:3"))


def test_a_disk_that_fails_after_the_lock_costs_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the locked file still has its place cannot be known then."""
    path = tmp_path / "credential.json"
    save_credential(KNOWN, path)
    lock, looked = fcntl.flock, Path.stat

    def locked(descriptor: int, operation: int) -> None:
        lock(descriptor, operation)
        monkeypatch.setattr(Path, "stat", failing)

    def failing(path: Path) -> os.stat_result:
        monkeypatch.setattr(Path, "stat", looked)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", locked)
    remember_servers(path, ("c:3",), client=KNOWN.client)
    assert Path.stat is looked  # it has failed
    assert load_credential(path) == replace(KNOWN, servers=("a:1", "b:2", "c:3"))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_credential_that_cannot_be_opened_for_writing_is_locked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A read-only file is replaced by another one, so no command may write it meanwhile."""
    path = tmp_path / "credential.json"
    save_credential(KNOWN, path)
    opened, lock, locked = os.open, fcntl.flock, list[int]()

    def read_only(name: Any, flags: int, *rest: Any, **given: Any) -> int:
        if name == path and flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(number, os.strerror(number))
        return opened(name, flags, *rest, **given)

    def noted(descriptor: int, operation: int) -> None:
        lock(descriptor, operation)
        locked.append(operation)

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr(fcntl, "flock", noted)
    remember_servers(path, ("c:3",), client=KNOWN.client)
    assert locked == [fcntl.LOCK_EX | fcntl.LOCK_NB]
    assert load_credential(path) == replace(KNOWN, servers=("a:1", "b:2", "c:3"))


@pytest.mark.parametrize("length", [0, 13, 31, 33])
def test_a_credential_has_the_whole_fingerprint(tmp_path: Path, length: int) -> None:
    """With less any server, or one with a certificate that begins alike, would be believed."""
    path = tmp_path / "credential.json"
    save_credential(replace(KNOWN, fingerprint="00" * length), path)
    with pytest.raises(FormatError, match=f"has {length} bytes of the fingerprint"):
        load_credential(path)


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        ({"secret": "00" * 31}, "its secret has 31 bytes, expected 32"),
        ({"secret": "00" * 33}, "its secret has 33 bytes, expected 32"),
        ({"secret": "0"}, "non-hexadecimal"),
        ({"client": ""}, "its client is not a line of 1 to"),
        ({"client": "c" * (limits.NAME_BYTES_MAX + 1)}, "its client is not a line of 1 to"),
        ({"client": "c\n1"}, "its client is not a line of 1 to"),
        ({"client": "\ud800"}, "its client is not a line of 1 to"),
    ],
)
def test_a_credential_says_who_its_client_is(tmp_path: Path, damaged: dict[str, str], why: str) -> None:
    """A server would take no such client for anybody; the message says what to do about the file."""
    path = tmp_path / "credential.json"
    save_credential(KNOWN, path)
    path.write_text(json.dumps(json.loads(path.read_text()) | damaged))
    with pytest.raises(FormatError, match=rf"is not a credential.*{why}.* join again, with --force"):
        load_credential(path)


async def test_what_no_server_could_be_told_is_said_before_connecting(where: Endpoint) -> None:
    """An error that asyncio got would be a traceback, and the caller would wait in vain."""
    for_asyncio: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: for_asyncio.append(context))
    for broken in (replace(where, secret=bytes(33)), replace(where, client="c\n1")):
        for addresses in (where.addresses, (*NOWHERE.addresses, *where.addresses)):
            with pytest.raises(FormatError, match="Hello"):
                await connect(replace(broken, addresses=addresses), "query")
    assert for_asyncio == []


def test_a_credential_is_its_users_alone(tmp_path: Path) -> None:
    """A file that others can read, or that another user put there, is not taken; neither is a pipe."""
    path = tmp_path / "credential.json"
    save_credential(KNOWN, path)
    path.chmod(0o640)
    with pytest.raises(SetupError, match="chmod 600"):
        load_credential(path)
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
        with pytest.raises(SetupError, match="belongs to user 65534, and is read by user 0"):
            load_credential(path)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(SetupError, match="not a regular file"):
        load_credential(path)


@pytest.mark.parametrize(
    ("user", "own", "place"),
    [
        (0, {"XDG_CONFIG_HOME": "/home/b/own"}, "/etc/durability"),
        (1000, {"XDG_CONFIG_HOME": "/home/b/own"}, "/home/b/own/durability"),
        (1000, {"HOME": "/home/b"}, "/home/b/.config/durability"),
    ],
)
def test_where_a_credential_lies(
    monkeypatch: pytest.MonkeyPatch, user: int, own: dict[str, str], place: str
) -> None:
    """Root has its credential in /etc, any other user in the directory for configuration."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert credential_path() == Path(place, "credential.json")


async def test_a_lone_server_is_not_written_down(where: Endpoint, tmp_path: Path) -> None:
    """A credential that names one address, as a tunnel's, keeps it while there are no other servers."""
    path = tmp_path / "credential.json"
    before = path.stat().st_ino
    with closing(await connect(replace(where, credential=path), "query")) as connection:
        assert connection.session.welcome.servers == ()
    credential = load_credential(path)
    assert credential is not None
    assert credential.servers == tuple(format_address(*one) for one in where.addresses)
    assert path.stat().st_ino == before


@pytest.mark.slow
async def test_a_name_that_cannot_be_looked_up_is_passed_over(where: Endpoint) -> None:
    """An operator's slip in `--advertise` reaches credentials; the other addresses still work."""
    several = replace(where, addresses=(("store..example", 7420), *where.addresses))
    for purpose in ("query", "run"):
        with closing(await connect(several, purpose)) as connection:
            assert connection.endpoint.addresses[0] == where.addresses[0]
    with pytest.raises(PeerError, match="cannot connect"):
        await connect(replace(NOWHERE, addresses=(("store..example", 7420),)), "run")
