"""`durability join` where a credential lies already: what it replaces, and when."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import io
import os
import re
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from durability.errors import FormatError, SetupError
from durability.protocol.messages import List, Listing
from durability.units import format_address
from durability_client.join_command import join
from durability_client.link import credential as credential_module
from durability_client.link.credential import SCHEMA, load_credential, place_for_credential
from durability_client.link.endpoint import endpoint
from durability_client.link.server_connection import connect
from durability_server.server import Server
from tests.joined import credential_of_nobody, kept_locked
from tests.waiting import DEADLINE_S

TORN = "", "{", "[1, 2]", "not JSON\n"


class Joining:
    """A machine with a join code of a server, whose credential lies in `path`."""

    def __init__(self, server: Server, address: str, code: str, path: Path) -> None:
        self.server = server
        self.address = address
        self.path = path
        self._code = code
        self.out = io.StringIO()

    async def join(self, *, force: bool) -> None:
        """As the command does."""
        await join(self.address, self._code, name="b7", credential=self.path, force=force, out=self.out)

    async def require_joined(self) -> None:
        """The server answers whoever has the credential."""
        known = load_credential(self.path)
        assert known is not None
        assert (known.schema, known.name, known.servers) == (SCHEMA, "b7", (self.address,))
        with closing(await connect(endpoint(None, self.path), "query")) as connection:
            await connection.request(List(limit=1), Listing)


@pytest.fixture
async def joining(tmp_path: Path) -> AsyncIterator[Joining]:
    """Such a machine."""
    server = Server(store_url=f"sqlite:///{tmp_path / 'store.sqlite'}")
    address = format_address(*await server.start("127.0.0.1", 0, directory=None))
    code = (await server.invite()).line.split()[-1]
    yield Joining(server, address, code, tmp_path / "credential.json")
    await server.stop()


def lock_as_nfs(descriptor: int, operation: int) -> None:
    """What flock does on NFSv4: an exclusive lock needs a file that is open for writing."""
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


async def test_a_credential_on_nfs_is_replaced_with_force(
    joining: Joining, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the code is used up, and nothing is saved."""
    credential_of_nobody(joining.path)
    monkeypatch.setattr(fcntl, "flock", lock_as_nfs)
    await joining.join(force=True)
    await joining.require_joined()


@pytest.mark.parametrize("torn", TORN)
async def test_a_torn_credential_is_replaced_with_force(joining: Joining, torn: str) -> None:
    """It is what a power cut may leave of a file that was copied here. Without --force the message says what
    to add, nothing is changed, and the code is not used up."""
    joining.path.write_text(torn)
    joining.path.chmod(0o600)
    with pytest.raises(FormatError, match=r"is not a credential.* join again, with --force"):
        await joining.join(force=False)
    assert joining.path.read_text() == torn
    await joining.join(force=True)
    await joining.require_joined()


async def test_a_credential_of_another_release_is_replaced_with_force(joining: Joining) -> None:
    """So is one whose fingerprint is cut off."""
    credential_of_nobody(joining.path)
    whole = joining.path.read_text()
    joining.path.write_text(whole.replace(SCHEMA, "durability.credential/9"))
    with pytest.raises(FormatError, match=r"this release reads.* join again, with --force"):
        await joining.join(force=False)
    joining.path.write_text(whole.replace('"fingerprint":"0000', '"fingerprint":"00'))
    with pytest.raises(FormatError, match=r"31 bytes of the fingerprint.* join again, with --force"):
        await joining.join(force=False)
    await joining.join(force=True)
    await joining.require_joined()


async def test_whoever_joins_anew_is_told_of_the_runs_before(tmp_path: Path) -> None:
    """A machine that joins again by force is told that its earlier runs now belong to another client."""
    server = Server(store_url=f"sqlite:///{tmp_path / 'store.sqlite'}")
    address = format_address(*await server.start("127.0.0.1", 0, directory=None))
    for force, told in ((False, False), (True, True)):
        code = (await server.invite()).line.split()[-1]
        machine = Joining(server, address, code, tmp_path / "credential")
        await machine.join(force=force)
        assert ("began as b7 are another client's now" in machine.out.getvalue()) is told
    await server.stop()


async def test_a_credential_that_another_command_keeps_locked_is_not_replaced(
    joining: Joining, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait for a command that was suspended ends with what to do, and the code is not used up."""
    monkeypatch.setattr(credential_module, "_LOCK_S", 0.2)
    credential_of_nobody(joining.path)
    before = joining.path.read_text()
    with (
        kept_locked(joining.path),
        pytest.raises(SetupError, match=r"another command has kept it locked .* End that one"),
    ):
        await asyncio.wait_for(asyncio.to_thread(asyncio.run, joining.join(force=True)), DEADLINE_S)
    assert joining.path.read_text() == before
    assert [path.name for path in joining.path.parent.glob("*credential.json*")] == [joining.path.name]
    await joining.join(force=True)
    await joining.require_joined()


async def test_a_credential_that_another_join_made_meanwhile_is_locked(
    joining: Joining, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was none to lock before the code was used, and a command may be adding servers to that one."""
    monkeypatch.setattr(credential_module, "_LOCK_S", 0.2)
    with place_for_credential(joining.path) as save:
        credential_of_nobody(joining.path)
        known = load_credential(joining.path)
        assert known is not None
        with (
            kept_locked(joining.path),
            pytest.raises(SetupError, match="another command has kept it locked"),
        ):
            save(known)
        save(known)


@pytest.mark.parametrize("links", [True, False])
async def test_of_two_joins_at_once_the_second_leaves_the_credential_of_the_first(
    joining: Joining, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    """There was none when both began. The second one names the client that it made in vain, and with --force
    it replaces the other; `links`: whether the file system has hard links."""

    def link(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not links:
        monkeypatch.setattr(os, "link", link)
    code = (await joining.server.invite()).line.split()[-1]
    other = Joining(joining.server, joining.address, code, joining.path)
    ended = await asyncio.gather(joining.join(force=False), other.join(force=False), return_exceptions=True)
    (error,) = [one for one in ended if one is not None]
    known = load_credential(joining.path)
    assert isinstance(error, SetupError) and known is not None
    found = re.search(r"durability clients revoke (\w+)", str(error))
    assert found is not None
    made = await joining.server._thread.ask(joining.server._store.clients.find, found[1])
    assert made is not None and made.id != known.client
    assert [path.name for path in joining.path.parent.glob("*credential.json*")] == [joining.path.name]
    with closing(await connect(endpoint(None, joining.path), "query")) as connection:
        await connection.request(List(limit=1), Listing)


async def test_force_takes_no_file_that_others_can_read(joining: Joining) -> None:
    """`join --force` does not replace a file that others can read, since it may belong to another program."""
    joining.path.write_text("{")
    joining.path.chmod(0o644)
    with pytest.raises(SetupError, match="chmod 600"):
        await joining.join(force=True)
    assert joining.path.read_text() == "{"
