"""Several servers on one PostgreSQL store: who holds a run, and how another server takes it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, make_url, update
from sqlalchemy.exc import IntegrityError, OperationalError

from durability import limits
from durability.errors import AuthenticationError, RefusedError, StoreError
from durability.formats.case import Case
from durability.formats.packing import Value
from durability.protocol import messages
from durability_server import clock
from durability_server.runs import leases
from durability_server.store import lease_store, tables
from durability_server.store.client_store import ClientStore
from durability_server.store.store import Store
from tests.server.conftest import SECRET, ServerProcess
from tests.server.front import front
from tests.server.store.conftest import StoreFixture
from tests.server.store.test_gone_back import listening
from tests.waiting import DEADLINE_S, until

if TYPE_CHECKING:
    from durability_lab.support.postgresql import PostgreSQL
    from tests.server.conftest import Lab

SAVES = 300
SILENCE_NS = limits.SILENCE_NS  # before a fixture changes it
INCONCLUSIVE: dict[str, Value] = {
    "verdict": "inconclusive",
    "cut": {"class": "none"},
    "at_risk": {"ms1000": 0},
    "reasons": [],
}

StartServer = Callable[[], ServerProcess]


@pytest.fixture(autouse=True)
def patient(no_silence: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still makes no client silent, and no server give up what it asks for."""
    monkeypatch.setattr(leases, "ASKED_S", 3600.0)


@pytest.fixture
def long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease outlasts the test, so another server gets a run only from a holder that gives it up."""
    monkeypatch.setattr(lease_store, "LEASE_MS", 600_000)


@pytest.fixture
def store_url(postgresql: PostgreSQL) -> str:
    """An empty store that servers can share."""
    return postgresql.new_database()


@pytest.fixture
def start_server(store_url: str, tmp_path: Path, lab: Lab) -> Iterator[StartServer]:
    """A function that starts another server on the store."""
    servers: list[ServerProcess] = []

    def start() -> ServerProcess:
        server = ServerProcess(store_url, tmp_path / f"server{len(servers)}.log", lab)
        if servers:
            server.line = servers[0].line  # joined already
        server.start()
        servers.append(server)
        if len(servers) > 1 and servers[0].address in lab.members:
            lab.members[server.address] = lab.members[servers[0].address]
        return server

    yield start
    for server in servers:
        if server.process is not None and server.process.poll() is None:
            server.process.send_signal(signal.SIGCONT)
            server.end()


@pytest.fixture
async def two(start_server: StartServer) -> tuple[ServerProcess, ServerProcess]:
    """Two servers on one store, which the lab's clients have joined."""
    first = start_server()
    await first.join()
    return first, start_server()


@pytest.mark.usefixtures("long_leases")
async def test_a_run_goes_on_at_another_server(two: tuple[ServerProcess, ServerProcess], lab: Lab) -> None:
    """A client that resumes elsewhere gets the run before any lease ends, with all that was granted; its
    older connection is closed with the word for it."""
    first, second = two
    plan = lab.plan()
    client = await lab.connect(first.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(5, 6)
    again = await lab.connect(second.address)
    async with asyncio.timeout(DEADLINE_S):
        accepted = await again.resume(plan.run)
    assert (accepted.frontiers, accepted.grants) == ((5, 6), (5, 6))
    refused = await client.ended()
    assert isinstance(refused, RefusedError)
    assert refused.code == "moved"
    await again.acknowledge(7, 8)
    for server in two:  # and both say the same of it
        case = await lab.exported(server.address, plan.run, lambda case: case.frontiers == (7, 8))
        assert (case.session_end, case.tainted) == ("live", "")
        assert [receipt.frontiers for receipt in case.timeline][-2:] == [(5, 6), (7, 8)]
        assert "reboot" not in {event.kind for event in case.events}  # they share a clock


@pytest.mark.usefixtures("long_leases")
async def test_a_killed_servers_runs_are_taken_over(
    two: tuple[ServerProcess, ServerProcess], lab: Lab
) -> None:
    """After a server is killed, a client resumes its run at another server with everything that was granted.
    It does not wait for the lease."""
    first, second = two
    plan = lab.plan()
    client = await lab.connect(first.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(5, 6)
    first.end(signal.SIGKILL)
    again = await lab.connect(second.address)
    async with asyncio.timeout(DEADLINE_S):
        assert (await again.resume(plan.run)).grants == (5, 6)
    await again.acknowledge(7, 8)


@pytest.mark.usefixtures("long_leases")
async def test_a_stopped_servers_runs_are_free_at_once(
    two: tuple[ServerProcess, ServerProcess], lab: Lab
) -> None:
    """A server that is stopped in order waits for no lease, and leaves all that it has received."""
    first, second = two
    plan = lab.plan()
    client = await lab.connect(first.address)
    await client.begin(plan, lab.facts())
    client.say(messages.Ack(frontiers=(8, 9), control=0))
    await lab.exported(first.address, plan.run, lambda case: case.frontiers == (8, 9))
    assert first.end(signal.SIGTERM) == 0, first.log
    again = await lab.connect(second.address)
    async with asyncio.timeout(DEADLINE_S):
        assert (await again.resume(plan.run)).frontiers == (8, 9)


@pytest.mark.usefixtures("impatient_database")
async def test_a_server_that_stood_still_past_its_lease_is_refused(
    two: tuple[ServerProcess, ServerProcess], lab: Lab
) -> None:
    """A server that stood still past its lease cannot save acknowledgements of a run that another server
    took. It grants nothing, and informs its client."""
    first, second = two
    plan = lab.plan()
    stale = await lab.connect(first.address)
    await stale.begin(plan, lab.facts())
    await stale.acknowledge(5, 6)
    assert first.process is not None
    first.process.send_signal(signal.SIGSTOP)
    stale.say(messages.Ack(frontiers=(100, 100), control=0))  # in its socket, to be read later
    client = await lab.connect(second.address)
    async with asyncio.timeout(DEADLINE_S):
        assert (await client.resume(plan.run)).grants == (5, 6)
    await client.acknowledge(7, 8)
    first.process.send_signal(signal.SIGCONT)
    refused = await stale.ended()
    assert isinstance(refused, RefusedError)
    assert refused.code == "moved"
    assert not any(isinstance(message, messages.Credit) for message in stale.received)
    await client.acknowledge(9, 9)
    case = await lab.exported(first.address, plan.run, _live_at(9, 9))
    assert case.tainted == ""
    back = await lab.connect(first.address)  # nothing is wrong with that server
    async with asyncio.timeout(DEADLINE_S):
        assert (await back.resume(plan.run)).grants == (9, 9)
    await back.acknowledge(10, 10)


async def test_a_server_without_its_database_grants_nothing(
    two: tuple[ServerProcess, ServerProcess], lab: Lab, postgresql: PostgreSQL
) -> None:
    """A server that cannot renew its lease cannot commit either; when the database is back, who holds the run
    goes on with it, and so does the client, which was sent away if that took long."""
    first, _ = two
    plan = lab.plan()
    client = await lab.connect(first.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(1, 1)
    postgresql.stop()
    try:
        client.say(messages.Ack(frontiers=(2, 2), control=0))
        assert (await client.get(messages.Notice)).code == "store-unavailable"
        assert not any(isinstance(message, messages.Credit) for message in client.received)
    finally:
        await asyncio.to_thread(postgresql.start)
    try:
        assert (await client.get(messages.Credit)).grants == (2, 2)
    except RefusedError as refused:
        assert refused.code == "store-unavailable"
        client = await lab.connect(first.address)
        await client.resume(plan.run)
        await client.acknowledge(3, 3)


@pytest.mark.usefixtures("long_leases")
async def test_verify_at_another_server(lab: Lab, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose client fell silent is ended, judged and listed at any server; a live one is refused."""
    two = first, second = await lab.start(store_url), await lab.start(store_url)
    plan = lab.plan()
    client = await lab.connect(first.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(5, 6)
    await lab.exported(second.address, plan.run, lambda case: case.session_end == "live")
    for end in (False, True):
        verifier = await lab.connect(second.address, "verify")
        with pytest.raises(RefusedError) as refused:
            await verifier.fetch(plan.run, lab.facts(), end=end)
        assert refused.value.code == "run-live"
    await client.acknowledge(7, 8)  # which was not disturbed
    client.vanish()
    monkeypatch.setattr(limits, "SILENCE_NS", SILENCE_NS)
    await lab.exported(second.address, plan.run, lambda case: case.session_end == "silence")
    verifier = await lab.connect(second.address, "verify")
    async with asyncio.timeout(DEADLINE_S):
        case = await verifier.fetch(0, lab.facts(), end=True)
    assert (case.state, case.session_end, case.frontiers) == ("ended", "silence", (7, 8))
    await verifier.ask(messages.Evidence(run=plan.run, name="lost", data=b"x"), messages.Stored)
    await verifier.ask(messages.GiveVerdict(run=plan.run, document=INCONCLUSIVE), messages.Stored)
    for server in two:
        asker = await lab.connect(server.address, "query")
        (row,) = (await asker.ask(messages.List(limit=10), messages.Listing)).rows
        assert (row["state"], row["session_end"], row["verdict"], row["acked"]) == (
            "ended",
            "silence",
            "inconclusive",
            15,
        )
        later = await lab.connect(server.address)
        with pytest.raises(RefusedError) as refused:
            await later.resume(plan.run)
        assert refused.value.code == "run-ended"


@pytest.mark.usefixtures("long_leases")
async def test_a_client_that_still_looks_at_its_drives_is_not_cut_off(
    two: tuple[ServerProcess, ServerProcess], lab: Lab
) -> None:
    """After an I/O error of the target the session goes on for a while: another server must ask the holder,
    which keeps the run until the client has gone."""
    first, second = two
    plan = lab.plan()
    client = await lab.connect(first.address)
    await client.begin(plan, lab.facts())
    failed = messages.TargetFailed(errno=5, writer=0, seq=1, text="I/O error")
    await client.ask(failed, messages.Stopped)
    verifier = await lab.connect(second.address, "verify")
    with pytest.raises(RefusedError) as refused:
        await verifier.fetch(plan.run, lab.facts(), end=True)
    assert refused.value.code == "run-live"
    seen = messages.DriveSeen(error_age_us=1000, drive="dead", text="gone")
    await client.ask(seen, messages.Stored)
    await client.close()
    async with asyncio.timeout(DEADLINE_S):
        while True:
            verifier = await lab.connect(second.address, "verify")
            try:
                case = await verifier.fetch(plan.run, lab.facts(), end=True)
            except RefusedError as error:
                assert error.code == "run-live"
            else:
                break
    assert case.target_error is not None
    assert case.target_error.drive == "dead"


async def test_a_stranger_takes_no_run_from_a_server(
    two: tuple[ServerProcess, ServerProcess], lab: Lab
) -> None:
    """The holder does not give up a run to another client or to a client with a wrong secret."""
    first, second = two
    plan = lab.plan()
    client = await lab.connect(first.address)
    await client.begin(plan, lab.facts())
    operator = await lab.connect(first.address, "operate", local=True)
    line = (await operator.ask(messages.Invite(role="client", name=""), messages.Invited)).line
    other = await lab.join(second.address, line)  # the one's code is good at the other
    for member, secret in ((other, SECRET), (None, b"x" * 32)):
        thief = await lab.connect(second.address, member=member)
        with pytest.raises(RefusedError) as refused:
            await thief.resume(plan.run, secret)
        assert refused.value.code == "fenced"
    verifier = await lab.connect(second.address, "verify", member=other)
    with pytest.raises(RefusedError) as refused:
        await verifier.fetch(plan.run, lab.facts(), end=True)
    assert refused.value.code == "fenced"
    await client.acknowledge(1, 1)
    case = await lab.exported(second.address, plan.run, lambda case: case.frontiers == (1, 1))
    assert [event.kind for event in case.events] == ["session", "armed"]


async def test_a_revoked_client_is_cut_off_everywhere(
    two: tuple[ServerProcess, ServerProcess], lab: Lab
) -> None:
    """Its connections to the other servers end too, without a word of its own there."""
    first, second = two
    operator = await lab.connect(first.address, "operate", local=True)
    line = (await operator.ask(messages.Invite(role="client", name="b"), messages.Invited)).line
    member = await lab.join(second.address, line)
    (connected) = await lab.connect(second.address, member=member)
    await operator.ask(messages.Revoke(client="b"), messages.Revoked)
    async with asyncio.timeout(DEADLINE_S):
        assert isinstance(await connected.ended(), AuthenticationError)
    with pytest.raises(AuthenticationError):
        await lab.connect(second.address, member=member)


async def test_a_revoked_client_is_cut_off_though_the_database_was_away(
    start_server: StartServer, lab: Lab, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that cannot read who was revoked tries again."""
    read = ClientStore.revoked
    failed: list[bool] = []

    def revoked(store: ClientStore) -> tuple[str, ...]:
        if not failed:
            failed.append(True)
            raise StoreError("the database is away")
        return read(store)

    monkeypatch.setattr(ClientStore, "revoked", revoked)
    first, second = await lab.start(store_url), start_server()
    member = await lab.join(first.address, (await first.server.invite()).line, name="b")
    connected = await lab.connect(first.address, member=member)
    operator = await lab.connect(second.address, "operate", local=True)
    await operator.ask(messages.Revoke(client="b"), messages.Revoked)
    async with asyncio.timeout(DEADLINE_S):
        assert isinstance(await connected.ended(), AuthenticationError)
    assert failed


async def test_clients_hear_of_the_other_servers(start_server: StartServer, lab: Lab) -> None:
    """The welcome names those that live, and no others."""
    first = start_server()
    await first.join()
    assert (await lab.connect(first.address, "query")).session.welcome.servers == ()
    second = start_server()
    expected = {first.address: second.address, second.address: first.address}

    async def servers_named_at(server: ServerProcess) -> tuple[str, ...]:
        return (await lab.connect(server.address, "query")).session.welcome.servers

    async with asyncio.timeout(DEADLINE_S):
        for server in (first, second):
            host, port = expected[server.address]
            while await servers_named_at(server) != (f"{host}:{port}",):
                pass
        second.end(signal.SIGKILL)
        while await servers_named_at(first):
            pass


async def test_servers_that_start_at_once_are_one(store_url: str, tmp_path: Path, lab: Lab) -> None:
    """On an empty store both make the same tables, and one key: a code of one joins at both."""
    servers = [ServerProcess(store_url, tmp_path / f"{number}.log", lab) for number in range(3)]
    try:
        await asyncio.gather(*(asyncio.to_thread(server.start) for server in servers))
        prints = {(await lab.join(server.address, server.line)).fingerprint for server in servers}
        assert len(prints) == 1
        member = await lab.join(servers[1].address, await _line(lab, servers[0]))
        for server in servers:
            await lab.connect(server.address, "query", member=member)
    finally:
        for server in servers:
            server.end()


def _live_at(*frontiers: int) -> Callable[[Case], bool]:
    """Whether a case is live at these frontiers; after a standstill its server must first renew its lease."""
    return lambda case: (case.frontiers, case.session_end) == (frontiers, "live")


async def _line(lab: Lab, server: ServerProcess) -> str:
    operator = await lab.connect(server.address, "operate", local=True)
    return (await operator.ask(messages.Invite(role="client", name=""), messages.Invited)).line


async def test_a_code_is_used_once_whatever_the_server(
    two: tuple[ServerProcess, ServerProcess], lab: Lab
) -> None:
    """Both servers are shown one code at the same time; one client comes of it."""
    line = await _line(lab, two[0])
    outcomes = await asyncio.gather(
        *(lab.join(server.address, line) for server in two * 3), return_exceptions=True
    )
    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    codes = {outcome.code for outcome in outcomes if isinstance(outcome, RefusedError)}
    assert codes == {"code-used"}


async def test_runs_registered_at_once_are_all_kept(
    two: tuple[ServerProcess, ServerProcess], lab: Lab
) -> None:
    """Each gets a number of its own, and of two on one target the second is refused."""
    clients = [await lab.connect(server.address) for server in two * 5]
    plans = [lab.plan(run=number) for number in range(1, 11)]
    await asyncio.gather(
        *(
            client.begin(plan, lab.facts(serial=f"S{plan.run}", uuid=f"uuid-{plan.run}"))
            for client, plan in zip(clients, plans, strict=True)
        )
    )
    asker = await lab.connect(two[0].address, "query")
    rows = (await asker.ask(messages.List(limit=100), messages.Listing)).rows
    assert {int(str(row["run"]), 16) for row in rows} == {plan.run for plan in plans}


def test_what_was_saved_since_it_was_loaded_is_never_overwritten(store_url: str, lab: Lab) -> None:
    """A server that loads a run while its late holder still saves it must load it again: the frontier that
    was granted meanwhile stands."""
    late, taker = Store(store_url), Store(store_url)
    late.open()
    taker.open()
    try:
        StoreFixture(late, lab).register(1)
        held = late.load(1).snapshot
        held = replace(held, epoch=held.epoch + 1)
        assert late.save([held]) == {}
        loaded = taker.load(1).snapshot
        assert late.save([replace(held, frontiers=(5, 6), save=2)]) == {}
        taken = replace(loaded, epoch=loaded.epoch + 1, frontiers=(4, 4))
        assert taker.save([taken]) == {1: "moved"}
        assert taker.load(1).snapshot.frontiers == (5, 6)
        loaded = taker.load(1).snapshot
        assert taker.save([replace(loaded, epoch=loaded.epoch + 1, frontiers=(7, 7))]) == {}
        assert late.save([replace(held, frontiers=(8, 8), save=3, last_save=2)]) == {1: "moved"}
        with pytest.raises(RefusedError, match="another server"):
            late.arm(replace(late.load(1), snapshot=held, armed={}))
        assert late.load(1).snapshot.frontiers == (7, 7)
    finally:
        late.close()
        taker.close()


@pytest.mark.usefixtures("long_leases")
def test_a_run_is_taken_from_a_server_without_a_session(store_url: str, lab: Lab) -> None:
    """During a lease a run is taken only to be resumed, and only if its server has no session. That server
    may be alive, and cannot save the run any more. Once it is back, its other runs are its own."""
    holder, asker = Store(store_url), Store(store_url)
    holder.open()
    asker.open()
    try:
        snapshots = {}
        for run in (1, 2):
            StoreFixture(holder, lab).register(run)
            snapshots[run] = replace(holder.load(run).snapshot, epoch=1, session_end="live")
        holder.leases.begin("shelf:7420", "boot")
        holder.save([*snapshots.values()])
        assert asker.leases.want({1: "resume"}, {}).free == ()
        holder._database.close()
        deadline_s = time.monotonic() + DEADLINE_S
        while not asker.leases.want({}, {1: "resume", 2: "end"}).free:
            assert time.monotonic() < deadline_s  # PostgreSQL ends the session a moment later
        assert {run: asker.load(run).held_at for run in (1, 2)} == {1: "", 2: "shelf:7420"}
        assert holder.save([replace(snapshots[run], last_save=1, save=2) for run in (1, 2)]) == {1: "moved"}
        assert asker.leases.want({2: "resume"}, {}).free == ()
        found = asker.load(1).snapshot
        taken = replace(found, epoch=found.epoch + 1)
        assert asker.save([taken]) == {}
        with asker._database.transaction() as db:  # a standby takes over, and lacks what the asker did
            row = {"epoch": found.epoch, "saves": found.saves, "holder": holder.leases.me}
            db.execute(update(tables.runs).where(tables.runs.c.run == f"{1:016x}").values(row))
        assert asker.save([replace(taken, last_save=1, save=2)]) == {1: "behind"}
    finally:
        holder.close()
        asker.close()


@pytest.mark.usefixtures("long_leases")
async def test_a_run_that_was_set_aside_goes_on_at_another_server(
    start_server: StartServer, store_url: str, lab: Lab
) -> None:
    """The server that could not save it says what became of its session once it can read the store again. If
    the client goes on elsewhere by then, it stays there."""
    refused = 1000  # a number of control writes that the first server cannot save
    saves_failed, goes_on_there, looked_again = threading.Event(), threading.Event(), threading.Event()

    def fail(_connection: object, _cursor: object, statement: str, given: Any, *_: object) -> None:
        rows = given if isinstance(given, list) else [given]
        values = [value for row in rows for value in (row.values() if isinstance(row, dict) else row)]
        if statement.startswith("UPDATE runs") and refused in values:
            saves_failed.set()
            raise IntegrityError(statement, given, sqlite3.IntegrityError("not kept"))
        if threading.current_thread().name.startswith("store-look-up") and saves_failed.is_set():
            if not goes_on_there.is_set():
                raise OperationalError(statement, given, sqlite3.OperationalError("not read"))
            looked_again.set()

    first = await lab.start(store_url)
    second = start_server()
    lab.members[second.address] = lab.members[first.address]
    client = await lab.connect(first.address)
    await client.begin(lab.plan(run=1), lab.facts())
    await client.acknowledge(3, 3)
    with listening(fail):
        client.say(messages.Ack(frontiers=(9, 9), control=refused))
        assert isinstance(await client.ended(), RefusedError)
        again = await lab.connect(second.address)
        async with asyncio.timeout(DEADLINE_S):
            assert (await again.resume(1)).frontiers == (3, 3)
        await again.acknowledge(5, 5)
        goes_on_there.set()
        await until(looked_again.is_set)
        await until(lambda: not first.server._registry._closing)
    await again.acknowledge(7, 8)
    case = await lab.exported(first.address, 1, lambda case: case.frontiers == (7, 8))
    assert case.session_end == "live"


@pytest.mark.usefixtures("long_leases")
def test_a_lease_is_not_prolonged_by_the_databases_clock(store_url: str, lab: Lab) -> None:
    """After the clock was put back by an hour, the runs of a server that is over do not wait for an hour."""
    held, reader = Store(store_url), Store(store_url)
    held.open()
    reader.open()
    try:
        StoreFixture(held, lab).register(1)
        held.leases.begin("shelf:7420", "boot")
        snapshot = held.load(1).snapshot
        held.save([replace(snapshot, epoch=1, session_end="live")])
        found = reader.load(1)
        assert (found.held_at, found.snapshot.session_end) == ("shelf:7420", "live")
        with held._database.transaction() as db:
            db.exec_driver_sql("UPDATE servers SET expires = expires + 3600000")
        found = reader.load(1)
        assert (found.held_at, found.snapshot.session_end) == ("", "server-down")
        held.leases.renew("shelf:7420", "boot")
        assert reader.load(1).held_at == "shelf:7420"
    finally:
        held.close()
        reader.close()


def test_a_run_is_read_whole_while_its_holder_saves_it(store_url: str, lab: Lab) -> None:
    """Another server that reads a run sees the state of one save, not half of the next."""
    holder, reader = Store(store_url), Store(store_url)
    holder.open()
    reader.open()
    try:
        StoreFixture(holder, lab).register(1)
        held = holder.load(1).snapshot
        done = threading.Event()

        def save() -> None:
            for number in range(1, SAVES):
                data = number.to_bytes(4)
                snapshot = replace(held, frontiers=(number, number), timeline=data, credits=data)
                holder.save([replace(snapshot, last_receipt_ns=number)])
            done.set()

        saving = threading.Thread(target=save)
        saving.start()
        while not done.is_set():
            found = reader.load(1).snapshot
            number = found.last_receipt_ns
            if number:
                data = number.to_bytes(4)
                assert (found.frontiers, found.timeline, found.credits) == ((number, number), data, data)
        saving.join()
    finally:
        holder.close()
        reader.close()


def test_serve_tells_how_many_share_the_store(store_url: str, tmp_path: Path) -> None:
    """The command says it at its start, with their addresses; `--advertise` is what the others hear."""
    command = Path(sys.executable).with_name("durability")
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    serve = [str(command), "serve", "--store", store_url, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*serve, "--advertise", "shelf.example:7421"], env=environment, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert re.fullmatch(r"Listening on 127\.0\.0\.1:\d+\.\n", first.stdout.readline())
        with subprocess.Popen(serve, env=environment, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None
            second.stdout.readline()
            said = second.stdout.readline()
            second.terminate()
        first.terminate()
    assert said == "Sharing the store with 1 other server: shelf.example:7421.\n"


async def test_a_server_that_alone_has_lost_the_database_is_left(
    start_server: StartServer, store_url: str, tmp_path: Path, lab: Lab
) -> None:
    """Its clients are sent to the others, who take its runs; when it has the database again, nothing that it
    received meanwhile counts, and it serves as before."""
    other = start_server()
    await other.join()
    with _way_to(store_url) as way:
        lonely = ServerProcess(way.url, tmp_path / "lonely.log", lab)
        await _is_left(lonely, other, lab, lose=way.cut, give_back=way.open)


async def test_a_server_whose_database_falls_silent_is_left(
    start_server: StartServer, store_url: str, tmp_path: Path, lab: Lab
) -> None:
    """The same, though its call of the database hangs and nothing ends it."""
    other = start_server()
    await other.join()
    async with front(store_url) as way:
        lonely = ServerProcess(way.url("127.0.0.1"), tmp_path / "lonely.log", lab)
        await _is_left(lonely, other, lab, lose=way.withhold, give_back=way.release)


async def _is_left(
    lonely: ServerProcess,
    other: ServerProcess,
    lab: Lab,
    *,
    lose: Callable[[], None],
    give_back: Callable[[], None],
) -> None:
    """What happens to a run at the server `lonely` from when `lose` takes its database from it."""
    lonely.line = other.line
    await asyncio.to_thread(lonely.start)
    lab.members[lonely.address] = lab.members[other.address]
    try:
        plan = lab.plan()
        client = await lab.connect(lonely.address)
        await client.begin(plan, lab.facts())
        await client.acknowledge(5, 6)
        await lab.exported(other.address, plan.run, lambda case: case.session_end == "live")
        lose()
        client.say(messages.Ack(frontiers=(100, 100), control=0))
        async with asyncio.timeout(DEADLINE_S):
            refused = await client.ended()
        assert isinstance(refused, RefusedError)
        assert refused.code == "store-unavailable", lonely.log
        assert not any(isinstance(message, messages.Credit) for message in client.received)
        again = await lab.connect(other.address)
        async with asyncio.timeout(DEADLINE_S):
            assert (await again.resume(plan.run)).grants == (5, 6)
        await again.acknowledge(7, 8)
        give_back()
        await lab.exported(lonely.address, plan.run, _live_at(7, 8))
        await again.acknowledge(9, 9)
    finally:
        lonely.end()


class _Way:
    """A way to the database of `store_url` for one server, which can be cut; `url` goes over it."""

    def __init__(self, store_url: str, directory: Path) -> None:
        self._database = make_url(store_url)
        host = self._database.query["host"]
        assert isinstance(host, str)
        self._real = Path(host, ".s.PGSQL.5432")
        self._socket = directory / self._real.name
        way = {"host": str(directory), "application_name": "cut-off"}
        self.url = self._database.update_query_dict(way).render_as_string()

    def open(self) -> None:
        self._socket.symlink_to(self._real)

    def cut(self) -> None:
        """Nobody connects over it any more, and who has is thrown out."""
        self._socket.unlink()
        engine = create_engine(self._database.set(drivername="postgresql+psycopg"))
        with engine.begin() as database:
            database.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cut-off'"
            )
        engine.dispose()


@contextmanager
def _way_to(store_url: str) -> Iterator[_Way]:
    with tempfile.TemporaryDirectory(prefix="durability-way-") as directory:
        way = _Way(store_url, Path(directory))
        way.open()
        yield way


async def test_times_of_another_machine_are_not_compared(
    lab: Lab, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is taken over by a server on another machine keeps what was acknowledged, without its times,
    and the largest gap and round trip; credit that the first server gave counts."""
    monkeypatch.setattr(clock, "read_boot_id", lambda: "machine a")
    first = await lab.start(store_url)
    monkeypatch.setattr(clock, "read_boot_id", lambda: "machine b")
    second = await lab.start(store_url)
    plan = lab.plan()
    client = await lab.connect(first.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(100, 200)
    before = await lab.exported(first.address, plan.run, lambda case: case.rtt_max_ns > 0)
    assert {before.receipt_boot_id, before.server_boot_id} == {"machine a"}
    from_second = await lab.exported(second.address, plan.run, lambda case: case.frontiers == (100, 200))
    assert (from_second.receipt_boot_id, from_second.server_boot_id) == ("machine a", "machine b")

    again = await lab.connect(second.address)
    await again.resume(plan.run)
    far = plan.credit + 100
    again.say(messages.Ack(frontiers=(far, 200), control=0))  # within what the first has granted
    case = await lab.exported(second.address, plan.run, lambda case: case.frontiers == (far, 200))
    assert case.tainted == ""
    assert [receipt.frontiers for receipt in case.timeline] == [(100, 200), (far, 200)]
    assert case.timeline[0].at_ns == 0 < case.timeline[1].at_ns
    assert "reboot" in {event.kind for event in case.events}
    assert case.gap_max_ns >= before.gap_max_ns
    assert case.rtt_max_ns >= before.rtt_max_ns
    assert case.receipt_boot_id == "machine b"
