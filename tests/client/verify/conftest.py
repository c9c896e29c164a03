"""A server and a run for the tests of `verify`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from durability.formats.plan import Plan
from durability_server.server import Server
from tests.client.verify.verify_lab import Lab
from tests.joined import joined

MakePlan = Callable[..., Plan]


@pytest.fixture
async def lab(tmp_path: Path, make_plan: MakePlan) -> AsyncIterator[Lab]:
    server = Server(store_url=f"sqlite:///{tmp_path / 'store.sqlite'}")
    host, port = await server.start("127.0.0.1", 0, directory=None)
    where = await joined(server, host, port, credential=tmp_path / "credential.json")
    lab = Lab(tmp_path, where, make_plan)
    yield lab
    lab.end()
    await server.stop()
