"""A store that can no longer be written while clients write."""

from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import make_url

from durability.errors import RefusedError
from durability.protocol import messages
from tests.waiting import until

if TYPE_CHECKING:
    from durability_lab.support.postgresql import PostgreSQL
    from tests.server.conftest import Client, Lab, MountSmall, ServerProcess, SmallDisk

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_silence")]


async def _until_told(client: Client) -> tuple[int, ...]:
    """Acknowledges until the server says that it cannot save; the last frontiers that it granted."""
    granted: tuple[int, ...] = (0, 0)
    for seq in range(2, 1000):
        client.say(messages.Ack(frontiers=(seq, seq), control=0))
        news = await client.get(messages.ServerMessage)
        if isinstance(news, messages.Notice):
            assert news.code == "store-unavailable"
            return granted
        assert isinstance(news, messages.Credit)
        granted = news.grants
    raise AssertionError("the server did not notice that it cannot save")


def _integrity(store_url: str) -> str:
    with closing(sqlite3.connect(str(make_url(store_url).database))) as database:
        return str(database.execute("PRAGMA integrity_check").fetchone()[0])


def _log_bytes(store_url: str) -> int:
    return Path(f"{make_url(store_url).database}-wal").stat().st_size


async def test_a_full_disk_pauses_credit_and_loses_nothing(small_disk: SmallDisk, lab: Lab) -> None:
    """Without space no credit is given, clients are told, requests refused; with space all is granted."""
    running = await lab.start(small_disk.store_url)
    plan, facts = lab.plan(), lab.facts()
    client = await lab.connect(running.address)
    await client.begin(plan, facts)
    await client.acknowledge(1, 1)
    small_disk.fill()
    granted = await _until_told(client)
    last = granted[0] + 100
    client.say(messages.Ack(frontiers=(last, last), control=0))
    for role, code in (("run", "store-unavailable"), ("verify", "run-live")):
        other = await lab.connect(running.address, role)
        with pytest.raises(RefusedError) as refused:
            if role == "run":
                await other.register(lab.plan(run=9), lab.facts(serial="S9"))
            else:
                await other.fetch(plan.run, facts, end=True)
        assert refused.value.code == code
    case = await lab.exported(running.address, plan.run, lambda case: case.frontiers == (last, last))
    assert case.grants[0] < last
    assert not any(isinstance(message, messages.Credit) for message in client.received)

    small_disk.free()
    assert (await client.get(messages.Credit)).grants == (last, last)
    assert (await client.get(messages.Notice)).code == "store-recovered"
    await running.server.stop()
    assert _integrity(small_disk.store_url) == "ok"
    running = await lab.start(small_disk.store_url)
    case = await lab.exported(running.address, plan.run, lambda case: True)
    assert case.frontiers == (last, last)


async def test_verify_is_refused_what_cannot_be_saved(small_disk: SmallDisk, lab: Lab) -> None:
    """A verify does not begin before the newest frontiers are durable (rule 4)."""
    running = await lab.start(small_disk.store_url)
    plan, facts = lab.plan(), lab.facts()
    client = await lab.connect(running.address)
    await client.begin(plan, facts)
    small_disk.fill()
    await _until_told(client)
    await client.close()
    verifier = await lab.connect(running.address, "verify")
    with pytest.raises(RefusedError) as refused:
        await verifier.fetch(plan.run, facts, end=True)
    assert refused.value.code == "store-unavailable"
    small_disk.free()
    verifier = await lab.connect(running.address, "verify")
    case = await verifier.fetch(plan.run, facts, end=True)
    assert case.frontiers == case.grants


async def test_a_killed_server_on_a_full_disk_comes_back(
    small_disk: SmallDisk, lab: Lab, server_process: Callable[[str], Awaitable[ServerProcess]]
) -> None:
    """Killed while it could not save, the server starts with what it had granted, and goes on."""
    server = await server_process(small_disk.store_url)
    plan = lab.plan()
    client = await lab.connect(server.address)
    await client.begin(plan, lab.facts())
    small_disk.fill()
    granted = await _until_told(client)
    server.end()
    small_disk.free()
    server.start()
    client = await lab.connect(server.address)
    assert (await client.resume(plan.run)).frontiers >= granted
    await client.acknowledge(900, 900)


async def test_a_database_file_that_may_not_grow(
    lab: Lab, server_process: Callable[[str], Awaitable[ServerProcess]], sqlite_url: str
) -> None:
    """A write that fails in any other way than for lack of space is survived in the same way."""
    server = await server_process(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(server.address)
    await client.begin(plan, lab.facts())
    assert server.process is not None
    hard = resource.RLIM_INFINITY
    size = _log_bytes(sqlite_url)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, hard))
    granted = await _until_told(client)
    assert not any(isinstance(message, messages.Credit) for message in client.received)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert (await client.get(messages.Credit)).grants > granted
    server.end()
    assert _integrity(sqlite_url) == "ok"


@dataclass(frozen=True, slots=True)
class FullStore:
    """A store whose disk can be filled up and given room again. `runs`: how many it takes that they cannot be
    marked in the room that is left in it."""

    url: str
    runs: int
    fill: Callable[[], None]
    free: Callable[[], None]


@pytest.fixture(params=["tmpfs", "ext4", "xfs", "btrfs", "postgresql"])
def full_store(request: pytest.FixtureRequest) -> Iterator[FullStore]:
    """SQLite on small file systems, and a database of PostgreSQL in a tablespace on a small one."""
    if request.param == "tmpfs":
        disk: SmallDisk = request.getfixturevalue("small_disk")
        yield FullStore(disk.store_url, 3, disk.fill, disk.free)
    elif request.param == "postgresql":
        mount_small: MountSmall = request.getfixturevalue("mount_small")
        disk = mount_small("tmpfs", size_mib=24, readable=True)
        server: PostgreSQL = request.getfixturevalue("postgresql")
        with server.database_in(disk.directory / "space") as url:
            yield FullStore(url, 60, disk.fill, disk.free)
    else:
        disk = request.getfixturevalue("mount_small")(request.param)
        yield FullStore(disk.store_url, 3, disk.fill, disk.free)


async def notice_or_credit(client: Client) -> messages.Notice | messages.Credit:
    """The next of both."""
    while not isinstance(said := await client.get(messages.Message), messages.Notice | messages.Credit):
        pass
    return said


async def refusal_of_runs(lab: Lab, address: tuple[str, int]) -> str:
    """The code with which large runs are refused, sooner or later: the first may still fit."""
    with pytest.raises(RefusedError) as refused:
        for number in range(100, 200):
            other = await lab.connect(address)
            plan = lab.plan(run=number, writers=256, slots=100_000)
            await other.register(plan, lab.facts(serial=f"N{number}"))
    return refused.value.code


@pytest.mark.lab
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_server_starts_with_a_full_disk(
    full_store: FullStore,
    lab: Lab,
    server_process: Callable[[str], Awaitable[ServerProcess]],
    signal_number: signal.Signals,
) -> None:
    """It lists, shows and exports what it has, with no run as live that an earlier server left so; it grants
    nothing and says why to clients and in its log; with room again it goes on by itself."""
    server = await server_process(full_store.url)
    plans = [lab.plan(run=number) for number in range(1, full_store.runs + 1)]
    for plan in plans:
        client = await lab.connect(server.address)
        await client.begin(plan, lab.facts(serial=f"S{plan.run}", uuid=f"uuid-{plan.run}"))
        await client.acknowledge(5, 5)
    full_store.fill()
    assert server.end(signal_number) in (0, -signal.SIGKILL)
    server.start()

    asker = await lab.connect(server.address, "query")
    rows = (await asker.ask(messages.List(limit=100), messages.Listing)).rows
    ends = {row["session_end"] for row in rows}
    assert (len(rows), ends & {"live"}) == (len(plans), set())
    if signal_number == signal.SIGKILL:
        assert ends == {"server-down"}
    first, second = plans[0].run, plans[1].run
    shown = (await asker.ask(messages.Show(run=first), messages.Shown)).document
    assert shown["case"]["session_end"] != "live"  # type: ignore[index, call-overload]
    assert (await asker.export(first)).frontiers == (5, 5)
    await until(lambda: "granting no credit until it works again" in server.log)

    client = await lab.connect(server.address)
    assert (await client.resume(first)).grants == (5, 5)
    client.say(messages.Ack(frontiers=(6, 6), control=0))
    said = await notice_or_credit(client)
    # PostgreSQL finds room where rows have died, once nobody sees them any more, and the server goes on. It
    # may never have failed, if its predecessor ended in order and logged the failure.
    goes_on = full_store.url.startswith("postgresql")
    if isinstance(said, messages.Notice):
        assert (said.code, "cannot save" in said.text) == ("store-unavailable", True)
    else:
        assert goes_on and said.grants == (6, 6)
    assert await refusal_of_runs(lab, server.address) == "store-unavailable"
    case = await lab.exported(server.address, first, lambda case: case.frontiers == (6, 6))
    if case.grants == (6, 6):
        assert goes_on
    else:
        assert case.grants == (5, 5)
        assert not any(isinstance(message, messages.Credit) for message in client.received)

    full_store.free()
    if isinstance(said, messages.Notice):
        assert (await client.get(messages.Credit)).grants == (6, 6)
        assert (await client.get(messages.Notice)).code == "store-recovered"
        await until(lambda: ": works again" in server.log)
    await lab.exported(server.address, second, lambda case: case.session_end != "live")
    await client.acknowledge(7, 7)
    server.end()
    server.start()
    case = await lab.exported(server.address, first, lambda case: True)
    assert (case.frontiers, case.session_end) == ((7, 7), "server-down")


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
async def test_a_full_disk_costs_the_live_page_and_not_the_server(
    mount_small: MountSmall,
    lab: Lab,
    server_process: Callable[[str], Awaitable[ServerProcess]],
    kind: str,
) -> None:
    """The page reads the store beside the server, for which SQLite needs a file; without room for that the
    server starts alone, and says so."""
    disk = mount_small(kind)
    server = await server_process(disk.store_url)
    client = await lab.connect(server.address)
    await client.begin(lab.plan(), lab.facts())
    await client.acknowledge(5, 5)
    disk.fill()
    assert server.end(signal.SIGTERM) == 0
    before = len(server.log)
    server.web = "127.0.0.1:0"
    server.start()
    asker = await lab.connect(server.address, "query")
    rows = (await asker.ask(messages.List(limit=100), messages.Listing)).rows
    assert len(rows) == 1
    await until(lambda: "live page: it is left out: the store's disk has no room" in server.log[before:])
    assert server.end(signal.SIGTERM) == 0
    disk.free()
    before = len(server.log)
    server.start()
    assert "live page" not in server.log[before:]
    assert server.end(signal.SIGTERM) == 0  # and with it the page, which reads the store


async def test_what_an_earlier_server_left_live_is_marked_without_any_client(
    small_disk: SmallDisk, lab: Lab, server_process: Callable[[str], Awaitable[ServerProcess]]
) -> None:
    """The mark that could not be written to a full disk is written when there is room, even if no client
    connects."""
    server = await server_process(small_disk.store_url)
    client = await lab.connect(server.address)
    await client.begin(lab.plan(), lab.facts())
    await client.acknowledge(5, 5)
    small_disk.fill()
    server.end()
    before = len(server.log)
    server.start()
    small_disk.free()
    async with asyncio.timeout(60):
        while ": works again" not in server.log[before:]:
            await (await lab.connect(server.address, "query")).close()
    server.end()
    with closing(sqlite3.connect(str(make_url(small_disk.store_url).database))) as database:
        assert database.execute("SELECT session_end FROM runs").fetchall() == [("server-down",)], server.log
