"""Histories of campaigns: whatever fails in whatever order, nothing is counted wrongly, and there is an end.

Hypothesis draws the histories and shortens those that fail. Each shortened one that was a defect is kept as a
test of its own, in `test_campaign_defects`.
"""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from durability_lab.campaign_rig.played_machine import PlayedMachine
from durability_lab.campaign_rig.played_switch import Manner
from tests.core.campaign.campaign_world import World, settings_of

MANNERS: tuple[Manner, ...] = get_args(Manner)
WORDS = ("durable", "loss", "inconclusive", "contradicted", "none")
ARMS = ("load", "idle", "prefill", "shutdown", "again")
PHASES = ("", "run", "rest", "back")  # in which something is done
REACH_S = 200
UNHEARD_S = 400.0  # after which a campaign has paused for a machine


class Interruptions(RuleBasedStateMachine):
    """A campaign that people interrupt again and again, and of which parts fail: pauses in the check and in a
    run, with switching by hand meanwhile."""

    world: World

    @initialize(
        drives=st.sampled_from([("b",), ("b", "b"), ("b", "c"), ("b", "b", "c"), ("b", "c", "d")]),
        switches=st.integers(1, 2),
        stop_at=st.sampled_from(["loss", "end"]),
        subject=st.sampled_from(["machine", "machine", "drive"]),
        arms=st.lists(st.sampled_from(ARMS), min_size=1, max_size=3),
        cuts=st.integers(1, 4),
        own=st.booleans(),
        group=st.booleans(),
        counts=st.booleans(),
    )
    def begin(
        self,
        *,
        own: bool,
        group: bool,
        counts: bool,
        drives: tuple[str, ...],
        switches: int,
        stop_at: str,
        subject: str,
        arms: list[str],
        cuts: int,
    ) -> None:
        """A campaign begins."""
        kinds = tuple("load" if subject == "drive" and arm == "shutdown" else arm for arm in arms)
        count = min(switches, len(set(drives)))
        self.world = World(
            settings_of(
                drives=drives,
                switches=count,
                stop_at=stop_at,
                subject=subject,
                arms=kinds,
                cuts=cuts,
                own=own,
                group=group,
            ),
            counts=counts,
        )

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 15.0, 40.0, 100.0, 300.0, 1000.0]))
    def pass_time(self, seconds: float) -> None:
        """Time passes."""
        self.world.advance(seconds)

    @rule(number=st.integers(0, 1), manner=st.sampled_from(MANNERS))
    def change_switch(self, number: int, manner: Manner) -> None:
        """A switch begins to behave in another manner."""
        switches = self.world.switches
        switches[number % len(switches)].manner = manner

    @rule(number=st.integers(0, 2), phase=st.sampled_from(PHASES), seconds=st.sampled_from([5.0, 60.0, 90.0]))
    def miss_drive(self, number: int, phase: str, seconds: float) -> None:
        """A drive is not there for a while, from a phase on; not in the check, which would fail for that."""
        self._reach(phase)
        if not self.world.server.state.has_cut:
            return
        self._change_drive(number, gone=True)
        self.world.advance(seconds)
        self._change_drive(number, gone=False)

    @precondition(lambda self: self.world.server.up)
    @rule(
        number=st.integers(0, 1),
        by_hand=st.integers(0, 2),
        asked=st.booleans(),
        cut_off=st.booleans(),
        weeks=st.sampled_from([False, False, True]),
        phase=st.sampled_from(PHASES),
        within_s=st.sampled_from([0.0, 10.0]),
    )
    def interrupt(
        self,
        *,
        number: int,
        by_hand: int,
        asked: bool,
        cut_off: bool,
        weeks: bool,
        phase: str,
        within_s: float,
    ) -> None:
        """An operator asks for a pause, or a machine is not heard. If there is one by then, the machine is
        mended and switched by hand, and the campaign goes on, perhaps only after weeks."""
        world, machine = self.world, self._machine(number)
        self._reach(phase)
        machine.cut_off = cut_off
        if asked:
            world.server.pause()
        world.advance(UNHEARD_S if cut_off else within_s)
        machine.cut_off = False
        if not self.is_paused:
            return
        for _ in range(by_hand):
            world.switch_by_hand(machine.name)
        if weeks:
            world.let_weeks_go()
        else:
            world.server.resume()

    @property
    def is_paused(self) -> bool:
        """Whether it waits for people."""
        return self.world.server.up and self.world.server.state.state == "paused"

    def teardown(self) -> None:
        """Once all is mended, it comes to its end."""
        if hasattr(self, "world"):
            self.world.finish()

    def _reach(self, phase: str) -> None:
        """Let time pass until a cycle is in a phase, "" for any; not for ever."""
        for _ in range(REACH_S if phase else 0):
            cycle = self.world.server.state.cycle
            if cycle is not None and cycle.phase == phase:
                return
            self.world.advance(1.0)

    def _change_drive(self, number: int, *, gone: bool) -> None:
        drives = self.world.settings.drives
        name = drives[number % len(drives)].name
        if gone:
            self.world.vanish(name)
        else:
            self.world.gone.discard(name)

    def _machine(self, number: int) -> PlayedMachine:
        machines = list(self.world.machines.values())
        return machines[number % len(machines)]


class Histories(Interruptions):
    """A campaign under all that can happen to it."""

    @rule(
        entries=st.integers(1, 30),
        at_off=st.booleans(),
        down_s=st.sampled_from([0.1, 5.0, 50.0, 400.0]),
        reboot=st.booleans(),
    )
    def kill_server(self, entries: int, at_off: bool, down_s: float, reboot: bool) -> None:
        """The server will be killed right after an entry, and started again later."""
        self.world.kill_in, self.world.kill_at_off = entries, at_off
        self.world.down_s, self.world.reboot = down_s, reboot

    @rule(number=st.integers(0, 1), what=st.sampled_from(["crash", "kill_agent", "shut_down"]))
    def harm(self, number: int, what: str) -> None:
        """A machine crashes and boots, or shuts down, or its agent is killed."""
        self.world.agents_killed |= what == "kill_agent"
        getattr(self._machine(number), what)()

    @rule(number=st.integers(0, 1))
    def hang(self, number: int) -> None:
        """A machine will not boot until it is switched off and on once more."""
        self._machine(number).hangs = True

    @rule(number=st.integers(0, 1), back=st.integers(0, 20))
    def say_again(self, number: int, back: int) -> None:
        """A status arrives twice, or late."""
        self._machine(number).say_again(back)

    @rule(number=st.integers(0, 1), cut_off=st.booleans())
    def cut_network(self, number: int, cut_off: bool) -> None:
        """A machine's network fails, or works again."""
        self._machine(number).cut_off = cut_off

    @rule(number=st.integers(0, 2), gone=st.booleans())
    def change_drive(self, number: int, gone: bool) -> None:
        """A drive vanishes, or is there again."""
        self._change_drive(number, gone=gone)

    @rule(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=6))
    def judge(self, words: list[str]) -> None:
        """The next verdicts."""
        self.world.words.extend(words)

    @rule(stop=st.booleans())
    def pause(self, stop: bool) -> None:
        """An operator wants a pause, or the end."""
        self.world.server.pause(stop=stop)

    @precondition(lambda self: self.world.server.up)
    @rule()
    def resume(self) -> None:
        """An operator wants it to go on."""
        self.world.server.resume()

    @precondition(lambda self: self.is_paused)
    @rule(number=st.integers(0, 1), resume=st.booleans())
    def switch_by_hand(self, number: int, resume: bool) -> None:
        """In a pause, somebody switches a machine off and on, and perhaps resumes at once."""
        self.world.switch_by_hand(self._machine(number).name)
        if resume:
            self.world.server.resume()

    @precondition(lambda self: self.is_paused)
    @rule()
    def let_weeks_go(self) -> None:
        """Only after weeks an operator wants it to go on."""
        self.world.let_weeks_go()


TestHistories = pytest.mark.slow(Histories.TestCase)
TestInterruptions = pytest.mark.slow(Interruptions.TestCase)
TestHistories.settings = TestInterruptions.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)


def test_an_undisturbed_campaign_is_complete() -> None:
    """Each drive has its cuts, all counted, and the bound."""
    world = World(settings_of(cuts=5))
    assert world.finish() == "complete"
    assert [ended.cycle for ended in world.account.ended] == [0, 1, 2, 3, 4, 5]
