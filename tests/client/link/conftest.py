"""A server that the tests of the link connect to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from durability_client.link.endpoint import Endpoint
from durability_server.server import Server
from tests.joined import joined


@pytest.fixture
async def where(tmp_path: Path) -> AsyncIterator[Endpoint]:
    """A server that this client has joined."""
    server = Server(store_url=f"sqlite:///{tmp_path / 'store.sqlite'}")
    address = await server.start("127.0.0.1", 0, directory=None)
    yield await joined(server, *address, credential=tmp_path / "credential.json")
    await server.stop()
