"""Sessions: who speaks for a run, and how long a run stays in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from durability import limits
from durability.errors import RefusedError
from durability.formats.documents import to_value
from durability.protocol import messages
from durability.protocol.messages import Message
from durability.protocol.state_machine import Undecoded
from durability_lab.simulated_rig.virtual_time import stored_run
from durability_server.connections.turns import Turns
from durability_server.runs.run import Run
from durability_server.store.lease_store import WantedRun
from tests.waiting import DEADLINE_S, until

if TYPE_CHECKING:
    from tests.server.conftest import Client, Lab, Running


async def _forgotten(running: Running, asker: Client) -> None:
    """Returns when the server has no run in memory."""
    async with asyncio.timeout(DEADLINE_S):
        while running.server.runs:
            await asker.ask(messages.List(limit=1), messages.Listing)


@pytest.mark.slow
async def test_a_run_leaves_memory_with_its_session(lab: Lab, sqlite_url: str) -> None:
    """Memory follows the clients: a run goes when its session is over and saved, and comes back when asked
    for."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(1, 1)
    assert [session.run.id for session in running.server.sessions] == [plan.run]
    await client.close()
    asker = await lab.connect(running.address, "query")
    await _forgotten(running, asker)
    assert running.server.sessions == ()

    case = await asker.export(plan.run)
    assert (case.session_end, case.frontiers) == ("fin", (1, 1))
    await _forgotten(running, asker)


@pytest.mark.slow
async def test_a_fenced_session_does_not_end_the_run(lab: Lab, sqlite_url: str) -> None:
    """The newest session is the run's only one; the end of the older, which is fenced, is not the run's."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    older = await lab.connect(running.address)
    await older.begin(plan, lab.facts())
    (first,) = running.server.sessions
    newer = await lab.connect(running.address)
    await newer.resume(plan.run)
    error = await older.ended()
    assert isinstance(error, RefusedError)
    assert error.code == "fenced"
    (second,) = running.server.sessions
    assert (second.run, second.channel is first.channel) == (first.run, False)

    await newer.acknowledge(1, 1)
    asker = await lab.connect(running.address, "query")
    case = await asker.export(plan.run)
    assert case.session_end == "live"
    assert [event.kind for event in case.events] == ["session", "armed", "session"]
    await newer.close()
    await _forgotten(running, asker)


async def test_a_stop_may_overtake_what_arms_the_run(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that stops while its ArmRun waits to be decoded has stopped, and is refused nothing."""
    begun, go_on, decoded = asyncio.Event(), asyncio.Event(), Turns.decoded

    async def decoded_late(turns: Turns, message: Undecoded) -> Message:
        begun.set()
        await go_on.wait()
        return await decoded(turns, message)

    running = await lab.start(sqlite_url)
    plan, facts = lab.plan(), to_value(lab.facts(path="/" + "p" * 1500))
    client = await lab.connect(running.address)
    await client.register(plan, lab.facts())
    (session,) = running.server.sessions
    monkeypatch.setattr(Turns, "decoded", decoded_late)
    async with asyncio.timeout(DEADLINE_S):
        client.say(messages.ArmRun(facts=facts))
        await begun.wait()
        client.say(messages.Stop(frontiers=(0, 0), control=0, statistics={}))
        await until(lambda: session.run.finish == "stopped")
        go_on.set()
        await client.get(messages.Stopped)
    case = await lab.exported(running.address, plan.run, lambda case: True)
    assert (case.session_end, case.state, case.armed) == ("stop", "stopped", None)


@pytest.mark.usefixtures("no_silence")
async def test_another_server_that_ends_a_run_finds_its_client_silent(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another server ends a run, the session of a silent client ends with `silence`, even before the next
    check. The connection that is closed afterwards is not a reset."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(3, 4)
    client.vanish()
    registry = running.server._registry
    run = registry.in_memory(plan.run)
    assert run is not None
    wanted = WantedRun(run=plan.run, epoch=run.epoch, purpose="end")
    assert not registry._give_up(wanted)
    monkeypatch.setattr(limits, "SILENCE_NS", 0)
    assert (run.session_end, registry._give_up(wanted), run.session_end) == ("live", True, "silence")
    case = await lab.exported(running.address, plan.run, lambda case: case.session_end != "live")
    assert (case.session_end, [event.kind for event in case.events][-2:]) == ("silence", ["silence", "rst"])


@pytest.mark.parametrize(("saved", "rose"), [((0, 0), False), ((0, 1), True), ((2, 3), True)])
def test_grants_rise_with_what_is_saved(lab: Lab, saved: tuple[int, int], rose: bool) -> None:
    """A run says whether a commit raised its grants, which is when its client is told, and says so once."""
    run = Run(stored_run(lab.plan(), at_ns=0), boot_id="boot")
    run.acknowledge(1, saved, 0)
    snapshot = run.snapshot(timeline=False)
    assert run.saved(snapshot, 2) == rose
    assert run.frontiers.grants == saved
    assert not run.saved(snapshot, 3)
