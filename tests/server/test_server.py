"""Starting a server, and refusing to."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from durability.errors import SetupError, StoreError
from durability_server.server import Server

if TYPE_CHECKING:
    from tests.server.conftest import Lab


async def test_a_port_that_is_taken_is_named(lab: Lab, sqlite_url: str) -> None:
    """A server that cannot listen says where and why, and gives its store free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Server(store_url=sqlite_url)
        with pytest.raises(SetupError, match=f"127.0.0.1:{port}"):
            await server.start("127.0.0.1", port, directory=None)
    await lab.start(sqlite_url)


async def test_a_store_in_use_is_refused(lab: Lab, sqlite_url: str) -> None:
    """A second server on the same SQLite file does not start; the first goes on."""
    running = await lab.start(sqlite_url)
    with pytest.raises(StoreError, match="another server"):
        await lab.start(sqlite_url)
    asker = await lab.connect(running.address, "query")
    assert asker.session.welcome.server_id


async def test_a_server_keeps_its_name(lab: Lab, store_url: str) -> None:
    """Clients that come back can tell that it is the same server: its id lies in the store."""
    names = []
    for _ in range(2):
        running = await lab.start(store_url)
        names.append((await lab.connect(running.address, "query")).session.welcome.server_id)
        await running.server.stop()
    assert names[0] == names[1] != ""


async def test_a_server_keeps_its_certificate(lab: Lab, store_url: str) -> None:
    """Who has joined knows the server again after a restart, on another port and on a copy of its store."""
    running = await lab.start(store_url)
    member = lab.members[running.address]
    await running.server.stop()
    running = await lab.start(store_url)
    client = await lab.connect(running.address, "query", member=member)
    assert client.session.welcome.name == "test"
