"""`durability join` where no credential can be written: the code is good once, and stays good."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from durability.errors import SetupError
from durability.units import format_address
from durability_client.join_command import join
from durability_client.link.credential import load_credential
from tests.joined import credential_of_nobody

if TYPE_CHECKING:
    from tests.server.conftest import Lab, SmallDisk

Join = Callable[[Path], Awaitable[None]]


@pytest.fixture
async def join_into(lab: Lab, sqlite_url: str) -> Join:
    """A function that joins a server with always the same code, and puts the credential into a file."""
    running = await lab.start(sqlite_url)
    code = (await running.server.invite()).line.split()[-1]
    address = format_address(*running.address)

    async def join_into(path: Path) -> None:
        await join(address, code, name="b7", credential=path, force=True, out=io.StringIO())

    return join_into


async def test_a_directory_that_takes_no_file(join_into: Join, tmp_path: Path) -> None:
    """If the credential cannot be written, the error comes before the server is asked, so the code stays
    valid."""
    with pytest.raises(SetupError, match="cannot write the credential /proc/durability"):
        await join_into(Path("/proc/durability/credential.json"))
    await join_into(tmp_path / "credential.json")


async def test_a_full_disk(join_into: Join, small_disk: SmallDisk) -> None:
    """So does this one. Of the attempt nothing is left, and what was there stays."""
    path = small_disk.directory / "credential.json"
    credential_of_nobody(path)
    before = path.read_text()
    small_disk.fill()
    with pytest.raises(SetupError, match=r"cannot write the credential .* No space left"):
        await join_into(path)
    assert sorted(file.name for file in small_disk.directory.iterdir()) == ["ballast", "credential.json"]
    assert path.read_text() == before
    small_disk.free()
    await join_into(path)
    joined = load_credential(path)
    assert joined is not None
    assert joined.name == "b7"
