"""A controller with switches behind it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from durability_lab.support import bmc
from durability_server.power.controller import Controller


@pytest_asyncio.fixture
async def controller(tmp_path: Path) -> AsyncIterator[Controller]:
    """A controller, which is ended afterwards."""
    controller = Controller(tmp_path / "switches")
    yield controller
    await controller.close()


@pytest.fixture(scope="session")
def fence_agents() -> None:
    """Skips where fence agents and a BMC are not installed, unless DURABILITY_LAB_REQUIRED=1."""
    problem = bmc.missing()
    if problem and os.environ.get("DURABILITY_LAB_REQUIRED") != "1":
        pytest.skip(problem)
    assert not problem, problem
