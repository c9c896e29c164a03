"""Receipts across restarts: what an earlier life of the server received is not taken for new."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from durability_server import clock

if TYPE_CHECKING:
    from tests.server.conftest import Lab, ServerProcess


@pytest.mark.slow
async def test_reboot_keeps_old_acknowledgements_old(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reboot the timeline begins with what the earlier boot received, before the first receipt."""
    plan = lab.plan()
    monkeypatch.setattr(clock, "read_boot_id", lambda: "the first boot")
    running = await lab.start(sqlite_url)
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(100, 200)
    await running.server.stop()

    monkeypatch.setattr(clock, "read_boot_id", lambda: "the second boot")
    running = await lab.start(sqlite_url)
    client = await lab.connect(running.address)
    await client.resume(plan.run)
    await client.acknowledge(101, 200)

    asker = await lab.connect(running.address, "query")
    case = await asker.export(plan.run)
    assert [receipt.frontiers for receipt in case.timeline] == [(100, 200), (101, 200)]
    assert case.timeline[0].at_ns == 0 < case.timeline[1].at_ns
    assert "reboot" in {event.kind for event in case.events}


@pytest.mark.slow
async def test_kill_keeps_old_acknowledgements_old(
    lab: Lab, server_process: Callable[[str], Awaitable[ServerProcess]], sqlite_url: str
) -> None:
    """Frontiers that were durable at a kill, but not in the saved timeline, came before the first receipt
    after it."""
    server = await server_process(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(server.address)
    await client.begin(plan, lab.facts())
    for step in range(1, 4):  # faster than timelines are saved
        await client.acknowledge(step, step)
    server.end(signal.SIGKILL)
    before_ns = clock.now_ns()
    server.start()

    client = await lab.connect(server.address)
    await client.resume(plan.run)
    await client.acknowledge(4, 4)

    asker = await lab.connect(server.address, "query")
    case = await asker.export(plan.run)
    old = [receipt for receipt in case.timeline if receipt.at_ns < before_ns]
    assert old[-1].frontiers == (3, 3)
    assert case.timeline[-1].frontiers == (4, 4)
