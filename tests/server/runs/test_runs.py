"""Runs over real sockets: from registration to verdict, and every way in which a session can end."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from durability import limits
from durability.errors import ProtocolError, RefusedError
from durability.formats.case import Case, case_from_value
from durability.formats.documents import to_value
from durability.formats.facts import Facts
from durability.formats.packing import Value
from durability.formats.plan import Plan
from durability.formats.run_statistics import statistics_to_value
from durability.protocol import messages
from durability.protocol.frame import frame
from durability.units import format_run
from durability_server import clock
from tests import waiting
from tests.core.evidence.memory_target import make_statistics
from tests.server.conftest import SECRET

if TYPE_CHECKING:
    from tests.server.conftest import Client, Lab

pytestmark = pytest.mark.slow  # sessions that fall silent take seconds
PATIENCE_NS = 12_000_000_000  # a standstill of this machine must not seem the silence of a client


async def test_a_run_from_registration_to_verdict(lab: Lab, store_url: str) -> None:
    """Acknowledgements are granted, fetched, listed and shown, and survive a restart of the server."""
    running = await lab.start(store_url)
    plan, facts = lab.plan(), lab.facts()
    client = await lab.connect(running.address)
    accepted = await client.register(plan, facts)
    assert (accepted.frontiers, accepted.grants) == ((0, 0), (0, 0))
    await client.ask(messages.ArmRun(facts=to_value(facts)), messages.Armed)
    await client.acknowledge(10, 20, control=3)
    statistics = make_statistics(operations=(11, 20), flushes={"sda": 31})
    stop = messages.Stop(frontiers=(11, 20), control=4, statistics=statistics_to_value(statistics))
    await client.ask(stop, messages.Stopped)
    await running.server.stop()

    running = await lab.start(store_url)
    verifier = await lab.connect(running.address, "verify")
    case = await verifier.fetch(0, facts, end=True)
    assert (case.run, case.frontiers, case.control) == (f"{plan.run:016x}", (11, 20), 4)
    assert (case.state, case.session_end) == ("ended", "stop")
    assert Plan.decode(bytes.fromhex(case.plan)) == plan
    assert (case.armed, case.statistics) == (facts, statistics)
    assert case.timeline[-1].frontiers == (11, 20)
    assert case.timeline[-1].at_ns <= case.last_receipt_ns <= case.now_ns
    evidence = messages.Evidence(run=plan.run, name="lost-000", data=b"\xff" * 512)
    await verifier.ask(evidence, messages.Stored)
    document: dict[str, Value] = {
        "verdict": "loss",
        "reasons": [{"code": "findings", "text": "3 lost"}],
        "cut": {"class": "power"},
        "at_risk": {"ms1000": 7},
    }
    await verifier.ask(messages.GiveVerdict(run=plan.run, document=document), messages.Stored)

    asker = await lab.connect(running.address, "query")
    (row,) = (await asker.ask(messages.List(limit=10), messages.Listing)).rows
    assert (row["run"], row["verdict"], row["acked"]) == (f"{plan.run:016x}", "loss", 31)
    assert str(row["registered"]) <= str(row["last_receipt"]) <= clock.wall()
    shown = (await asker.ask(messages.Show(run=plan.run), messages.Shown)).document
    assert shown["verdicts"] == [document]
    assert shown["evidence"] == [{"name": "lost-000", "bytes": 512}]
    case = await asker.export(plan.run)
    assert [(past.verdict, past.cut_class, past.at_risk_ms1000) for past in case.verdicts] == [
        ("loss", "power", 7)
    ]


async def test_nothing_is_acknowledged_before_arming(lab: Lab, sqlite_url: str) -> None:
    """A run that was resumed but never armed has nothing to acknowledge."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.register(plan, lab.facts())
    again = await lab.connect(running.address)
    await again.resume(plan.run)
    again.say(messages.Ack(frontiers=(1, 1), control=0))
    error = await again.ended()
    assert isinstance(error, RefusedError)
    assert error.code == "protocol"
    case = await lab.exported(running.address, plan.run, lambda case: True)
    assert case.frontiers == (0, 0)


async def test_credit_is_what_is_durable(lab: Lab, store_url: str) -> None:
    """A frontier is granted only as it was reported, and a merged acknowledgement costs nothing."""
    running = await lab.start(store_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(), lab.facts())
    for step in range(1, 200):
        client.say(messages.Ack(frontiers=(step, 2 * step), control=0))
    grants: tuple[int, ...] = (0, 0)
    while grants != (199, 398):
        grants, before = (await client.get(messages.Credit)).grants, grants
        assert grants[1] == 2 * grants[0] > before[1]


async def test_half_of_the_credit_is_granted_at_once(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with little credit is not slowed to one commit per interval."""
    monkeypatch.setattr(limits, "COMMIT_INTERVAL_NS", 3600 * 10**9)  # none may wait for it
    running = await lab.start(sqlite_url)
    client = await lab.connect(running.address)
    plan = lab.plan(writers=1, credit=4, slots=16)
    await client.begin(plan, lab.facts())
    for seq in range(4, 201, 4):
        await client.acknowledge(seq)
    case = await lab.exported(running.address, plan.run, lambda case: True)
    assert case.frontiers == (200,)


async def test_a_frontier_beyond_its_credit_taints(lab: Lab, sqlite_url: str) -> None:
    """A report that no honest client can make moves nothing and is remembered."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    client.say(messages.Ack(frontiers=(plan.credit + 1, 1), control=0))
    case = await lab.exported(running.address, plan.run, lambda case: case.frontiers[1] == 1)
    assert case.frontiers == (0, 1)
    assert f"writer 0 is {plan.credit + 1}" in case.tainted


@pytest.mark.usefixtures("no_silence")
async def test_resuming_needs_the_secret_and_fences(lab: Lab, sqlite_url: str) -> None:
    """A newer connection with the secret takes the run over; one without it changes nothing."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    first = await lab.connect(running.address)
    await first.begin(plan, lab.facts())
    await first.acknowledge(5, 5)

    thief = await lab.connect(running.address)
    with pytest.raises(RefusedError) as refused:
        await thief.resume(plan.run, secret=b"t" * 32)
    assert refused.value.code == "fenced"
    await first.acknowledge(6, 6)

    second = await lab.connect(running.address)
    accepted = await second.resume(plan.run)
    assert accepted.frontiers == accepted.grants == (6, 6)
    error = await first.ended()
    assert isinstance(error, RefusedError)
    assert error.code == "fenced"
    await second.acknowledge(7, 7)
    case = await lab.exported(running.address, plan.run, lambda case: True)
    assert case.session_end == "live"


async def test_an_unknown_run_cannot_be_resumed(lab: Lab, sqlite_url: str) -> None:
    """A client that resumes a run unknown to this server gets "run-unknown"."""
    running = await lab.start(sqlite_url)
    client = await lab.connect(running.address)
    with pytest.raises(RefusedError) as refused:
        await client.resume(99)
    assert refused.value.code == "run-unknown"


@pytest.mark.usefixtures("no_silence")
async def test_a_run_goes_on_over_a_graceful_restart(lab: Lab, store_url: str) -> None:
    """A server that is stopped keeps every receipt; its successor says `server-down` and takes the run up."""
    running = await lab.start(store_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    client.say(messages.Ack(frontiers=(9, 8), control=1))
    await lab.exported(running.address, plan.run, lambda case: case.frontiers == (9, 8))
    await running.server.stop()
    assert isinstance(await client.ended(), ConnectionError)

    running = await lab.start(store_url)
    case = await lab.exported(running.address, plan.run, lambda case: True)
    assert (case.session_end, case.frontiers) == ("server-down", (9, 8))
    again = await lab.connect(running.address)
    assert (await again.resume(plan.run)).grants == (9, 8)
    await again.acknowledge(10, 10)
    case = await lab.exported(running.address, plan.run, lambda case: True)
    assert case.session_end == "live"
    assert [receipt.frontiers for receipt in case.timeline] == [(9, 8), (10, 10)]


@pytest.mark.parametrize("how", ["fin", "rst", "silence", "stop", "target-error", "client-error"])
async def test_how_a_session_ended_is_recorded(
    lab: Lab, sqlite_url: str, request: pytest.FixtureRequest, how: str
) -> None:
    """Each end that the server can tell from another is told from it (rule 12)."""
    if how != "silence":
        request.getfixturevalue("no_silence")
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(1, 1)
    match how:
        case "fin":
            await client.close()
        case "rst":
            client.reset()
        case "silence":
            client.vanish()
        case "stop":
            client.say(messages.Stop(frontiers=(1, 1), control=0, statistics={}))
            await client.close()  # the answer is not waited for
        case "target-error":
            client.say(messages.TargetFailed(errno=5, writer=1, seq=2, text="Input/output error"))
            await client.close()
        case "client-error":
            client.say(messages.ClientFailed(text="out of memory"))
            await client.close()
    case = await lab.exported(running.address, plan.run, lambda case: case.session_end != "live")
    assert case.session_end == how
    assert case.timeline[-1].frontiers == (1, 1)
    if how == "silence":
        assert case.now_ns - case.last_receipt_ns > limits.SILENCE_NS


async def failed_run(lab: Lab, address: tuple[str, int]) -> tuple[Client, int]:
    """A client that has reported an I/O error of its target, and the run's id."""
    plan = lab.plan()
    client = await lab.connect(address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(1, 1)
    client.say(messages.TargetFailed(errno=5, writer=1, seq=2, text="Input/output error"))
    await client.get(messages.Stopped)
    return client, plan.run


def seen(drive: str = "dead", *, age_us: int = 3_000_000) -> messages.DriveSeen:
    """What a client says of its drives so long after the error."""
    return messages.DriveSeen(error_age_us=age_us, drive=drive, text="every read failed")


@pytest.mark.usefixtures("no_silence")
async def test_what_was_seen_of_the_drives_is_kept_with_the_time_of_the_error(
    lab: Lab, store_url: str
) -> None:
    """The error is as old as the client says; until then the drives are unseen. A restart changes nothing."""
    running = await lab.start(store_url)
    client, run = await failed_run(lab, running.address)
    case = await lab.exported(running.address, run, lambda case: True)
    assert case.session_end == "target-error"
    assert case.target_error is not None and case.target_error.drive == "unseen"
    before_ns = clock.now_ns()
    client.say(seen(age_us=2_000_000))
    await client.get(messages.Stored)
    after_ns = clock.now_ns()
    await client.close()
    case = await lab.exported(running.address, run, lambda case: case.events[-1].kind == "fin")
    assert case.session_end == "target-error"
    error = case.target_error
    assert error is not None and (error.drive, error.text) == ("dead", "every read failed")
    assert before_ns - 2 * 10**9 <= error.at_ns <= after_ns - 2 * 10**9
    await running.server.stop()
    running = await lab.start(store_url)
    case = await lab.exported(running.address, run, lambda case: True)
    assert (case.session_end, case.target_error) == ("target-error", error)


async def test_silence_after_an_error_is_silence(lab: Lab, sqlite_url: str) -> None:
    """A machine that dies while its client looks at the drives leaves silence, and the error stays known; a
    client that was only slow has not died."""
    running = await lab.start(sqlite_url)
    client, run = await failed_run(lab, running.address)
    client.pause()
    case = await lab.exported(running.address, run, lambda case: case.session_end == "silence")
    assert case.target_error is not None
    client.go_on()
    await lab.exported(running.address, run, lambda case: case.session_end == "target-error")
    client.vanish()
    case = await lab.exported(running.address, run, lambda case: case.session_end == "silence")
    assert case.failed


@pytest.mark.usefixtures("no_silence")
async def test_an_error_is_said_again_on_another_connection(lab: Lab, sqlite_url: str) -> None:
    """A client that lost its connection resumes, says all of it again, and closes."""
    running = await lab.start(sqlite_url)
    client, run = await failed_run(lab, running.address)
    client.reset()
    again = await lab.connect(running.address)
    await again.resume(run)
    again.say(messages.TargetFailed(errno=5, writer=1, seq=2, text="Input/output error"))
    await again.get(messages.Stopped)
    again.say(seen("answered"))
    await again.get(messages.Stored)
    await again.close()
    case = await lab.exported(running.address, run, lambda case: case.events[-1].kind == "fin")
    assert case.session_end == "target-error"
    assert case.target_error is not None and case.target_error.drive == "answered"


async def test_silence_may_end(lab: Lab, sqlite_url: str) -> None:
    """A client that was only slow is live again, and its gap widens the estimate of any later cut."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address, local=True)
    await client.begin(plan, lab.facts())
    client.pause()  # no heartbeat is answered any more
    await lab.exported(running.address, plan.run, lambda case: case.session_end == "silence")
    pings = [message.sent_ns for message in client.unread() if isinstance(message, messages.Ping)]
    silent_ns = clock.now_ns() - pings[0]
    client.go_on()
    case = await lab.exported(running.address, plan.run, lambda case: case.session_end == "live")
    assert case.gap_max_ns > limits.SILENCE_NS
    assert case.rtt_max_ns >= silent_ns > 0  # that of the oldest ping that went unanswered


async def test_a_dead_peer_is_given_up(
    lab: Lab,
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection on which nothing comes for long is closed; the session still ended in silence."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    client.vanish()
    monkeypatch.setattr(limits, "DEAD_PEER_NS", limits.SILENCE_NS * 3 // 2)
    case = await lab.exported(running.address, plan.run, lambda case: "given up" in case.events[-1].text)
    assert case.session_end == "silence"


async def test_a_client_that_answers_no_heartbeat_is_sent_away(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frames show that it lives, but not which credits reach it."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address, local=True)
    await client.begin(plan, lab.facts())
    client.pause()
    monkeypatch.setattr(limits, "DEAD_PEER_NS", PATIENCE_NS)

    def sent_away(case: Case) -> bool:
        client.say(messages.Progress(statistics={}))
        return any("no heartbeat was answered" in event.text for event in case.events)

    case = await lab.exported(running.address, plan.run, sent_away)
    assert case.session_end == "rst"


@pytest.mark.usefixtures("no_silence")
async def test_a_client_that_answers_only_old_heartbeats_is_sent_away(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that came before its run was accepted show nothing of the credits of the run."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address, local=True)
    client.pause()
    monkeypatch.setattr(limits, "DEAD_PEER_NS", 3600 * 10**9)  # it says nothing until it has enough of them

    def pings() -> list[int]:
        return [one.sent_ns for one in client.unread() if isinstance(one, messages.Ping)]

    await waiting.until(lambda: len(pings()) > 80)
    old = pings()
    register = messages.Register(
        run=plan.run, plan=plan.encode(), facts=to_value(lab.facts()), secret=SECRET, label="", force=False
    )
    client.say(register)
    await waiting.until(lambda: any(isinstance(one, messages.Accepted) for one in client.unread()))
    monkeypatch.setattr(limits, "DEAD_PEER_NS", PATIENCE_NS)
    said_ns = 0

    def sent_away(case: Case) -> bool:
        nonlocal said_ns
        if old and clock.now_ns() - said_ns > 10 * limits.HEARTBEAT_NS:
            client.say_bytes(frame(messages.encode(messages.Pong(sent_ns=old.pop(0)))))
            said_ns = clock.now_ns()
        return case.session_end != "live"

    case = await lab.exported(running.address, plan.run, sent_away)
    assert "no heartbeat was answered" in case.events[-1].text
    assert old  # it would have gone on


@pytest.mark.slow
@pytest.mark.usefixtures("no_silence")
async def test_a_client_that_answers_heartbeats_ever_later_is_sent_away(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to an old heartbeat shows nothing of the credits that were sent since."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address, local=True)
    await client.begin(plan, lab.facts())
    client.pause()
    monkeypatch.setattr(limits, "DEAD_PEER_NS", PATIENCE_NS)
    said_ns = answered = 0

    def sent_away(case: Case) -> bool:
        nonlocal said_ns, answered
        pings = [one.sent_ns for one in client.unread() if isinstance(one, messages.Ping)]
        if answered < len(pings) and clock.now_ns() - said_ns > 10 * limits.HEARTBEAT_NS:
            client.say(messages.Pong(sent_ns=pings[answered]))
            answered, said_ns = answered + 1, clock.now_ns()
        return case.session_end != "live"

    case = await lab.exported(running.address, plan.run, sent_away)
    assert "no heartbeat was answered" in case.events[-1].text


async def test_heartbeats_measure_the_round_trip(lab: Lab, sqlite_url: str) -> None:
    """Round trips and gaps of an idle client are known."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    case = await lab.exported(running.address, plan.run, lambda case: case.rtt_max_ns > 0)
    assert case.rtt_max_ns > 0
    assert case.gap_max_ns > 0


async def test_verify_refuses_a_live_run_and_ends_a_silent_one(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, no_silence: None
) -> None:
    """While frames come a run cannot be judged; once it is judged, its session is over (rule 10)."""
    running = await lab.start(sqlite_url)
    plan, facts = lab.plan(), lab.facts()
    client = await lab.connect(running.address)
    await client.begin(plan, facts)
    await client.acknowledge(3, 4)
    verifier = await lab.connect(running.address, "verify")
    with pytest.raises(RefusedError) as refused:
        await verifier.fetch(plan.run, facts, end=True)
    assert refused.value.code == "run-live"

    monkeypatch.undo()
    client.vanish()
    await lab.exported(running.address, plan.run, lambda case: case.session_end == "silence")
    verifier = await lab.connect(running.address, "verify")
    case = await verifier.fetch(0, facts, end=True)
    assert (case.state, case.session_end, case.frontiers) == ("ended", "silence", (3, 4))
    again = await lab.connect(running.address)
    with pytest.raises(RefusedError) as refused:
        await again.resume(plan.run)
    assert refused.value.code == "run-ended"


async def test_an_unverified_run_guards_its_target_over_the_wire(lab: Lab, sqlite_url: str) -> None:
    """A second run on a target is refused until the first is verified; if forced, it supersedes it."""
    running = await lab.start(sqlite_url)
    first, second = lab.plan(run=1), lab.plan(run=2)
    client = await lab.connect(running.address)
    await client.begin(first, lab.facts())
    await client.close()
    refused_client = await lab.connect(running.address)
    with pytest.raises(RefusedError) as refused:
        await refused_client.register(second, lab.facts())
    assert refused.value.code == "unverified-run"
    forced = await lab.connect(running.address)
    await forced.begin(second, lab.facts(), force=True)
    case = await lab.exported(running.address, first.run, lambda case: True)
    assert case.superseded_by == f"{second.run:016x}"


async def test_a_run_on_the_drive_of_a_file_supersedes_from_its_registration_on(
    lab: Lab, sqlite_url: str
) -> None:
    """It may overwrite the file before it is armed, and be cut then; also after a restart of the server."""
    running = await lab.start(sqlite_url)
    file, plan = lab.facts(), lab.plan(run=1)
    whole = replace(
        file, kind="device", file_system=None, offset_bytes=0, size_bytes=1 << 40, path="/dev/sda"
    )
    await (await lab.connect(running.address)).begin(plan, file)
    await (await lab.connect(running.address)).register(lab.plan(run=2), whole)
    await running.server.stop()
    running = await lab.start(sqlite_url)
    case = await lab.exported(running.address, plan.run, lambda _: True)
    assert (case.superseded_by, case.attempts) == (f"{2:016x}", ())


async def test_requests_that_make_no_sense_are_refused(lab: Lab, sqlite_url: str) -> None:
    """A plan that is none, facts that are none and a verdict that is none are refused by name."""
    running = await lab.start(sqlite_url)
    good = messages.Register(
        run=1,
        plan=lab.plan(run=1).encode(),
        facts=to_value(lab.facts()),
        secret=bytes(32),
        label="",
        force=False,
    )
    requests: list[tuple[str, messages.Message]] = [
        ("run", messages.Register(run=1, plan=b"x", facts={}, secret=bytes(32), label="", force=False)),
        (
            "run",
            messages.Register(
                run=2, plan=good.plan, facts=good.facts, secret=bytes(32), label="", force=False
            ),
        ),
        ("run", messages.Register(run=1, plan=good.plan, facts={}, secret=bytes(32), label="", force=False)),
        ("verify", messages.Fetch(run=0, facts={"path": 1}, end=False)),
        ("verify", messages.GiveVerdict(run=1, document={"verdict": "fine"})),
    ]
    for role, request in requests:
        client = await lab.connect(running.address, role)
        client.say(request)
        error = await client.ended()
        assert isinstance(error, RefusedError), request
        assert error.code == "bad-request"


async def test_a_verify_leaves_what_it_found(lab: Lab, store_url: str) -> None:
    """With each look that tells more than the one before, as far as there is room. A client of the first
    release says nothing of an attestation."""
    running = await lab.start(store_url)
    client = await lab.connect(running.address, "run")
    await client.begin(lab.plan(run=1), lab.facts())
    client.writer.close()
    verifier = await lab.connect(running.address, "verify")

    async def examine(attested: str = "", cut_class: str = "") -> Case:
        message = messages.Examine(
            run=1, facts=to_value(lab.facts()), answers=True, attested=attested, cut_class=cut_class
        )
        return case_from_value((await verifier.ask(message, messages.CaseFile)).case)

    assert (await verifier.fetch(1, lab.facts())).looks == ()
    (first,) = (await verifier.fetch(1, lab.facts(), end=True)).looks
    assert (first.answers, first.attested, first.cut_class) == (False, "", None)
    assert first.facts.drives == lab.facts().drives and first.facts.file_system is None
    await examine()
    assert len((await examine()).looks) == 2
    said = (await examine("pulled the plug", "power")).looks
    assert [(one.attested, one.cut_class) for one in said[1:]] == [("", None), ("pulled the plug", "power")]
    for number in range(2 * limits.LOOKS_MAX):
        case = await examine(f"pulled it {number} times")
    assert len(case.looks) == limits.LOOKS_MAX and case.looks[:3] == said


async def test_a_verify_leaves_what_it_found_with_other_runs(lab: Lab, store_url: str) -> None:
    """A verify also stores its facts with its client's other runs on these drives, unless they have a
    verdict. If such a run goes on, the facts are removed. Attestations go to runs that began in the same
    state."""
    running = await lab.start(store_url)
    here, elsewhere = lab.facts(), lab.facts(serial="S2", uuid="uuid-2")
    stranger = await lab.join(running.address, (await running.server.invite()).line)
    clients = {}
    for run, facts in ((1, here), (2, here), (3, elsewhere), (4, here), (5, here), (6, here)):
        member = stranger if run == 6 else None
        clients[run] = await lab.connect(running.address, member=member)
        await clients[run].begin(
            lab.plan(run=run), replace(facts, path=f"/{run}", path_in_file_system=f"{run}")
        )
    verifier = await lab.connect(running.address, "verify")
    for run, client in clients.items():  # a live one answers heartbeats, so it goes on
        client.reset()
        await lab.exported(running.address, run, lambda case: case.session_end != "live")
    await verifier.fetch(4, here, end=True)
    verdict: dict[str, Value] = {
        "verdict": "durable",
        "reasons": [],
        "cut": {"class": "power"},
        "at_risk": {"ms1000": 1},
    }
    await verifier.ask(messages.GiveVerdict(run=4, document=verdict), messages.Stored)

    async def examine(facts: Facts) -> list[list[str]]:
        message = messages.Examine(
            run=1, facts=to_value(facts), answers=True, attested="pulled the plug", cut_class="power"
        )
        await verifier.ask(message, messages.CaseFile)
        cases = [await lab.exported(running.address, run, lambda case: True) for run in (2, 3, 4, 5, 6)]
        return [[look.attested for look in case.looks if look.run == format_run(1)] for case in cases]

    said = ["pulled the plug"]
    assert await examine(here) == [said, [], [], said, []]
    back = await lab.connect(running.address)
    await back.resume(5)
    back.say(messages.Ack(frontiers=(1, 1), control=0))  # it goes on, so that said nothing of its end
    await lab.exported(running.address, 5, lambda case: sum(case.frontiers) > 0 and not case.looks)
    back.reset()
    await lab.exported(running.address, 5, lambda case: case.session_end != "live")
    later = replace(here, host=replace(here.host, boot_id="a later one", uptime_ns=1))
    assert await examine(later) == [said * 2, [], [], said, []]


async def test_a_run_that_is_armed_leaves_what_it_found_with_earlier_runs(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unverified run on the same drive keeps it, unattested, although its end was not saved yet. A verify
    of a run that was never armed adds what it found then."""
    monkeypatch.setattr(limits, "COMMIT_INTERVAL_NS", 3600 * 10**9)  # only what asks for a commit gets one
    running = await lab.start(sqlite_url)
    here = lab.facts()
    booted = replace(here, host=replace(here.host, boot_id="a later one", uptime_ns=1), path="/2")
    for run, facts in ((1, here), (2, replace(booted, path_in_file_system="2"))):
        client = await lab.connect(running.address)
        await client.begin(lab.plan(run=run), facts)
        client.reset()
        await lab.exported(running.address, run, lambda case: case.session_end != "live")
    (seen,) = (await lab.exported(running.address, 1, lambda case: True)).looks
    assert (seen.run, seen.attested, seen.facts.host.boot_id) == (format_run(2), "", "a later one")
    assert (await lab.exported(running.address, 2, lambda case: True)).looks == ()

    client = await lab.connect(running.address)
    await client.register(lab.plan(run=3), replace(booted, path="/3", path_in_file_system="3"))
    client.reset()
    await lab.exported(running.address, 3, lambda case: case.session_end != "live")
    verifier = await lab.connect(running.address, "verify")
    examine = messages.Examine(
        run=3, facts=to_value(booted), answers=True, attested="pulled the plug", cut_class="power"
    )
    await verifier.ask(examine, messages.CaseFile)
    looks = (await lab.exported(running.address, 1, lambda case: True)).looks
    assert [(look.run, look.attested) for look in looks[1:]] == [(format_run(3), "")]


async def test_all_runs_that_are_not_live_are_saved_before_they_keep_a_look(
    lab: Lab, store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The clients of two runs on one drive are gone, and neither run is saved when a third is armed. Both
    keep what it found, and none is given up meanwhile."""
    monkeypatch.setattr(limits, "COMMIT_INTERVAL_NS", 3600 * 10**9)  # only what asks for a commit gets one
    running = await lab.start(store_url)
    here = lab.facts()
    clients = [await lab.connect(running.address) for _ in range(3)]

    def at(number: int, boot_id: str = here.host.boot_id) -> Facts:
        host = replace(here.host, boot_id=boot_id)
        return replace(here, host=host, path=f"/{number}", path_in_file_system=f"{number}")

    for run in (1, 2):
        await clients[run].begin(lab.plan(run=run), at(run))
    for run in (1, 2):
        clients[run].reset()
        await lab.exported(running.address, run, lambda case: case.session_end != "live")
    await clients[0].begin(lab.plan(run=3), at(3, boot_id="a later one"))
    for run in (1, 2):
        looks = (await lab.exported(running.address, run, lambda case: True)).looks
        assert [look.run for look in looks] == [format_run(3)]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], caplog.text


async def test_many_clients_at_once(lab: Lab, store_url: str) -> None:
    """Forty clients on forty targets each get the credit of their own run."""
    running = await lab.start(store_url)

    async def one(run: int) -> tuple[int, ...]:
        client = await lab.connect(running.address)
        await client.begin(lab.plan(run=run), lab.facts(serial=f"S{run}"))
        for step in range(1, 20):
            await client.acknowledge(step * run, step)
        case = await lab.exported(running.address, run, lambda case: True)
        return case.frontiers

    frontiers = await asyncio.gather(*map(one, range(1, 41)))
    assert frontiers == [(19 * run, 19) for run in range(1, 41)]


async def test_a_second_request_before_the_first_answer_is_refused(lab: Lab, sqlite_url: str) -> None:
    """The protocol has one request under way at a time."""
    running = await lab.start(sqlite_url)
    client = await lab.connect(running.address, "query")
    client.session.send(messages.List(limit=1))
    twice = client.session.outgoing() * 2
    client.say_bytes(twice)
    error = await client.ended()
    assert isinstance(error, ProtocolError | RefusedError)
