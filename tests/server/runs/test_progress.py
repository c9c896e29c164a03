"""What a client says of its run every second is kept, and outlives client, server and connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from durability.errors import RefusedError
from durability.formats.packing import Value, pack
from durability.formats.run_statistics import statistics_to_value
from durability.protocol import messages
from durability.protocol.messages import Message
from durability.protocol.state_machine import DECODED_LATER_BYTES, Undecoded
from durability_server.connections.turns import Turns
from tests.core.evidence.memory_target import make_statistics
from tests.waiting import DEADLINE_S

if TYPE_CHECKING:
    from tests.server.conftest import Lab

FIRST = make_statistics(operations=(10, 20), flushes={"sda": 30})
NEWEST = make_statistics(operations=(12, 20), flushes={"sda": 32})


@pytest.mark.slow
async def test_the_newest_statistics_outlive_client_and_server(lab: Lab, store_url: str) -> None:
    """A machine that lost its power cannot say Stop: what it said a second before is in the case."""
    running = await lab.start(store_url)
    plan, client = lab.plan(), await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    client.say(messages.Ack(frontiers=(12, 20), control=0))
    for statistics in (FIRST, NEWEST):
        client.say(messages.Progress(statistics=statistics_to_value(statistics)))
    case = await lab.exported(running.address, plan.run, lambda case: case.statistics == NEWEST)
    assert case.session_end == "live"
    client.vanish()
    await lab.exported(running.address, plan.run, lambda case: case.session_end == "silence")
    await running.server.stop()

    running = await lab.start(store_url)
    case = await lab.exported(running.address, plan.run, lambda case: True)
    assert (case.statistics, case.frontiers) == (NEWEST, (12, 20))


async def test_a_stop_without_statistics_keeps_the_last(lab: Lab, sqlite_url: str) -> None:
    """An empty map says nothing, and takes nothing back."""
    running = await lab.start(sqlite_url)
    plan, client = lab.plan(), await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    client.say(messages.Ack(frontiers=(12, 20), control=0))
    client.say(messages.Progress(statistics=statistics_to_value(NEWEST)))
    await client.ask(messages.Stop(frontiers=(12, 20), control=0, statistics={}), messages.Stopped)
    case = await lab.exported(running.address, plan.run, lambda case: True)
    assert (case.session_end, case.statistics) == ("stop", NEWEST)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["fin", "server-down"])
async def test_what_has_come_is_kept_although_it_waits_to_be_decoded(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The connection may end, or the server stop, before a long message has had its turn; the newest that has
    come counts."""
    begun, never = asyncio.Event(), asyncio.Event()

    async def decoded(turns: Turns, message: Undecoded) -> Message:
        begun.set()
        await never.wait()
        raise AssertionError

    running = await lab.start(sqlite_url)
    plan, client = lab.plan(), await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    monkeypatch.setattr(Turns, "decoded", decoded)
    newest = make_statistics(operations=(12, 20), flushes={f"{number:099}": number for number in range(16)})
    value = statistics_to_value(newest)
    assert len(pack(value)) > DECODED_LATER_BYTES
    if end == "fin":
        client.say(messages.Progress(statistics={**value, "elapsed_s": 9.0}))
    client.say(messages.Progress(statistics=value))
    async with asyncio.timeout(DEADLINE_S):
        await begun.wait()
    if end == "fin":
        await client.close()
    else:
        await running.server.stop()
        running = await lab.start(sqlite_url)
    case = await lab.exported(running.address, plan.run, lambda case: case.session_end == end)
    assert case.statistics == newest


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"rate": 1.5}, {"operations": [1]}, {"latency_ns": {}}])
async def test_statistics_that_cannot_be_are_refused(
    lab: Lab, sqlite_url: str, wrong: dict[str, Value]
) -> None:
    """They end their own connection and change nothing."""
    running = await lab.start(sqlite_url)
    plan, client = lab.plan(), await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(1, 1)
    client.say(messages.Progress(statistics={**statistics_to_value(FIRST), **wrong}))
    error = await client.ended()
    assert isinstance(error, RefusedError)
    assert error.code == "bad-request"
    case = await lab.exported(running.address, plan.run, lambda case: True)
    assert (case.statistics, case.frontiers, case.tainted) == (None, (1, 1), "")
