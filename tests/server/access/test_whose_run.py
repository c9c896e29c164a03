"""A run is its client's: what others, and viewers, may do with it and around it."""

from __future__ import annotations

from typing import Any

import pytest

from durability.errors import RefusedError
from durability.formats.documents import to_value
from durability.protocol import messages
from durability.protocol.auth import Role
from durability.units import format_run
from durability_server.access.caller import Caller
from tests.server.conftest import FACTS, SECRET, Lab, Running
from tests.server.two_tenants import on, tenant, verdict_document

pytestmark = pytest.mark.usefixtures("no_silence")

_FACTS = to_value(FACTS)
_OF_RUN_1: dict[str, tuple[str, messages.Message, type[messages.Message]]] = {
    "resume": ("run", messages.Resume(run=1, secret=SECRET), messages.Accepted),
    "fetch": ("verify", messages.Fetch(run=1, facts=_FACTS, end=False), messages.CaseFile),
    "fetch and end": ("verify", messages.Fetch(run=1, facts=_FACTS, end=True), messages.CaseFile),
    "examine": (
        "verify",
        messages.Examine(run=1, facts=_FACTS, answers=True, attested="pulled the plug", cut_class="power"),
        messages.CaseFile,
    ),
    "evidence": ("verify", messages.Evidence(run=1, name="piece", data=b"1"), messages.Stored),
    "verdict": (
        "verify",
        messages.GiveVerdict(run=1, document=verdict_document("durable")),
        messages.Stored,
    ),
    "export": ("query", messages.Export(run=1), messages.CaseFile),
    "show": ("query", messages.Show(run=1), messages.Shown),
}


async def _kept_of_run_1(lab: Lab, running: Running) -> dict[str, Any]:
    """What the server has of run 1 that a request could change, as its operator sees it."""
    asker = await lab.connect(running.address, "query", local=True)
    shown: dict[str, Any] = (await asker.ask(messages.Show(run=1), messages.Shown)).document  # type: ignore[assignment]
    of_case = {name: shown["case"][name] for name in ("state", "session_end", "looks", "events", "tainted")}
    return {**of_case, "verdicts": shown["verdicts"], "evidence": shown["evidence"]}


@pytest.mark.slow
@pytest.mark.parametrize("asked", _OF_RUN_1)
async def test_what_another_client_asks_of_a_run_is_refused(lab: Lab, store_url: str, asked: str) -> None:
    """Another client that knows all about a run, even its secret, is refused: it ends nothing, adds nothing
    and reads nothing. The run's own client may do the same."""
    running = await lab.start(store_url)
    owner, other = await tenant(lab, running, "b1"), await tenant(lab, running, "mallory")
    client = await lab.connect(running.address, member=owner.member)
    await client.begin(lab.plan(run=1), FACTS)
    await client.acknowledge(3, 4)
    await client.close()
    await lab.exported(running.address, 1, lambda case: case.session_end == "fin")
    if asked == "verdict":  # which is for a run that has ended
        judge = await lab.connect(running.address, "verify", member=owner.member)
        await judge.fetch(1, FACTS, end=True)
    before = await _kept_of_run_1(lab, running)
    assert before["state"] == ("ended" if asked == "verdict" else "armed")
    assert (before["verdicts"], before["evidence"]) == ([], [])
    purpose, message, answer = _OF_RUN_1[asked]
    intruder = await lab.connect(running.address, purpose, member=other.member)
    with pytest.raises(RefusedError, match="belongs to another client") as refused:
        await intruder.ask(message, answer)
    assert refused.value.code == "fenced"
    assert await _kept_of_run_1(lab, running) == before
    again = await lab.connect(running.address, purpose, member=owner.member)
    await again.ask(message, answer)


@pytest.mark.slow
async def test_a_verdict_is_for_a_run_that_has_ended(lab: Lab, sqlite_url: str) -> None:
    """While a run is live, no client may store a verdict on it, not even its own."""
    running = await lab.start(sqlite_url)
    owner = await tenant(lab, running, "b1")
    client = await lab.connect(running.address, member=owner.member)
    await client.begin(lab.plan(run=1), on(lab, "b1"))
    judge = await lab.connect(running.address, "verify", member=owner.member)
    with pytest.raises(RefusedError, match="a verdict is for a run that verify has ended"):
        given = messages.GiveVerdict(run=1, document=verdict_document("durable"))
        await judge.ask(given, messages.Stored)


@pytest.mark.slow
async def test_another_clients_unverified_run_keeps_nobody_from_a_target(lab: Lab, sqlite_url: str) -> None:
    """It says that its target is ours, and was cut there: our run begins without --force, and is judged as
    though that one did not exist."""
    running = await lab.start(sqlite_url)
    honest, copying = await tenant(lab, running, "b1"), await tenant(lab, running, "mallory")
    facts = on(lab, "b1")
    planted = await lab.connect(running.address, member=copying.member)
    await planted.begin(lab.plan(run=7), facts)
    await planted.acknowledge(3, 4)
    await planted.close()
    client = await lab.connect(running.address, member=honest.member)
    await client.begin(lab.plan(run=1), facts)
    await client.close()
    late = await lab.connect(running.address, member=copying.member)
    await late.begin(lab.plan(run=8), facts, force=True)
    judge = await lab.connect(running.address, "verify", member=honest.member)
    case = await judge.fetch(0, facts)  # the newest on this target
    assert (int(case.run, 16), case.superseded_by, case.predecessors) == (1, "", ())


@pytest.mark.slow
async def test_a_viewer_sees_all_runs_and_makes_none(lab: Lab, sqlite_url: str) -> None:
    """It lists and shows; it may not register, resume or judge."""
    running = await lab.start(sqlite_url)
    owner = await tenant(lab, running, "b1")
    await owner.cut(1, on(lab, "b1"), "durable")
    operator = await lab.connect(running.address, "operate", local=True)
    line = (await operator.ask(messages.Invite(role="viewer", name="office"), messages.Invited)).line
    viewer = await lab.join(running.address, line, name="office")
    asker = await lab.connect(running.address, "query", member=viewer)
    rows = (await asker.ask(messages.List(limit=10), messages.Listing)).rows
    assert [row["run"] for row in rows] == [format_run(1)]
    shown = (await asker.ask(messages.Show(run=1), messages.Shown)).document
    assert shown["case"]["verdicts"]  # type: ignore[index, call-overload]
    for purpose, message in (
        ("run", messages.Resume(run=1, secret=b"s" * 16)),
        ("verify", messages.GiveVerdict(run=1, document=verdict_document("loss"))),
    ):
        with pytest.raises(RefusedError) as refused:
            other = await lab.connect(running.address, purpose, member=viewer)
            await other.ask(message, messages.Stored)
        assert refused.value.code == "forbidden"


@pytest.mark.parametrize(
    ("role", "purpose", "advice"),
    [
        ("viewer", "run", "`durability clients invite`"),
        ("viewer", "agent", "`durability clients invite`"),
        ("viewer", "operate", "`durability clients invite --role operator`"),
        ("client", "operate", "`durability clients invite --role operator`"),
    ],
)
def test_a_refusal_names_the_role_that_is_needed(role: Role, purpose: str, advice: str) -> None:
    """A refusal names the least role that is needed, and the command that gives it."""
    with pytest.raises(RefusedError) as refused:
        Caller(client="c1", name="office", role=role).require(purpose)
    assert refused.value.code == "forbidden"
    assert f"type {advice} on the server's machine" in str(refused.value)
