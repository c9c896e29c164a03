"""What one client may take of the store and of the server's time, and what is kept free of its disk."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import make_url, select

from durability import limits
from durability.errors import RefusedError
from durability.formats.case import case_from_value
from durability.formats.documents import to_value
from durability.formats.packing import Value
from durability.formats.run_statistics import statistics_to_value
from durability.protocol import messages
from durability_server.runs import given_bytes
from durability_server.store import evidence_rows, tables
from durability_server.store import store as store_module
from tests.core.evidence.memory_target import make_statistics
from tests.server.conftest import SECRET
from tests.server.store.test_gone_back import listening
from tests.waiting import DEADLINE_S, until

if TYPE_CHECKING:
    from tests.server.conftest import Client, Lab

pytestmark = pytest.mark.usefixtures("no_silence")

VERDICT: dict[str, Value] = {
    "verdict": "inconclusive",
    "reasons": [{"code": "cut-not-shown", "text": "no cut"}],
    "cut": {"class": "power"},
    "at_risk": {"ms1000": 7},
    "filling": "x" * 10_000,
}
LOSS = {**VERDICT, "verdict": "loss", "reasons": [{"code": "findings", "text": "3 lost"}]}


async def _ended(lab: Lab, address: tuple[str, int], run: int) -> Client:
    """A verifier that has ended a run, which was armed."""
    client = await lab.connect(address)
    facts = lab.facts(serial=f"S{run}")
    await client.begin(lab.plan(run=run), facts, force=True)
    await client.close()
    verifier = await lab.connect(address, "verify")
    await verifier.fetch(run, facts, end=True)
    return verifier


async def _verdicts(client: Client, run: int, count: int, document: dict[str, Value] | None = None) -> int:
    """Gives so many verdicts, one after the other; how many were taken before one was refused."""
    for number in range(count):
        try:
            await client.ask(messages.GiveVerdict(run=run, document=document or VERDICT), messages.Stored)
        except RefusedError as error:
            assert error.code == "quota"
            assert "the maximum of one client" in str(error)
            return number
    return count


@pytest.mark.slow
async def test_verdicts_count_in_the_quota_of_a_client(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents of verdicts take of the same bytes as evidence; then nothing more is taken of the client but
    a few losses, and no run of it begins, while another client and the operator go on."""
    monkeypatch.setattr(evidence_rows, "BYTES_OF_CLIENT_MAX", 40_000)
    monkeypatch.setattr(evidence_rows, "BYTES_NOT_FOR_EVIDENCE", 0)
    monkeypatch.setattr(evidence_rows, "BYTES_BEYOND_FOR_VERDICTS", 0)
    monkeypatch.setattr(evidence_rows, "BYTES_BEYOND_FOR_LOSSES", 20_000)
    running = await lab.start(sqlite_url)
    verifier = await _ended(lab, running.address, 1)
    piece = messages.Evidence(run=1, name="e", data=bytes(10_000))
    await verifier.ask(piece, messages.Stored)
    assert await _verdicts(verifier, 1, 10) == 3
    verifier = await lab.connect(running.address, "verify")
    assert await _verdicts(verifier, 1, 10, LOSS) == 2
    verifier = await lab.connect(running.address, "verify")
    with pytest.raises(RefusedError) as refused:
        await verifier.ask(piece, messages.Stored)
    assert refused.value.code == "quota"
    client = await lab.connect(running.address)
    with pytest.raises(RefusedError) as refused:
        await client.register(lab.plan(run=2), lab.facts(serial="S2"))
    assert refused.value.code == "quota"

    lab.members[running.address] = await lab.join(running.address, (await running.server.invite()).line)
    assert await _verdicts(await _ended(lab, running.address, 3), 3, 2) == 2
    operator = await lab.connect(running.address, local=True)
    await operator.begin(lab.plan(run=4), lab.facts(serial="S4"))


@pytest.mark.slow
@pytest.mark.parametrize("table", ["evidence", "verdicts", "runs", "registrations"])
async def test_what_is_stored_counts_though_its_client_is_gone(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Else a client that resets its connection just then gives without end. `table`: in which the store
    changes something when the connection ends."""
    begun, go_on = threading.Event(), threading.Event()

    def wait(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith((f"INSERT INTO {table} ", f"DELETE FROM {table} ")):
            begun.set()
            assert go_on.wait(DEADLINE_S)

    running = await lab.start(sqlite_url)
    client = await _ended(lab, running.address, 1)
    said: messages.Message = messages.Evidence(run=1, name="e", data=bytes(10_000))
    if table == "verdicts":
        said = messages.GiveVerdict(run=1, document=VERDICT)
    elif table in ("runs", "registrations"):
        client = await lab.connect(running.address)
        facts = to_value(lab.facts(serial="S2", path="/" + "x" * 4000))
        register = messages.Register(
            run=2, plan=lab.plan(run=2).encode(), facts=facts, secret=SECRET, label="", force=False
        )
        said = register
        if table == "registrations":
            await client.ask(register, messages.Accepted)
            said = messages.ArmRun(facts=facts)
    total = running.server._requests._given._of[lab.members[running.address].client].total
    for name in ("BYTES_NOT_FOR_EVIDENCE", "BYTES_BEYOND_FOR_VERDICTS"):
        monkeypatch.setattr(evidence_rows, name, 0)
    monkeypatch.setattr(evidence_rows, "BYTES_OF_CLIENT_MAX", total + 1)
    before = running.server.connections
    with listening(wait):
        client.say(said)
        await until(begun.is_set)
        client.reset()
        await until(lambda: running.server.connections < before)
        go_on.set()
        await running.server._thread.call(lambda: None)
    again = await lab.connect(running.address, "verify")
    with pytest.raises(RefusedError) as refused:
        await again.ask(messages.Evidence(run=1, name="more", data=b"1"), messages.Stored)
    assert refused.value.code == "quota"


@pytest.mark.slow
async def test_a_reason_that_is_given_again_and_again_is_stored_once(lab: Lab, sqlite_url: str) -> None:
    """The store keeps each reason code of a verdict once, because a query for a series returns the reasons of
    all its runs."""
    running = await lab.start(sqlite_url)
    verifier = await _ended(lab, running.address, 1)
    once: list[Value] = [{"code": "cut-not-shown", "text": ""}, {"code": "unstable", "text": ""}]
    repeated = {**VERDICT, "reasons": once * (limits.MEMBERS_FROM_CLIENT_MAX // 2), "filling": ""}
    await verifier.ask(messages.GiveVerdict(run=1, document=repeated), messages.Stored)
    with running.server._store._database.reading() as db:
        stored = db.execute(select(tables.verdicts.c.reasons)).scalar_one()
    assert stored == "cut-not-shown unstable"


@pytest.mark.slow
async def test_evidence_leaves_room_for_runs_and_verdicts(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drive that loses data at each cut gives megabytes each time. Runs on the machine's other drives begin
    all the same, and their verdicts are stored."""
    monkeypatch.setattr(evidence_rows, "BYTES_OF_CLIENT_MAX", 100_000)
    monkeypatch.setattr(evidence_rows, "BYTES_NOT_FOR_EVIDENCE", 60_000)
    running = await lab.start(sqlite_url)
    with pytest.raises(RefusedError, match="the maximum of one client for more evidence") as refused:
        verifier = await _ended(lab, running.address, 1)
        for number in range(10):
            piece = messages.Evidence(run=1, name=f"e{number}", data=bytes(10_000))
            await verifier.ask(piece, messages.Stored)
    assert refused.value.code == "quota" and 2 <= number <= 4
    assert await _verdicts(await lab.connect(running.address, "verify"), 1, 1) == 1
    assert await _verdicts(await _ended(lab, running.address, 2), 2, 1) == 1


async def test_a_run_that_was_armed_gets_its_verdict(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs of a cycle are armed together, and may fill the quota together; then no other run begins."""
    running = await lab.start(sqlite_url)
    verifier = await _ended(lab, running.address, 1)
    monkeypatch.setattr(evidence_rows, "BYTES_OF_CLIENT_MAX", 0)
    assert await _verdicts(verifier, 1, 2) == 2
    client = await lab.connect(running.address)
    with pytest.raises(RefusedError) as refused:
        await client.register(lab.plan(run=2), lab.facts(serial="S2"))
    assert refused.value.code == "quota"


@pytest.mark.slow
async def test_facts_count_in_the_quota_of_a_client(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The facts of armed runs take of it too; a run that was registered before is not armed then."""
    layers = tuple(f"layer-{number}-{'x' * 100}" for number in range(100))
    monkeypatch.setattr(evidence_rows, "BYTES_OF_CLIENT_MAX", 30_000)
    running = await lab.start(sqlite_url)
    early = await lab.connect(running.address)
    await early.register(lab.plan(run=9), lab.facts(serial="S9"))
    for run in (1, 2, 3):
        await (await lab.connect(running.address)).begin(
            lab.plan(run=run), lab.facts(serial=f"S{run}", layers=layers), force=True
        )
    with pytest.raises(RefusedError) as refused:
        await early.ask(messages.ArmRun(facts=to_value(lab.facts())), messages.Armed)
    assert refused.value.code == "quota"


@pytest.mark.slow
@pytest.mark.parametrize("counted_again", [False, True])
async def test_registered_runs_count_in_the_quota_of_a_client(
    lab: Lab, store_url: str, monkeypatch: pytest.MonkeyPatch, counted_again: bool
) -> None:
    """Its path, and what is known of its target, take of it though the run is never armed; also for a server
    that has counted nothing yet."""
    monkeypatch.setattr(evidence_rows, "BYTES_OF_CLIENT_MAX", 20_000)
    running = await lab.start(store_url)
    taken = 0
    with pytest.raises(RefusedError) as refused:
        for run in range(1, 20):
            client = await lab.connect(running.address)
            facts = lab.facts(serial=f"S{run}", path=f"/{run}/{'x' * 4000}")
            await client.register(lab.plan(run=run), facts)
            taken += 1
            if counted_again and taken == 3:
                await running.server.stop()
                running = await lab.start(store_url)
    assert refused.value.code == "quota"
    assert taken == 4


@pytest.mark.slow
async def test_what_a_run_gives_by_itself_is_counted_now_and_then(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics come while a run goes on, and are in the next count."""
    monkeypatch.setattr(given_bytes, "COUNTED_S", 0.0)
    running = await lab.start(sqlite_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(run=1), lab.facts())
    me = lab.members[running.address].client
    before = running.server._store.bytes_of(me)
    many: dict[str, int | None] = {f"drive-{number}-{'x' * 100}": 1 for number in range(300)}
    statistics = statistics_to_value(make_statistics(operations=(1, 1), flushes=many))
    client.say(messages.Progress(statistics=statistics))
    await lab.exported(running.address, 1, lambda case: case.statistics is not None)
    await client.close()
    await lab.exported(running.address, 1, lambda case: case.session_end == "fin")
    monkeypatch.setattr(evidence_rows, "BYTES_OF_CLIENT_MAX", before + 30_000)
    with pytest.raises(RefusedError) as refused:
        for run in range(2, 20):
            client = await lab.connect(running.address)
            await client.register(lab.plan(run=run), lab.facts(serial=f"S{run}"))
    assert refused.value.code == "quota"


@pytest.mark.slow
async def test_a_client_has_so_many_writers_at_a_time(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may have only a limited number of writers at a time. A run above the limit is refused and not
    stored; a resuming run must wait until another ends. Other clients and the operator are not affected."""
    monkeypatch.setattr(limits, "WRITERS_OF_CLIENT_MAX", 5)
    running = await lab.start(sqlite_url)
    clients = [await lab.connect(running.address) for _ in range(2)]
    for run, client in enumerate(clients, 1):
        await client.begin(lab.plan(run=run), lab.facts(serial=f"S{run}"))
    refused = await lab.connect(running.address)
    with pytest.raises(RefusedError, match=r"4 writers, and this one has 2.* --writers") as busy:
        await refused.register(lab.plan(run=3), lab.facts(serial="S3"))
    assert busy.value.code == "busy"
    await (await lab.connect(running.address)).resume(2)  # counted once

    await clients[0].close()
    await lab.exported(running.address, 1, lambda case: case.session_end == "fin")
    await until(lambda: len(running.server.runs) == 1)
    await (await lab.connect(running.address)).register(lab.plan(run=3), lab.facts(serial="S3"))
    with pytest.raises(RefusedError) as busy:
        await (await lab.connect(running.address)).resume(1)
    assert busy.value.code == "busy"

    lab.members[running.address] = await lab.join(running.address, (await running.server.invite()).line)
    await (await lab.connect(running.address)).begin(lab.plan(run=4), lab.facts(serial="S4"))
    for run in (5, 6, 7):
        operator = await lab.connect(running.address, local=True)
        await operator.begin(lab.plan(run=run), lab.facts(serial=f"S{run}"))


@pytest.mark.slow
async def test_a_client_has_so_many_runs(lab: Lab, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with the maximum of runs, live or ended, is refused another one, which is not stored. Its live
    run goes on, and another client and the operator are not affected."""
    monkeypatch.setattr(store_module, "RUNS_OF_CLIENT_MAX", 2)
    running = await lab.start(store_url)
    await _ended(lab, running.address, 1)
    live = await lab.connect(running.address)
    await live.begin(lab.plan(run=2), lab.facts(serial="S2"))
    refused = await lab.connect(running.address)
    with pytest.raises(RefusedError, match="2 runs, the maximum of one client") as quota:
        await refused.register(lab.plan(run=3), lab.facts(serial="S3"))
    assert quota.value.code == "quota"
    await live.acknowledge(3, 4)

    lab.members[running.address] = await lab.join(running.address, (await running.server.invite()).line)
    await (await lab.connect(running.address)).begin(lab.plan(run=4), lab.facts(serial="S4"))
    for run in (5, 6, 7):
        operator = await lab.connect(running.address, local=True)
        await operator.begin(lab.plan(run=run), lab.facts(serial=f"S{run}"))
    asker = await lab.connect(running.address, "query", local=True)
    rows = (await asker.ask(messages.List(limit=10), messages.Listing)).rows
    assert sorted(int(str(row["run"]), 16) for row in rows) == [1, 2, 4, 5, 6, 7]


@pytest.mark.slow
async def test_a_run_begins_while_a_long_question_is_answered(lab: Lab, sqlite_url: str) -> None:
    """The server already knows how much a client has stored, so a new run does not wait for another client's
    listing."""
    running = await lab.start(sqlite_url)
    await (await lab.connect(running.address)).begin(lab.plan(run=1), lab.facts())
    answered = threading.Event()
    asked = asyncio.create_task(running.server._thread.ask(answered.wait))
    try:
        await (await lab.connect(running.address)).begin(lab.plan(run=2), lab.facts(serial="S2", uuid="u2"))
        assert not asked.done()
    finally:
        answered.set()  # else the server could not end
    await asked


@pytest.mark.slow
async def test_arming_and_verdicts_leave_some_of_the_disk_free(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the bytes that are kept for runs that go on, no run is armed and no verdict is taken."""
    running = await lab.start(sqlite_url)
    verifier = await _ended(lab, running.address, 1)
    client = await lab.connect(running.address)
    await client.register(lab.plan(run=2), lab.facts(serial="S2"))
    monkeypatch.setattr(store_module, "KEPT_BYTES_MAX", 1 << 60)
    monkeypatch.setattr(store_module, "KEPT_SHARE", 1)
    for asker, message, answer in (
        (client, messages.ArmRun(facts=to_value(lab.facts(serial="S2"))), messages.Armed),
        (verifier, messages.GiveVerdict(run=1, document=VERDICT), messages.Stored),
    ):
        with pytest.raises(RefusedError, match="make room there") as refused:
            await asker.ask(message, answer)
        assert refused.value.code == "store-unavailable"


@pytest.mark.slow
@pytest.mark.parametrize("full", ["quota", "disk", "neither"])
async def test_a_verify_goes_on_where_nothing_can_be_kept_of_what_it_found(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """Its client has given too much, or the disk is full. Of a run that was never armed nothing is kept."""
    running = await lab.start(sqlite_url)
    verifier = await _ended(lab, running.address, 1)
    client = await lab.connect(running.address)
    await client.register(lab.plan(run=2), lab.facts(serial="S2"))
    client.reset()
    kept = len((await verifier.fetch(1, lab.facts())).looks)
    assert kept == 1
    if full == "quota":
        for name in ("BYTES_OF_CLIENT_MAX", "BYTES_BEYOND_FOR_VERDICTS"):
            monkeypatch.setattr(evidence_rows, name, 0)
    elif full == "disk":
        monkeypatch.setattr(store_module, "KEPT_BYTES_MAX", 1 << 60)
        monkeypatch.setattr(store_module, "KEPT_SHARE", 1)
    monkeypatch.setattr(given_bytes, "REFUSED_S", 0.0)
    for run, looks in ((1, kept + (full == "neither")), (2, 0)):
        examine = messages.Examine(
            run=run, facts=to_value(lab.facts()), answers=True, attested="pulled the plug", cut_class=""
        )
        case_file = await verifier.ask(examine, messages.CaseFile)
        assert len(case_from_value(case_file.case).looks) == looks


@pytest.mark.slow
async def test_to_give_evidence_reads_no_timeline(lab: Lab, sqlite_url: str) -> None:
    """Whose run it is, and whether it has ended, is known without its timeline, which takes long to read if
    the run was long: evidence and a verdict are taken, and refused, where the timeline cannot be read."""
    running = await lab.start(sqlite_url)
    await _ended(lab, running.address, 1)
    await running.server.stop()
    with closing(sqlite3.connect(str(make_url(sqlite_url).database))) as database, database:
        database.execute("UPDATE timelines SET data = x'00'")
    running = await lab.start(sqlite_url)
    piece = messages.Evidence(run=1, name="e", data=b"1")
    stranger = await lab.join(running.address, (await running.server.invite()).line)
    for message in (piece, messages.GiveVerdict(run=1, document=VERDICT), messages.Export(run=1)):
        purpose = "query" if isinstance(message, messages.Export) else "verify"
        client = await lab.connect(running.address, purpose, member=stranger)
        with pytest.raises(RefusedError) as refused:
            await client.ask(message, messages.Stored)
        assert refused.value.code == "fenced"
    verifier = await lab.connect(running.address, "verify")
    await verifier.ask(piece, messages.Stored)
    await verifier.ask(messages.GiveVerdict(run=1, document=VERDICT), messages.Stored)
