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


class Histories(RuleBasedStateMachine):
    """A campaign under all that can happen to it."""

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
    )
    def begin(
        self,
        *,
        own: bool,
        group: bool,
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
            )
        )

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 15.0, 40.0, 100.0, 300.0, 1000.0]))
    def pass_time(self, seconds: float) -> None:
        """Time passes."""
        self.world.advance(seconds)

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
        getattr(self._machine(number), what)()

    @rule(number=st.integers(0, 1))
    def hang(self, number: int) -> None:
        """A machine will not boot until it is switched off and on once more."""
        self._machine(number).hangs = True

    @rule(number=st.integers(0, 1), cut_off=st.booleans())
    def cut_network(self, number: int, cut_off: bool) -> None:
        """A machine's network fails, or works again."""
        self._machine(number).cut_off = cut_off

    @rule(number=st.integers(0, 1), back=st.integers(0, 20))
    def say_again(self, number: int, back: int) -> None:
        """A status arrives twice, or late."""
        self._machine(number).say_again(back)

    @rule(number=st.integers(0, 1), manner=st.sampled_from(MANNERS))
    def change_switch(self, number: int, manner: Manner) -> None:
        """A switch begins to behave in another manner."""
        switches = self.world.switches
        switches[number % len(switches)].manner = manner

    @rule(number=st.integers(0, 2), gone=st.booleans())
    def change_drive(self, number: int, gone: bool) -> None:
        """A drive vanishes, or is there again."""
        drives = self.world.settings.drives
        name = drives[number % len(drives)].name
        if gone:
            self.world.gone.add(name)
            self.world.going.pop(name, None)
        else:
            self.world.gone.discard(name)

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

    def teardown(self) -> None:
        """Once all is mended, it comes to its end."""
        if hasattr(self, "world"):
            self.world.finish()

    def _machine(self, number: int) -> PlayedMachine:
        machines = list(self.world.machines.values())
        return machines[number % len(machines)]


TestHistories = pytest.mark.slow(Histories.TestCase)
TestHistories.settings = settings(
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
