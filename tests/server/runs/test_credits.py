"""Credits: which of them may have been the last to reach the client is known after any end of a session."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from durability.errors import RefusedError
from durability.formats.case import Case
from durability.formats.packing import Value, pack
from durability.formats.plan import Plan
from durability.protocol import messages
from durability_lab.simulated_rig.virtual_time import stored_run
from durability_server.runs import requests
from durability_server.runs.credits import GRANTS_IN_DOUBT_MAX, IN_DOUBT_MAX, Credits
from durability_server.runs.run import Run, was_still
from tests.conftest import PLAN_FIELDS

if TYPE_CHECKING:
    from tests.server.conftest import Lab


def test_what_has_arrived_makes_the_older_ones_forgotten() -> None:
    """The newest that arrived stays: the client may have got no further."""
    credits = Credits.unpack(None, newest=(0,))
    for at_ns, grant in ((10, 1), (20, 1), (20, 2), (30, 3)):
        credits.add(at_ns, (grant,))
    kept = []
    for arrived_ns in (0, 25, 1000):
        credits.forget(arrived_ns)
        kept.append([grants[0] for grants in credits.grants])
    assert kept == [[0, 1, 2, 3], [2, 3], [3]]


def test_credits_survive_the_server() -> None:
    """Those that were saved, and what was durable last, which was granted then or is granted now."""
    credits = Credits.unpack(None, newest=(0, 0))
    credits.add(10, (4, 5))
    again = Credits.unpack(credits.pack(), newest=(4, 5))
    assert again.grants == credits.grants
    assert Credits.unpack(credits.pack(), newest=(6, 5)).grants == ((0, 0), (4, 5), (6, 5))


def test_a_run_that_came_back_has_credit_left() -> None:
    """Its writers had used up what one server gave them; another one has given them a whole new credit, which
    the store tells before they acknowledge anything."""
    plan = Plan(**PLAN_FIELDS)
    stored = stored_run(plan, at_ns=1)
    assert not was_still(stored)
    here = Run(stored, boot_id="here")
    here.attached(1, "client")
    here.heard(2, ran_ns=2)
    here.acknowledge(2, (plan.credit,) * plan.writers, 0)
    stored = replace(stored, snapshot=here.snapshot(timeline=True))
    assert was_still(stored)
    there = Run(stored, boot_id="there")
    there.attached(3, "client")
    assert not was_still(replace(stored, snapshot=there.snapshot(timeline=True)))


def test_a_commit_packs_no_credit_anew() -> None:
    """A client that shows nothing of its credits has hundreds of them in each commit, on the event loop that
    all clients share. What the store gets is as if all were packed together."""
    credits = Credits.unpack(None, newest=(0,) * 256)
    for number in range(1, 256):
        credits.add(number, tuple(range(number << 32, (number << 32) + 256)))
    credits.begin_anew(300)
    credits.forget(299)
    assert len(credits) == 256
    plain: Value = [[300, list(grants)] for grants in credits.grants]
    began_s = time.thread_time()
    for _ in range(10):
        together = pack(plain)
    took_s = time.thread_time() - began_s
    for _ in range(10):
        packed = credits.pack()
    assert time.thread_time() - began_s - took_s < took_s / 2
    assert packed == together
    for arrived_ns in (300, 301):
        credits.forget(arrived_ns)
        assert Credits.unpack(credits.pack(), newest=credits.grants[-1]).grants == credits.grants


@pytest.mark.slow
async def test_a_credit_into_a_dead_network_is_known_to_be_in_doubt(lab: Lab, store_url: str) -> None:
    """The last grant does not reach the client. A later verify at any server gets both the last grant and the
    one before it."""
    running = await lab.start(store_url)
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, lab.facts())
    await client.acknowledge(3, 3)
    client.say(messages.Ack(frontiers=(3, 4), control=0))
    client.pause()

    def in_doubt(case: Case) -> bool:
        return case.session_end == "silence" and case.grants == (3, 4)

    case = await lab.exported(running.address, plan.run, in_doubt)
    assert case.credits[-1] == case.grants
    assert len(case.credits) > 1
    await running.server.stop()

    running = await lab.start(store_url)
    kept = await lab.exported(running.address, plan.run, lambda case: True)
    assert kept.credits == case.credits


def is_granted(grants: tuple[int, ...], case: Case) -> bool:
    return case.grants == grants


@pytest.mark.slow
async def test_frames_show_no_credit_to_have_arrived(lab: Lab, sqlite_url: str) -> None:
    """Only answers to heartbeats do: of a client that hears nothing every grant is kept."""
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address, local=True)
    await client.begin(plan, lab.facts())
    client.pause()
    sent = ((3, 3), (3, 4), (3, 5))
    for frontiers in sent:
        client.say(messages.Ack(frontiers=frontiers, control=0))
        case = await lab.exported(running.address, plan.run, partial(is_granted, frontiers))
    assert case.credits[-3:] == sent


def test_credits_of_another_clock_are_forgotten_with_the_first_that_arrives() -> None:
    """Credits with times of another server's clock, earlier or later, are kept until the first newer credit
    arrives, and then forgotten."""
    for elsewhere_ns in (1, 10**18):
        credits_ = Credits.unpack(None, newest=(1,))
        credits_.add(elsewhere_ns, (2,))
        credits_.add(elsewhere_ns + 1, (3,))
        credits_.begin_anew(1000)
        credits_.add(1000, (4,))
        credits_.forget(999)
        assert list(credits_.grants) == [(1,), (2,), (3,), (4,)]
        credits_.forget(1000)
        assert list(credits_.grants) == [(4,)]


def committed(run: Run, at_ns: int) -> Credits:
    """Save the run as it is; the credits that a server that loads it knows of."""
    snapshot = run.snapshot(timeline=False)
    run.saved(snapshot, at_ns)
    return Credits.unpack(snapshot.credits, newest=run.frontiers.grants)


def test_a_heartbeat_of_before_a_connection_shows_nothing_of_older_credits() -> None:
    """A connection keeps the order of what is sent on it, and of nothing else."""
    run = Run(stored_run(Plan(**{**PLAN_FIELDS, "writers": 1}), at_ns=0), boot_id="boot")
    run.attached(1, "first")
    run.acknowledge(10, (4,), 0)
    committed(run, 11)
    run.heartbeat_answered(13, sent_ns=12)
    run.acknowledge(20, (6,), 0)
    run.detached(21, "rst", "the connection was reset")
    assert committed(run, 22).grants == ((4,), (6,))

    run.attached(30, "second")
    run.heartbeat_answered(31, sent_ns=29)
    assert committed(run, 32).grants == ((4,), (6,))
    run.heartbeat_answered(34, sent_ns=33)
    assert committed(run, 35).grants == ((6,),)


@pytest.mark.slow
def test_no_grant_is_raised_while_too_many_credits_are_in_doubt() -> None:
    """The number of unconfirmed credits is limited. Once the client answers a heartbeat, it gets credit
    again."""
    plan = Plan(**{**PLAN_FIELDS, "writers": 1, "credit": 10_000, "slots": 40_000})
    run = Run(stored_run(plan, at_ns=0), boot_id="boot")
    run.attached(1, "first")
    for acked in range(1, IN_DOUBT_MAX + 500):
        run.acknowledge(10 * acked, (acked,), 0)
        known = committed(run, 10 * acked + 1)
    assert known.grants == tuple((grant,) for grant in range(IN_DOUBT_MAX + 1))
    run.heartbeat_answered(10**6, sent_ns=10**6 - 1)
    assert committed(run, 10**6 + 1).grants == ((IN_DOUBT_MAX,), run.frontiers.acked)
    assert run.frontiers.grants == run.frontiers.acked


@pytest.mark.slow
def test_a_run_of_many_writers_has_fewer_credits_in_doubt() -> None:
    """Each commit packs the grants of all writers for each of them."""
    writers = 256
    plan = Plan(**{**PLAN_FIELDS, "writers": writers, "credit": 1000, "slots": 4000})
    run = Run(stored_run(plan, at_ns=0), boot_id="boot")
    run.attached(1, "first")
    for acked in range(1, 500):
        run.acknowledge(10 * acked, (acked,) * writers, 0)
        known = committed(run, 10 * acked + 1)
    assert 200 < len(known) <= GRANTS_IN_DOUBT_MAX // writers + 1


@pytest.mark.slow
async def test_a_run_with_too_many_credits_in_doubt_is_not_taken_up_again(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may not make them more by coming back again and again."""
    monkeypatch.setattr(requests, "IN_DOUBT_RESUMED_MAX", 3)
    running = await lab.start(sqlite_url)
    plan = lab.plan()
    client = await lab.connect(running.address, local=True)
    await client.begin(plan, lab.facts())
    client.pause()
    for frontiers in ((3, 3), (3, 4), (3, 5), (3, 6)):
        client.say(messages.Ack(frontiers=frontiers, control=0))
        await lab.exported(running.address, plan.run, partial(is_granted, frontiers))
    again = await lab.connect(running.address, local=True)
    with pytest.raises(RefusedError, match="not shown which of"):
        await again.resume(plan.run)


def test_each_commit_saves_the_credits() -> None:
    """A server that takes the run over knows of each grant that may have been the last to arrive."""
    run = Run(stored_run(Plan(**{**PLAN_FIELDS, "writers": 1}), at_ns=0), boot_id="boot")
    run.attached(1, "first")
    for acked in (2, 4, 6):
        run.acknowledge(10 * acked, (acked,), 0)
        known = committed(run, 10 * acked + 1)
    assert known.grants == ((0,), (2,), (4,), (6,))
