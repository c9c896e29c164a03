"""Verdicts do not depend on the network: delayed, cut and resumed, or gone with the client's machine."""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from durability.errors import TargetError
from durability.units import parse_address
from durability_client.link.endpoint import Endpoint
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import RunSummary, run
from durability_client.run.sender import run_in_fine_loop
from durability_client.verify.verify_command import VerifyOptions, verify
from durability_lab.drive.faults import FlushIgnored, Honest
from durability_lab.simulated_rig.simulated_storage import SimulatedStorage
from durability_lab.support.local_server import LocalServer, local_server
from durability_lab.support.tcp_proxy import TcpProxy
from durability_server.runs.run import Run
from tests.waiting import until

SIZE_BYTES = 32 << 20
SYNC_S = 0.001
RECORD_BYTES = 512  # many slots, so that the credit lasts for the longest round trip
CUTS = 4
BETWEEN_CUTS = range(200, 2000)  # operations

Client = asyncio.Task[RunSummary]


def new_seed() -> int:
    """Another seed in every session, printed when a test fails."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    return seed


@asynccontextmanager
async def proxied(*, delay_s: float = 0.0) -> AsyncIterator[tuple[LocalServer, TcpProxy]]:
    """A server and a proxy to it, with a delay each way."""
    async with local_server() as lab, TcpProxy(*parse_address(lab.address), delay_s=delay_s) as proxy:
        yield lab, proxy


def has_ended(run: Run) -> bool:
    """Whether the server knows how the session ended, which is no event."""
    return run.session_end != "live"


def through(lab: LocalServer, address: str) -> Endpoint:
    """The server at the address of a proxy."""
    return replace(lab.endpoint, addresses=(parse_address(address),))


def start(lab: LocalServer, proxy: TcpProxy, drives: Sequence[SimulatedStorage]) -> list[Client]:
    """A client on each of `drives`, behind the proxy."""
    options = RunOptions(
        endpoint=through(lab, proxy.address),
        size_bytes=SIZE_BYTES,
        record_bytes=RECORD_BYTES,
        direct=True,  # no page cache lies above a simulated drive
        destroy_data=True,
    )
    return [asyncio.create_task(run(options, drive, io.StringIO())) for drive in drives]


async def until_acked(lab: LocalServer, drive: SimulatedStorage, client: Client, count: int) -> None:
    """Wait until the server has received `count` more operations of the drive's run."""
    live = lab.live_run(drive.path)
    before = sum(live.frontiers.acked) if live is not None else 0
    assert await lab.until_acked(drive.path, before + count, client), client


async def verdict(lab: LocalServer, server: str, drive: SimulatedStorage) -> dict[str, Any]:
    """The document of `verify --json` of the drive with its power back, over `server`."""
    drive.power_on()
    answer = io.StringIO()
    options = VerifyOptions(
        target=None,
        endpoint=through(lab, server),
        attest_cut="the drive was cut",
        json=True,
    )
    await verify(options, storage=drive, out=answer)
    document: dict[str, Any] = json.loads(answer.getvalue())
    return document


def assert_right(documents: Sequence[dict[str, Any]]) -> None:
    """The honest drive's document comes first, the liar's second."""
    assert [document["verdict"] for document in documents] == ["durable", "loss"], documents
    assert all(document["at_risk"]["ms1000"] > 0 for document in documents), documents


async def cut_again_and_again(delay_s: float, seed: int) -> None:
    """Two runs whose connections are reset at drawn operations; then their drives are cut and judged."""
    chance = random.Random(seed)
    drives = [
        SimulatedStorage(model, seed=seed, size_bytes=SIZE_BYTES, sync_s=SYNC_S)
        for model in (Honest(), FlushIgnored())
    ]
    async with proxied(delay_s=delay_s) as (lab, proxy):
        clients = start(lab, proxy, drives)
        for _ in range(CUTS):
            for drive, client in zip(drives, clients, strict=True):
                await until_acked(lab, drive, client, chance.choice(BETWEEN_CUTS))
            proxy.cut()
        for drive, client in zip(drives, clients, strict=True):
            await until_acked(lab, drive, client, chance.choice(BETWEEN_CUTS))
            drive.cut()
            with pytest.raises(TargetError, match="the server has them"):
                await client
        # Each piece of evidence is a round trip: over the slow network that alone would take half a minute.
        assert_right([await verdict(lab, lab.address, drive) for drive in drives])


@pytest.mark.slow
@pytest.mark.parametrize("delay_us", [200, 5_000, 100_000])
def test_connection_that_is_cut_and_slow_costs_no_verdict(delay_us: int) -> None:
    """With any round trip and repeated connection resets, an honest drive gets durable and a liar gets
    loss."""
    run_in_fine_loop(cut_again_and_again(delay_us / 1e6, new_seed()))


async def lose_machines(seed: int) -> None:
    """Two client machines that fall silent with their drives, without a word to the server."""
    drives = [
        SimulatedStorage(model, seed=seed, size_bytes=SIZE_BYTES, sync_s=SYNC_S)
        for model in (Honest(), FlushIgnored())
    ]
    documents = []
    async with local_server() as lab:
        for drive in drives:
            async with TcpProxy(*parse_address(lab.address)) as proxy:
                (client,) = start(lab, proxy, [drive])
                await until_acked(lab, drive, client, max(BETWEEN_CUTS))
                live = lab.live_run(drive.path)
                assert live is not None
                proxy.to_server.lost = proxy.to_client.lost = True
                drive.cut()
                client.cancel()
                with suppress(asyncio.CancelledError, TargetError):
                    await client
                await until(partial(has_ended, live))
                assert live.session_end == "silence"
                documents.append(await verdict(lab, lab.address, drive))
    assert_right(documents)


@pytest.mark.slow
def test_machine_that_falls_silent_with_its_drive_is_judged() -> None:
    """No FIN, no reset, no error report, as after a cut of the whole machine: honest durable, liar loss."""
    run_in_fine_loop(lose_machines(new_seed()))


async def test_delay_is_that_of_each_way() -> None:
    """Bytes come back no sooner than both delays allow, in order; a lost way hands on nothing."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    async with TcpProxy(*server.sockets[0].getsockname()[:2]) as proxy:
        reader, writer = await asyncio.open_connection(*parse_address(proxy.address))
        proxy.to_server.delay_s, proxy.to_client.delay_s = 0.02, 0.03
        began_s = loop.time()
        for number in range(10):
            writer.write(bytes([number]) * 100)
        assert await reader.readexactly(1000) == b"".join(bytes([number]) * 100 for number in range(10))
        assert loop.time() - began_s >= 0.05
        proxy.to_server.lost = True
        writer.write(b"never")
        writer.write_eof()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()
    server.close()
