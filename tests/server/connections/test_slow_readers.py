"""Clients that read a long answer slowly, or not at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from durability.errors import RefusedError
from durability.protocol import messages
from durability_server.connections import client_connection, turns
from durability_server.connections.client_connection import OUTPUT_BYTES_MAX
from tests.server.two_tenants import on, tenant, verdict_document
from tests.waiting import DEADLINE_S, until

if TYPE_CHECKING:
    from tests.server.conftest import Client, Lab, Running

RUN = 0x5107
HEARTBEATS = 5

pytestmark = pytest.mark.usefixtures("no_silence")


async def _with_long_answers(lab: Lab, url: str) -> Running:
    """A server with a run of which `Show` tells megabytes."""
    running = await lab.start(url)
    owner = await tenant(lab, running, "owner")
    await owner.cut(RUN, on(lab, "machine-7"), "durable")
    judge = await lab.connect(running.address, "verify", member=owner.member)
    for number in range(5):
        document = verdict_document("inconclusive") | {"text": str(number) * (OUTPUT_BYTES_MAX // 2)}
        await judge.ask(messages.GiveVerdict(run=RUN, document=document), messages.Stored)
    await judge.close()
    return running


async def _asker(lab: Lab, running: Running) -> Client:
    """The operator's client, which asks for a long answer and does not read it."""
    client = await lab.connect(running.address, "query", local=True)
    client.pause()
    client.say(messages.Show(run=RUN))
    return client


async def _heartbeats(lab: Lab, running: Running) -> None:
    """Returns when each connection was looked at several times."""
    watcher = await lab.connect(running.address, "query", local=True)
    watcher.pause()
    await until(lambda: len(watcher.unread()) >= HEARTBEATS)
    await watcher.close()


@pytest.mark.slow
async def test_a_slow_reader_gets_a_long_answer_whole(lab: Lab, sqlite_url: str) -> None:
    """A client that reads a part of a long answer at each of many heartbeats gets all of it, and another one
    after that on the same connection."""
    running = await _with_long_answers(lab, sqlite_url)
    client = await _asker(lab, running)
    for _ in range(HEARTBEATS):
        await _heartbeats(lab, running)
        client.say(messages.Ping(sent_ns=1))
        client.go_on()
        await asyncio.sleep(0)
        client.pause()
    client.go_on()
    async with asyncio.timeout(DEADLINE_S):
        shown = await client.get(messages.Shown)
        await client.ask(messages.Show(run=RUN), messages.Shown)
    assert len(messages.encode(shown)) > 2 * OUTPUT_BYTES_MAX


@pytest.mark.slow
async def test_who_takes_nothing_of_an_answer_is_dropped(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that says that it is alive, but takes nothing of a long answer, loses its connection."""
    monkeypatch.setattr(client_connection, "STALLED_S", 0.1)
    running = await _with_long_answers(lab, sqlite_url)
    client = await _asker(lab, running)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ConnectionError):
            while True:
                client.say(messages.Ping(sent_ns=1))
                await client.writer.drain()
                await asyncio.sleep(0.01)
    assert "bytes unread" in caplog.text


@pytest.mark.slow
async def test_the_memory_of_answers_that_nobody_reads_is_bounded(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that leaves long answers unread on many connections is refused at some number; when it has
    read one, it gets another."""
    monkeypatch.setattr(turns, "LARGE_MAX", 2)
    running = await _with_long_answers(lab, sqlite_url)
    deaf = [await _asker(lab, running) for _ in range(2)]
    await _heartbeats(lab, running)
    async with asyncio.timeout(DEADLINE_S):
        one_more = await lab.connect(running.address, "query", local=True)
        with pytest.raises(RefusedError) as refused:
            await one_more.ask(messages.Show(run=RUN), messages.Shown)
        assert refused.value.code == "busy"
        deaf[0].go_on()
        await deaf[0].get(messages.Shown)
        again = await lab.connect(running.address, "query", local=True)
        await again.ask(messages.Show(run=RUN), messages.Shown)
