"""Frames that come late: no acknowledgement is taken for newer than it may be."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from durability import limits
from durability.evidence.at_risk import cut_interval_ns, frontiers_at
from durability.formats.case import Case
from durability.formats.plan import Plan
from durability_lab.simulated_rig.virtual_time import stored_run
from durability_server.runs.run import Run
from durability_server.store.records import NO_RELATIONS
from tests.conftest import PLAN_FIELDS

MS = 1_000_000
HEARTBEAT_MS = limits.HEARTBEAT_NS // MS
# For so long frames may stay away and count as new all the same: two heartbeats, and one on its way.
UNNOTICED_MS = 3 * HEARTBEAT_MS
END_MS = 2000


def new_run() -> Run:
    """A run whose client is connected since the beginning."""
    run = Run(stored_run(Plan(**PLAN_FIELDS), at_ns=0), boot_id="boot")
    run.attached(0, "client")
    return run


def case_of(run: Run, at_ms: int) -> Case:
    """The run as it is judged at a moment."""
    return run.case(now_ns=at_ms * MS, relations=NO_RELATIONS)


def acknowledge(run: Run, at_ms: int, done: int) -> None:
    """A frontier comes, and is durable at once."""
    run.acknowledge(at_ms * MS, (done, 0), 0)
    run.saved(run.snapshot(timeline=False), at_ms * MS)


@dataclass
class Network:
    """A client that acknowledges an operation every few milliseconds, and a network that stands still at
    times, both ways, and then delivers all that waited, in order. Like ours, the client sends its newest
    frontier alone, and not before the one before it is under way."""

    run: Run
    stalls: list[tuple[int, int]]  # first and last millisecond
    done: int = 0
    waits: deque[tuple[str, int]] = field(default_factory=deque)  # towards the server
    heartbeats: deque[int] = field(default_factory=deque)  # towards the client
    sent: int = 0

    def stands_still(self, at_ms: int) -> bool:
        return any(first <= at_ms <= last for first, last in self.stalls)

    def step(self, at_ms: int, *, works: bool) -> None:
        """A millisecond passes: heartbeat, operation, ack, and what the network delivers."""
        if at_ms % HEARTBEAT_MS == 0:
            self.heartbeats.append(at_ms)
        if works:
            self.done += 1
        still = self.stands_still(at_ms)
        while self.heartbeats and not still:
            self.waits.append(("answer", self.heartbeats.popleft()))
        if self.done != self.sent and not any(kind == "frontier" for kind, _ in self.waits):
            self.waits.append(("frontier", self.done))
            self.sent = self.done
        while self.waits and not still:
            kind, value = self.waits.popleft()
            self.run.heard(at_ms * MS, ran_ns=at_ms * MS)
            if kind == "answer":
                self.run.heartbeat_answered(at_ms * MS, sent_ns=value * MS)
            else:
                acknowledge(self.run, at_ms, value)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    stalls=st.lists(st.tuples(st.integers(200, 1600), st.integers(1, 500)), max_size=8),
    pause=st.tuples(st.integers(200, 1600), st.integers(0, 500)),
)
@example(stalls=[], pause=(498, 496))
@example(stalls=[(548, 500)], pause=(200, 0))
def test_an_acknowledgement_is_no_newer_than_it_may_be(
    stalls: list[tuple[int, int]], pause: tuple[int, int]
) -> None:
    """At every moment, what the log says may have been acknowledged covers all that was, but for what is on
    its way for less than the time that goes unnoticed, and the spacing of old receipts."""
    run = new_run()
    network = Network(run, [(first, first + length) for first, length in stalls])
    truth = []
    for at_ms in range(END_MS):
        idle = pause[0] <= at_ms <= sum(pause)
        network.step(at_ms, works=at_ms % 7 == 0 and not idle)
        truth.append(network.done)
    case = case_of(run, END_MS)
    for at_ms in range(END_MS // 2, END_MS, 11):
        possible, _ = frontiers_at(case, run.plan, at_ms * MS)
        before_ms = at_ms - UNNOTICED_MS - (END_MS - at_ms) // 32
        assert possible >= min(truth[before_ms], case.frontiers[0]), at_ms


def test_a_slow_client_still_shows_what_is_new() -> None:
    """Answers take half a second and gaps follow each other for ever; what was acknowledged after a heartbeat
    that was answered is new for all that."""
    run = new_run()
    for step in range(1, 101):
        at_ms = step * 150  # more than two heartbeats
        run.heard(at_ms * MS, ran_ns=at_ms * MS)
        run.heartbeat_answered(at_ms * MS, sent_ns=max(1, at_ms - 500) * MS)
        acknowledge(run, at_ms, 10 * step)
    case = case_of(run, 15_000)
    possible, _ = frontiers_at(case, run.plan, 14_000 * MS)
    assert 10 * (14_000 // 150) <= possible <= 10 * ((14_000 + 500) // 150 + 3) < case.frontiers[0]


def test_each_silence_of_a_living_kernel_is_noted() -> None:
    """A client that is frozen a second time has stood still a second time; also if it came back on another
    connection meanwhile."""
    run = new_run()
    for number, comes_back in enumerate((_heard, _connected_again, _heard)):
        second_ns = 1000 * MS * 10 * (number + 1)
        assert run.silent(second_ns)
        for later_ns in (second_ns + MS, second_ns + 2 * MS):
            run.kernel_alive(later_ns)
            assert run.sign_of_life_ns == later_ns
        comes_back(run, second_ns + 3 * MS)
        assert run.sign_of_life_ns == second_ns + 3 * MS
    kinds = [event.kind for event in case_of(run, END_MS).events]
    assert kinds.count("kernel-alive") == 3


def _heard(run: Run, at_ns: int) -> None:
    run.heard(at_ns, ran_ns=at_ns)


def _connected_again(run: Run, at_ns: int) -> None:
    run.attached(at_ns, "client")


def test_the_last_frame_may_be_as_old_as_the_stretch_that_held_it_up() -> None:
    """The held-up stretch also grows with a frame that acknowledges nothing, such as one from writers that
    wait for credit. An answer to a recent heartbeat ends the stretch."""
    run = new_run()
    run.heartbeat(HEARTBEAT_MS * MS)
    run.heard(10 * MS, ran_ns=10 * MS)
    acknowledge(run, 10, 5)
    for at_ms in (3000, 3001):
        run.heard(at_ms * MS, ran_ns=at_ms * MS)
        held = case_of(run, END_MS).held_up[-1]
        assert (held.from_ns, held.until_ns, held.frontiers) == (10 * MS, at_ms * MS, (5, 0))
    run.heard(3040 * MS, ran_ns=3040 * MS)
    run.heartbeat_answered(3040 * MS, sent_ns=3020 * MS)
    run.heard(3050 * MS, ran_ns=3050 * MS)
    held = case_of(run, END_MS).held_up[-1]
    assert (held.from_ns, held.until_ns) == (10 * MS, 3040 * MS)


def test_a_frame_that_waited_for_the_server_is_no_newer_than_the_wait() -> None:
    """The server stood still for 60 ms, too short to be a stretch. The last frame may have been sent at its
    beginning, and the power may have gone since."""
    run = new_run()
    run.heartbeat(HEARTBEAT_MS * MS)
    for at_ms, ran_ms in ((10, 9), (20, 15), (25, 24), (85, 24), (86, 85)):
        run.heard(at_ms * MS, ran_ns=ran_ms * MS)
        acknowledge(run, at_ms, at_ms)
        assert case_of(run, END_MS).rtt_max_ns == (0 if at_ms < 85 else 60 * MS)
    assert not case_of(run, END_MS).held_up
    run.silent(1000 * MS)
    interval = cut_interval_ns(case_of(run, END_MS))
    assert interval is not None and interval[0] == 26 * MS
