"""How often a client has its heartbeat, and what the server notes where that is seldom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from durability import limits
from durability_server.connections import connection_manager
from durability_server.connections.connection_manager import heartbeat_interval_ns

if TYPE_CHECKING:
    from tests.server.conftest import Lab

SELDOM_NS = 3600 * 10**9  # longer than a test takes


def test_the_interval_grows_with_the_connections() -> None:
    """Up to some hundreds it is what the evidence counts on; then the server's work stays the same."""
    assert heartbeat_interval_ns(1) == heartbeat_interval_ns(250) == limits.HEARTBEAT_NS
    assert heartbeat_interval_ns(1500) == 300_000_000


@pytest.mark.slow
@pytest.mark.usefixtures("no_silence")
async def test_a_rare_heartbeat_widens_the_cut(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut may be as long after the last frame as the next was due, which no gap has shown yet."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    monkeypatch.setattr(connection_manager, "heartbeat_interval_ns", lambda connections: SELDOM_NS)
    case = await lab.exported(running.address, plan.run, lambda case: case.gap_max_ns >= SELDOM_NS)
    assert case.heartbeat_ns == limits.HEARTBEAT_NS
    assert case.session_end == "live"
