"""What one client says of its run costs no other its credit, however little the store can keep of it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from durability.errors import RefusedError
from durability.formats.documents import to_value
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability.formats.run_statistics import statistics_to_value
from durability.protocol import messages
from durability.protocol.timeline import TimelineCopy
from durability_server.access.caller import Caller
from durability_server.runs import requests
from durability_server.runs.session import Session
from durability_server.store.records import MovedError
from durability_server.store.target_keys import series_key
from tests.core.evidence.memory_target import make_statistics
from tests.server.conftest import SECRET
from tests.server.store.test_gone_back import listening
from tests.waiting import DEADLINE_S, until

if TYPE_CHECKING:
    from tests.server.conftest import Lab

pytestmark = pytest.mark.usefixtures("no_silence")

STATISTICS: dict[str, Any] = statistics_to_value(make_statistics(operations=(1, 1), flushes={"sda": 1}))
REFUSED_CONTROL = 1000
LOSS: dict[str, Any] = {
    "verdict": "loss",
    "cut": {"class": "power"},
    "at_risk": {"ms1000": 1},
    "reasons": [{"code": "findings", "text": "3 lost"}, {"code": "of a later release", "text": ""}],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value"), [("cpus", "1" + "0" * 40), ("load", "nan"), ("busy_percent", "inf")]
)
async def test_statistics_that_cannot_be_kept_are_refused(
    lab: Lab, sqlite_url: str, field: str, value: str
) -> None:
    """Who says them loses its connection at once; all others have their credit, and the run can be shown."""
    running = await lab.start(sqlite_url)
    good, bad = await lab.connect(running.address), await lab.connect(running.address)
    await good.begin(lab.plan(run=1), lab.facts())
    await bad.begin(lab.plan(run=2), lab.facts(serial="S2", uuid="uuid-2"))
    wrong = {**STATISTICS, "conditions": {**STATISTICS["conditions"], field: value}}
    bad.say(messages.Progress(statistics=wrong))
    error = await bad.ended()
    assert isinstance(error, RefusedError)
    assert error.code == "bad-request"
    assert f"conditions.{field}" in str(error)
    await good.acknowledge(5, 5)
    case = await lab.exported(running.address, 2, lambda case: case.session_end == "rst")
    assert case.statistics is None


def _refuse(store_url: str, when: str) -> None:
    """The store takes no such change from now on, as it refuses what a defect lets through."""
    with closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as store, store:
        store.execute(f"CREATE TRIGGER refuse BEFORE {when} BEGIN SELECT RAISE(ABORT, 'not kept'); END")


@pytest.mark.slow
async def test_a_run_that_cannot_be_saved_is_set_aside(lab: Lab, sqlite_url: str) -> None:
    """The others of its commit get their credit. Its own client loses its connection, and goes on from what
    was saved before; who verifies the run need not wait for that client."""
    running = await lab.start(sqlite_url)
    await running.server.stop()
    _refuse(sqlite_url, f"UPDATE ON runs WHEN NEW.control = {REFUSED_CONTROL}")

    running = await lab.start(sqlite_url)
    facts = lab.facts(serial="S2", uuid="uuid-2")
    bad = await lab.connect(running.address)
    await bad.begin(lab.plan(run=100), facts)
    await bad.acknowledge(3, 3)
    others = [await lab.connect(running.address) for _ in range(4)]
    for number, other in enumerate(others):
        await other.begin(lab.plan(run=1 + number), lab.facts(serial=f"T{number}", uuid=f"other-{number}"))
    bad.say(messages.Ack(frontiers=(9, 9), control=REFUSED_CONTROL))
    for other in others:
        await other.acknowledge(5, 5)
    error = await bad.ended()
    assert isinstance(error, RefusedError)
    assert error.code == "internal"

    back = await lab.connect(running.address)
    accepted = await back.resume(100)
    assert accepted.frontiers == (3, 3)
    await back.acknowledge(9, 9)
    back.say(messages.Ack(frontiers=(10, 10), control=REFUSED_CONTROL))
    await back.ended()
    await lab.exported(running.address, 100, lambda case: case.session_end == "rst")
    case = await (await lab.connect(running.address, "verify")).fetch(100, facts, end=True)
    assert (case.state, case.session_end, case.frontiers) == ("ended", "rst", (9, 9))


async def test_a_run_that_was_set_aside_is_not_live_for_good(lab: Lab, store_url: str) -> None:
    """A run that was set aside also ends if the store cannot be read at first, because the server tries
    again. A verifier is not told that the run is live."""
    failed: list[str] = []

    def fail(_connection: object, _cursor: object, statement: str, given: Any, *_: object) -> None:
        rows = given if isinstance(given, list) else [given]
        values = [value for row in rows for value in (row.values() if isinstance(row, dict) else row)]
        if statement.startswith("UPDATE runs") and REFUSED_CONTROL in values:
            failed.append("save")
            raise IntegrityError(statement, given, sqlite3.IntegrityError("not kept"))
        if threading.current_thread().name.startswith("store-look-up") and failed == ["save"]:
            failed.append("load")
            raise OperationalError(statement, given, sqlite3.OperationalError("not read"))

    running = await lab.start(store_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(run=1), lab.facts())
    await client.acknowledge(3, 3)
    with listening(fail):
        client.say(messages.Ack(frontiers=(9, 9), control=REFUSED_CONTROL))
        assert isinstance(await client.ended(), RefusedError)
        await until(lambda: failed == ["save", "load"])
    await lab.exported(running.address, 1, lambda case: case.session_end == "rst")
    case = await (await lab.connect(running.address, "verify")).fetch(1, lab.facts(), end=True)
    assert (case.state, case.session_end, case.frontiers) == ("ended", "rst", (3, 3))


class _Channel:
    """A client that only the requests know, so that nothing ends what it has asked for."""

    name = "test"

    def __init__(self, client: str) -> None:
        self.caller: Caller | None = Caller(client=client, name="test", role="client")
        self.session: Session | None = None
        self.failed: list[str] = []

    def send(self, message: messages.Message) -> None:
        pass

    def fail(self, code: str, text: str) -> None:
        self.failed.append(code)


async def test_a_run_that_was_set_aside_is_not_armed(
    lab: Lab, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client has asked for that while the commit was under way that could not save the run, and has been
    told since that it goes on from what was saved before."""
    packing, arming, refused = threading.Event(), threading.Event(), threading.Event()
    pack = TimelineCopy.pack

    def pack_slowly(timeline: TimelineCopy) -> bytes:
        packing.set()
        assert arming.wait(DEADLINE_S)
        return pack(timeline)

    def key_seen(plan: Plan, facts: Facts) -> str:
        arming.set()
        return series_key(plan, facts)

    def refuse_once(_connection: object, _cursor: object, statement: str, given: Any, *_: object) -> None:
        if statement.startswith("UPDATE runs") and not refused.is_set():
            refused.set()
            raise IntegrityError(statement, given, sqlite3.IntegrityError("not kept"))

    running = await lab.start(store_url)
    server, committer = running.server, running.server._registry.committer
    channel, plan = _Channel(lab.members[running.address].client), lab.plan(run=1)
    facts = to_value(lab.facts())
    register = messages.Register(run=1, plan=plan.encode(), facts=facts, secret=SECRET, label="", force=False)
    await server._requests.answer(channel, register)
    assert channel.session is not None
    run = channel.session.run
    await committer.flush(run)
    monkeypatch.setattr(TimelineCopy, "pack", pack_slowly)
    monkeypatch.setattr(requests, "series_key", key_seen)
    async with asyncio.timeout(DEADLINE_S):
        with listening(refuse_once):
            saving = asyncio.create_task(committer.flush(run))
            await until(packing.is_set)
            with pytest.raises(MovedError):
                await server._requests.answer(channel, messages.ArmRun(facts=facts))
        with pytest.raises(MovedError):
            await saving
    assert (channel.failed, run.lost) == (["internal"], True)
    assert (await server._thread.call(server._store.load, 1)).armed is None


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
async def test_what_keeps_every_run_from_being_saved_is_no_runs_fault(
    lab: Lab, sqlite_url: str, count: int
) -> None:
    """No run is set aside, also not one that is alone. Writers wait, are told, and go on once runs can be
    saved. Here that is as long as no client has a certain name."""
    running = await lab.start(sqlite_url)
    await running.server.stop()
    _refuse(sqlite_url, "UPDATE ON runs WHEN EXISTS (SELECT 1 FROM clients WHERE name = 'broken')")

    running = await lab.start(sqlite_url)
    clients = [await lab.connect(running.address) for _ in range(count)]
    for number, client in enumerate(clients):
        await client.begin(lab.plan(run=1 + number), lab.facts(serial=f"T{number}", uuid=f"uuid-{number}"))
    operator = await lab.connect(running.address, "operate", local=True)
    await operator.ask(messages.Rename(client="test", name="broken"), messages.Stored)
    for client in clients:
        client.say(messages.Ack(frontiers=(5, 5), control=0))
    for client in clients:
        assert (await client.get(messages.Notice)).code == "store-unavailable"
    await operator.ask(messages.Rename(client="broken", name="test"), messages.Stored)
    for client in clients:
        while (await client.get(messages.Credit)).grants != (5, 5):
            pass


async def test_what_the_store_says_is_for_the_operator(
    lab: Lab, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client is told that the store refuses what it sent; which store that is, and why, is in the log."""
    running = await lab.start(sqlite_url)
    await running.server.stop()
    _refuse(sqlite_url, "INSERT ON runs")

    running = await lab.start(sqlite_url)
    for local in (False, True):
        client = await lab.connect(running.address, local=local)
        with pytest.raises(RefusedError) as refused:
            await client.register(lab.plan(), lab.facts())
        assert refused.value.code == "store-unavailable"
        assert ("not kept" in str(refused.value), sqlite_url in str(refused.value)) == (local, local)
        assert ("the server's store refuses this" in str(refused.value)) is not local
        assert "not kept" in caplog.text


async def with_ended_run(lab: Lab, store_url: str) -> tuple[str, int]:
    """The address of a server with the ended run 1, which its client may have judged."""
    running = await lab.start(store_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(run=1), lab.facts())
    await client.close()
    return running.address


async def refused_verdict(lab: Lab, address: tuple[str, int], document: dict[str, Any]) -> RefusedError:
    """The refusal of a verdict on that run."""
    verifier = await lab.connect(address, "verify")
    await verifier.fetch(1, lab.facts(), end=True)
    with pytest.raises(RefusedError) as refused:
        await verifier.ask(messages.GiveVerdict(run=1, document=document), messages.Stored)
    return refused.value


@pytest.mark.slow
async def test_a_flag_is_no_number_in_a_verdict(lab: Lab, store_url: str) -> None:
    """A boolean in place of a number in a verdict is refused before it reaches a database."""
    address = await with_ended_run(lab, store_url)
    refusal = await refused_verdict(lab, address, {**LOSS, "at_risk": {"ms1000": True}})
    assert refusal.code == "bad-request"


@pytest.mark.slow
async def test_reasons_of_another_form_are_no_verdict(lab: Lab, sqlite_url: str) -> None:
    """A verdict is refused unless each of its reasons has a code and a sentence, because readers expect
    both."""
    address = await with_ended_run(lab, sqlite_url)
    odd: list[Any] = ["findings", 7, None, {}, {"code": "findings"}, {"text": ""}, {"code": 1, "text": ""}]
    for reason in odd:
        refusal = await refused_verdict(lab, address, {**LOSS, "reasons": [*LOSS["reasons"], reason]})
        assert refusal.code == "bad-request" and "each of its reasons" in str(refusal)
    verifier = await lab.connect(address, "verify")
    await verifier.ask(messages.GiveVerdict(run=1, document=LOSS), messages.Stored)
